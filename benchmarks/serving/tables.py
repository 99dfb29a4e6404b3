"""Prints what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.serving.bars import Row
from benchmarks.serving.races import Outcome
from benchmarks.serving.rounds import Ratio, medians

WORDS: Mapping[bool | None, str] = {True: "holds", False: "MISSES", None: ""}


def print_outcome(console: Console, outcome: Outcome) -> None:
    """One line for each candidate of a race: medians over the rounds."""
    console.print(f"{outcome.title}; load: {outcome.load}")
    table = _table("candidate", "requests/s", "p50 ms", "rounds")
    for name, figures in outcome.figures.items():
        median = medians(figures)
        table.add_row(name, f"{median.throughput_per_s:,.0f}", f"{median.p50_ms:.3f}", str(len(figures)))
    console.print(table)


def print_bars(console: Console, rows: Sequence[Row]) -> None:
    """One line for each bar; below, what is missing."""
    table = _table("what", "who", "against", "bar", "measured (95 %)", "")
    for row in rows:
        measured = _ratio(row.ratio) if row.ratio else "-"
        verdict = WORDS[row.holds] if row.ratio else "not measured"
        table.add_row(row.bar.what, row.bar.candidate, row.bar.baseline, row.bar.text, measured, verdict)
    console.print(table)
    for sentence in dict.fromkeys(row.missing for row in rows if row.missing):
        console.print(sentence, soft_wrap=True)
    console.print("Measured: median over rounds of the ratio within a round, and its 95 % bootstrap interval.")


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, heading in enumerate(headings):
        figure = heading not in ("who", "against", "bar", "") and index > 0
        table.add_column(heading, justify="right" if figure else "left", no_wrap=figure)
    return table
