"""Prints the times of a model's layers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trtnode.bench.latency_report.results import LayerRow

LISTED = 40
"""Largest number of layers in a table; the JSON has all."""

LEGEND = (
    "us: median of a layer, by the library's own clock. share: of all layers; timing them makes small ones slower, so "
    "take shares, not sums. stage us: of the whole stage without that cost. A layer is called by the ONNX nodes that "
    "it computes, as far as the library tells."
)


def print_layers(rows: Sequence[LayerRow], console: Console) -> None:
    """Print a table per model and setting; nothing if no layers were timed."""
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
