"""Renders a partition as one HTML file that needs nothing else: no network, no library, no server."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

import jinja2

from trtnode.engines.sparse.survey import LayerSparsity
from trtnode.engines.tuning.candidates import ALL_ENGINES, NO_ENGINE
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.cut.report import Report
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.serving.pages.drawing import draw
from trtnode.serving.pages.explain_data import pack, page_data
from trtnode.serving.pages.explain_tables import (
    boundary_table,
    crossing_values,
    group_native,
    measured_times,
    tables_of,
)

HUE_START, HUE_STEP = 210, 137.5
"""Degrees. The golden angle keeps the colours of segments with near numbers far apart."""

STEP_HUE = 60
"""Degrees between the colour of a segment and that of the step with the same number."""

TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("trtnode.serving.pages"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def render_page(partition: Partition, report: Report, sparse: Sequence[LayerSparsity] = ()) -> str:
    """Explain a partition as a web page.

    Names come from the model, so nothing in them is trusted: the page's policy lets no script run but its own, known
    by its hash, and forbids every request.

    Args:
        partition: What was cut; gives the picture, types and shapes.
        report: Facts about it. Sections for which it has none are left out.
        sparse: Layers with many zeros in their weights.

    Returns:
        The page. The same partition and report give the same text.
    """
    facts = report.as_json()
    drawing = draw(partition)
    tables = tables_of(facts, sparse)
    if partition.segments:
        tables["boundary"] = boundary_table(partition)
    groups = group_native(facts["native"], _names(partition))
    for group in groups:
        tables |= {f"{group.code} {index}": reason.table() for index, reason in enumerate(group.reasons)}
    times = measured_times(facts["tuning"]) if "tuning" in facts else {}
    script = TEMPLATES.get_template("explain.js").render(hue_start=HUE_START, hue_step=HUE_STEP)
    folded = {name: table.folded for name, table in tables.items() if table.folded}
    return TEMPLATES.get_template("explain.html.j2").render(
        report=facts,
        drawing=drawing,
        hues={s.name: _hue(index) for index, s in enumerate(partition.segments)},
        steps={name: _hue(index) + STEP_HUE for index, name in enumerate(facts.get("steps", ()))},
        native_groups=groups,
        tables=tables,
        times=sorted(times.items(), key=lambda one: one[0] != NO_ENGINE),
        choices={NO_ENGINE: "natively", ALL_ENGINES: "with all engines"},
        unsized=not all(TensorSpec.of(value).size_bytes for value in crossing_values(partition)),
        losing=sum(s["estimate"]["engine_ms"] > s["estimate"]["native_ms"] for s in facts["segments"]),
        data=pack({**page_data(partition, drawing, facts), "folded": folded}),
        script=script,
        script_hash=script_hash(script),
    )


def script_hash(script: str) -> str:
    """Return what the policy of a page calls the one script that may run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _names(partition: Partition) -> set[str]:
    """Names of nodes and of what they read and write."""
    nodes = partition.graph.nodes
    values = (value for node in nodes for value in (*node.op.inputs, *node.op.outputs) if value is not None)
    return {*(node.name for node in nodes), *(value.name or "" for value in values)}


def _hue(segment: int) -> float:
    return (HUE_START + segment * HUE_STEP) % 360
