"""Measures candidates in turns, so that a change of the machine's speed affects all of them alike."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from benchmarks.serving.load_generators import LoadFigures
from trtnode.bench.latency.interleaving import median_with_interval

Measure = Literal["throughput_per_s", "p50_ms", "cpu_us"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Ratio of one candidate's figure to another's.

    Attributes:
        median: Over rounds, of the ratio within a round.
        low: Lower end of its 95 % bootstrap interval.
        high: Upper end.
    """

    median: float
    low: float
    high: float


def take_turns(candidates: Mapping[str, Callable[[], LoadFigures]], rounds: int) -> dict[str, list[LoadFigures]]:
    """Give each candidate a turn a round: A B C, B C A, C A B, ...

    Returns:
        Figures by candidate, one entry per round.
    """
    order = list(candidates)
    figures: dict[str, list[LoadFigures]] = {name: [] for name in order}
    for _ in range(rounds):
        for name in order:
            figures[name].append(candidates[name]())
        order = [*order[1:], order[0]]
    return figures


def ratio(candidate: Sequence[LoadFigures], baseline: Sequence[LoadFigures], measure: Measure) -> Ratio:
    """Return the ratio of a figure of two candidates, measured in the same rounds."""
    pairs = zip(candidate, baseline, strict=True)
    median, low, high = median_with_interval(np.array([getattr(a, measure) / getattr(b, measure) for a, b in pairs]))
    return Ratio(median=median, low=low, high=high)


def medians(figures: Sequence[LoadFigures]) -> LoadFigures:
    """Return the median of each figure over the rounds."""
    return LoadFigures(
        throughput_per_s=statistics.median(one.throughput_per_s for one in figures),
        p50_ms=statistics.median(one.p50_ms for one in figures),
        cpu_us=statistics.median(one.cpu_us for one in figures),
    )
