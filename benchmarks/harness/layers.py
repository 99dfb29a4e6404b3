"""What each layer of a model costs: timed in a process of its own, and printed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.harness.candidates import TIMEOUT_S, Recipe
from benchmarks.harness.results import LayerRow
from benchmarks.harness.subjects import Subject
from engines.profiling import profile_layers
from engines.worker import Worker

LISTED = 40
"""Layers of a table; all are in the JSON."""

LEGEND = (
    "us: median of a layer, by the library's own clock. share: of all layers; timing them makes small ones slower, so "
    "take shares, not sums. stage us: of the whole stage without that cost. A layer is called by the ONNX nodes that "
    "it computes, as far as the library tells."
)


def time_layers(subject: Subject, recipe: Recipe) -> list[LayerRow]:
    """Time the layers of a model in one setting.

    Returns:
        The slowest first.

    Raises:
        EngineError: A library tells no times of layers, or doesn't run the model.
    """
    with Worker() as worker:
        stages = worker.call(profile_layers, TIMEOUT_S, recipe.model, subject.samples[0], recipe.threads)
    whole = sum(layer.us for stage in stages for layer in stage.layers)
    rows = [
        LayerRow(
            network=subject.name,
            setting=recipe.setting,
            batch=subject.batch,
            stage=stage.stage,
            engine=stage.engine,
            stage_us=stage.stage_us,
            layer=layer.name,
            nodes=layer.nodes,
            kind=layer.kind,
            precision=layer.precision,
            kernel=layer.kernel,
            us=layer.us,
            share=100 * layer.us / whole if whole else 0.0,
        )
        for stage in stages
        for layer in stage.layers
    ]
    return sorted(rows, key=lambda row: row.us, reverse=True)


def print_layers(rows: Sequence[LayerRow], console: Console) -> None:
    """A table for each model and setting, and its stages; nothing where no layers were timed."""
    for (network, setting, batch), group in itertools.groupby(rows, lambda r: (r.network, r.setting, r.batch)):
        of_one = list(group)
        console.print(_table(f"Layers: {network}, {setting}, batch {batch}", of_one[:LISTED]))
        rest = of_one[LISTED:]
        if rest:
            console.print(f"and {len(rest)} more with {sum(row.share for row in rest):.1f} % of the time", markup=False)
    if rows:
        console.print(LEGEND, markup=False)


def _table(title: str, rows: Sequence[LayerRow]) -> Table:
    table = Table(box=box.SIMPLE, title=escape(title), title_justify="left")
    for heading in ("stage", "engine", "stage us", "layer", "type", "us", "share", "in", "kernel"):
        is_figure = heading in ("stage us", "us", "share")
        table.add_column(heading, justify="right" if is_figure else "left", no_wrap=is_figure, overflow="fold")
    for row in rows:
        table.add_row(
            escape(row.stage),
            escape(row.engine),
            "" if row.stage_us is None else f"{row.stage_us:.1f}",
            escape(" + ".join(row.nodes) or row.layer),
            escape(row.kind),
            f"{row.us:.1f}",
            f"{row.share:.1f} %",
            row.precision,
            escape(row.kernel),
        )
    return table
