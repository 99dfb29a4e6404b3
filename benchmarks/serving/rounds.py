"""Candidates take turns in rounds, so that a change of the machine's speed hits all of them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from benchmarks.latency import median_with_interval
from benchmarks.serving.loads import Figures

Measure = Literal["throughput_per_s", "p50_ms"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One candidate over another.

    Attributes:
        median: Over rounds, of the ratio within a round.
        low: Lower end of its 95 % bootstrap interval.
        high: Upper end.
    """

    median: float
    low: float
    high: float


def take_turns(candidates: Mapping[str, Callable[[], Figures]], rounds: int) -> dict[str, list[Figures]]:
    """Give each candidate a turn a round: A B C, B C A, C A B, ...

    Returns:
        Figures by candidate, one entry a round.
    """
    order = list(candidates)
    figures: dict[str, list[Figures]] = {name: [] for name in order}
    for _ in range(rounds):
        for name in order:
            figures[name].append(candidates[name]())
        order = [*order[1:], order[0]]
    return figures


def ratio(candidate: Sequence[Figures], baseline: Sequence[Figures], measure: Measure) -> Ratio:
    """Compare what two candidates measured in the same rounds."""
    pairs = zip(candidate, baseline, strict=True)
    median, low, high = median_with_interval(np.array([getattr(a, measure) / getattr(b, measure) for a, b in pairs]))
    return Ratio(median=median, low=low, high=high)


def medians(figures: Sequence[Figures]) -> Figures:
    """Median of each figure over the rounds."""
    return Figures(
        throughput_per_s=statistics.median(one.throughput_per_s for one in figures),
        p50_ms=statistics.median(one.p50_ms for one in figures),
    )
