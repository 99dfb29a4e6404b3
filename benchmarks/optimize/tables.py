"""The table of all figures, and the bars that they miss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.optimize.subject import PLAIN_LIBRARIES, WITH, WITHOUT, Figures, Subject

LEAST_MEAN, FASTER, LEAST_FASTER = 0.99, 1.05, 3
"""Least geometric mean of the networks; models that gain this much, and how many there must be."""

LEAST = {"networks": 0.97, "models": 0.97}
"""Least speed with rewrites over that without, by part."""

MOST_ERROR = 1e-5

Measured = tuple[Subject, Figures]


def print_table(measured: Sequence[Measured], console: Console) -> None:
    """Print a row for each measured subject."""
    headings = ("model", "engine", "rewrites", "plain ms", "without ms", "with ms", "gain (95 %)", "error", "bar")
    table = Table(*headings, title="trtnode compile --all-engines, with rewrites and without, p50")
    for subject, figures in measured:
        kinds = (PLAIN_LIBRARIES[subject.engine], WITHOUT, WITH)
        times = (f"{figures.p50_ms[kind]:.3f}" if kind in figures.p50_ms else "" for kind in kinds)
        rules = ", ".join(f"{name} {count}" for name, count in subject.rules.items())
        gain = f"{figures.gain:.3f} ({figures.low:.3f} to {figures.high:.3f})"
        bar = "" if subject.bar is None else str(subject.bar)
        shown = rules if subject.expected else f"({rules})"
        table.add_row(subject.name, subject.engine, shown, *times, gain, f"{figures.error:.1e}", bar)
    console.print(table)
    if not all(subject.expected for subject, _ in measured):
        console.print("In brackets: rules that aren't applied for this engine here.")


def problems(measured: Sequence[Measured], same: Sequence[Subject]) -> Iterator[str]:
    """Yield a sentence for each bar that is missed. Networks in training form are judged in the best engine.

    A rule that isn't applied on this processor has no bar here.

    Args:
        measured: What rewrites change.
        same: The rest, whose speed is the same.
    """
    yield from _too_slow(measured)
    yield from _on_the_whole(measured, same)
    for subject, figures in measured:
        if figures.error > MOST_ERROR and subject.part != "models":
            yield f"{subject.name} differs by {figures.error:.1e} in {subject.engine}; the most is {MOST_ERROR}."


def _too_slow(measured: Sequence[Measured]) -> Iterator[str]:
    best: dict[str, float] = {}
    for subject, figures in measured:
        if subject.bar is not None and subject.expected:
            best[subject.name] = max(figures.gain, best.get(subject.name, 0.0))
    bars: Mapping[str, float] = {s.name: s.bar for s, _ in measured if s.bar is not None}
    for name, gain in best.items():
        if gain < bars[name]:
            yield f"{name} gains {gain:.2f} x, less than {bars[name]}."
    for subject, figures in measured:
        if figures.gain < (least := LEAST.get(subject.part, 0.0)):
            yield f"{subject.name} has {figures.gain:.3f} times its speed in {subject.engine}; the least is {least}."


def _on_the_whole(measured: Sequence[Measured], same: Sequence[Subject]) -> Iterator[str]:
    networks = [figures.gain for subject, figures in measured if subject.part == "networks"]
    networks += [1.0 for subject in same if subject.part == "networks"]
    if networks and (mean := float(np.exp(np.mean(np.log(networks))))) < LEAST_MEAN:
        yield f"The networks' geometric mean is {mean:.3f}; the least is {LEAST_MEAN}."
    models = [(subject, figures) for subject, figures in measured if subject.part == "models"]
    faster = sorted({subject.name for subject, figures in models if figures.gain > FASTER})
    if models and len(faster) < LEAST_FASTER:
        yield f"Only {len(faster)} models are faster by more than 5 %: {', '.join(faster) or 'none'}."
