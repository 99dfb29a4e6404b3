"""Renders a partition as one HTML file that needs nothing else: no network, no library, no server."""

from __future__ import annotations

import base64
import hashlib

import jinja2

from partitioner import Partition, Report
from serving.pages.drawing import draw
from serving.pages.explain_data import boundary_tensors, group_native, page_data

HUE_START, HUE_STEP = 210, 137.5
"""Degrees. The golden angle keeps the colours of segments with near numbers far apart."""

TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("serving.pages"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
TEMPLATES.policies["json.dumps_kwargs"] = {"separators": (",", ":")}  # the data of large graphs is most of the page


def render_page(partition: Partition, report: Report) -> str:
    """Explain a partition as a web page.

    Names come from the model, so nothing in them is trusted: the page's policy lets no script run but its own, known
    by its hash, and forbids every request.

    Args:
        partition: What was cut; gives the picture, types and shapes.
        report: What is told about it. Sections for which it has no facts are left out.

    Returns:
        The page. The same partition and report give the same text.
    """
    facts = report.as_json()
    drawing = draw(partition)
    script = TEMPLATES.get_template("explain.js").render()
    return TEMPLATES.get_template("explain.html.j2").render(
        report=facts,
        drawing=drawing,
        hues={s.name: _hue(index) for index, s in enumerate(partition.segments)},
        native_groups=group_native(facts["native"]),
        boundary=boundary_tensors(partition),
        data=page_data(partition, drawing, facts),
        script=script,
        script_hash=script_hash(script),
    )


def script_hash(script: str) -> str:
    """Return what the policy of a page calls the one script that may run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _hue(segment: int) -> float:
    return (HUE_START + segment * HUE_STEP) % 360
