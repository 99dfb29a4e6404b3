"""Prints cuts and targets as tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.partition.measure import OURS, CutRow
from benchmarks.partition.peers import TORCH_FX
from benchmarks.partition.targets import CutTarget, cpu_ratios, growth
from benchmarks.partition.whole_command import ORT, CommandRow


def print_family(console: Console, family: str, rows: Sequence[CutRow]) -> None:
    """Print a table of a family, with a line per graph and method."""
    headings = ("nodes", "native", "method", "segments", "minimum", "crossing", "floor", "MB", "ms", "growth", "vs fx")
    table = Table(title=family)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    exponents = growth(rows)
    for _, methods in itertools.groupby(rows, key=lambda row: row.graph):
        group = list(methods)
        fx = next((row.ms for row in group if row.method == TORCH_FX.name), None)
        for row in group:
            larger, exponent = exponents.get((row.source, row.native_share), (None, 0.0))
            mine = row.method == OURS
            table.add_row(
                f"{row.nodes:,}",
                f"{row.native_share:.0%}",
                row.method,
                f"{row.segments:,}",
                f"{row.minimum:,}",
                f"{row.score.crossing_tensors:,}",
                f"{row.unavoidable:,}",
                f"{row.score.crossing_bytes / 1e6:,.2f}",
                f"{row.ms:,.1f}",
                f"{exponent:.2f}" if row is larger else "",
                f"{fx / row.ms:,.0f} x" if mine and fx else "",
                end_section=row is group[-1],
            )
    console.print(table)


def print_commands(console: Console, rows: Sequence[CommandRow]) -> None:
    """Print the processes of each method on each file, with their ratio to ONNX Runtime's."""
    table = Table(title="whole command, with --native-ops Neg,Sub")
    for heading in ("graph", "nodes", "method", "CPU s", "wall s", "CPU ratio", "page MB"):
        table.add_column(heading, justify="left" if heading in ("graph", "method") else "right", no_wrap=True)
    ratios = dict(cpu_ratios(rows))
    for row in rows:
        table.add_row(
            row.source,
            f"{row.nodes:,}",
            row.method,
            f"{row.cpu_s:.2f}",
            f"{row.wall_s:.2f}",
            f"{ratios[row]:.2f}" if row in ratios else "",
            "" if row.page_bytes is None else f"{row.page_bytes / 1e6:.2f}",
            end_section=row.method == ORT,
        )
    console.print(table)


def print_targets(console: Console, targets: Sequence[CutTarget]) -> None:
    """Print the targets, and whether each is met."""
    words = {True: "holds", False: "FAILS", None: "not measured"}
    table = Table("target", "", "worst graph", title="Targets")
    for target in targets:
        table.add_row(target.text, words[target.holds], target.worst)
    console.print(table)
    console.print(
        "crossing: distinct tensors made in one place and read in another; floor: those that cross in any cut."
    )
    console.print("ms: medians of interleaved turns; ours label and cut, peers cut with given labels.")
