"""Prints figures and targets as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.serving.interleaving import Ratio, medians
from benchmarks.serving.scenarios import ScenarioResult
from benchmarks.serving.targets import TargetRow

WORDS: Mapping[bool | None, str] = {True: "holds", False: "MISSES", None: ""}


def print_scenario(console: Console, result: ScenarioResult) -> None:
    """Print a line per candidate of a scenario: medians over the rounds."""
    console.print(f"{result.title}; load: {result.load}")
    table = _table("candidate", "requests/s", "p50 ms", "CPU us", "rounds")
    for name, figures in result.figures.items():
        median = medians(figures)
        cpu = "-" if math.isnan(median.cpu_us) else f"{median.cpu_us:,.0f}"
        table.add_row(name, f"{median.throughput_per_s:,.0f}", f"{median.p50_ms:.3f}", cpu, str(len(figures)))
    console.print(table)


def print_targets(console: Console, rows: Sequence[TargetRow]) -> None:
    """Print a line per target, then the reasons of those that were not measured."""
    table = _table("figure", "candidate", "against", "target", "measured (95 %)", "")
    for row in rows:
        measured = _ratio(row.ratio) if row.ratio else "-"
        verdict = WORDS[row.holds] if row.ratio else "not measured"
        table.add_row(row.target.what, row.target.candidate, row.target.baseline, row.target.text, measured, verdict)
    console.print(table)
    for sentence in dict.fromkeys(row.missing for row in rows if row.missing):
        console.print(sentence, soft_wrap=True)
    console.print("Measured: median over rounds of the ratio within a round, and its 95 % bootstrap interval.")


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, heading in enumerate(headings):
        figure = heading not in ("candidate", "against", "target", "") and index > 0
        table.add_column(heading, justify="right" if figure else "left", no_wrap=figure)
    return table
