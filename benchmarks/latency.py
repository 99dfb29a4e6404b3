"""Interleaved latency measurement: candidates take turns, so that a change of the machine's speed hits all of them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

ORIGIN_DROPPED, ORIGIN_KEPT = 2, 10
"""MindSpore's own protocol: drop the first two requests, take the mean of the next ten."""

BOOTSTRAP_SAMPLES = 1000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """What one candidate took.

    Attributes:
        first: Its first twelve calls, in ms, in order.
        steady: All its later calls, in ms, one array a round.
    """

    first: np.ndarray
    steady: Sequence[np.ndarray]

    @property
    def mean10_ms(self) -> float:
        """Mean of ten calls after the first two."""
        return float(self.first[ORIGIN_DROPPED : ORIGIN_DROPPED + ORIGIN_KEPT].mean())

    def percentile_ms(self, q: float) -> float:
        """A percentile over all steady calls."""
        return float(np.percentile(np.concatenate(list(self.steady)), q))

    def round_medians(self) -> np.ndarray:
        """Median of each round, in ms."""
        return np.array([np.median(calls) for calls in self.steady])


def measure(
    candidates: Mapping[str, Callable[[], object]], *, rounds: int = 15, seconds_per_round: float = 0.2
) -> dict[str, Latencies]:
    """Time candidates in turn: A B C, A B C, ...

    Args:
        candidates: What to call, by name.
        rounds: How many turns each gets.
        seconds_per_round: About how long a turn takes; it has at least three calls.

    Returns:
        Latencies by name.
    """
    first = {name: _time(call, ORIGIN_DROPPED + ORIGIN_KEPT) for name, call in candidates.items()}
    counts = {name: max(3, int(seconds_per_round * 1e3 / np.median(times))) for name, times in first.items()}
    steady: dict[str, list[np.ndarray]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            call()  # brings its weights back into the caches after the other candidates' turns
            steady[name].append(_time(call, counts[name]))
    return {name: Latencies(first=first[name], steady=steady[name]) for name in candidates}


def ratio_with_interval(baseline: Latencies, candidate: Latencies) -> tuple[float, float, float]:
    """How many times faster a candidate is than a baseline measured in the same rounds.

    Returns:
        The median over rounds of the ratio of their medians, and its 95 % bootstrap interval.
    """
    ratios = baseline.round_medians() / candidate.round_medians()
    rng = np.random.default_rng(0)
    resampled = np.median(rng.choice(ratios, (BOOTSTRAP_SAMPLES, len(ratios))), axis=1)
    low, high = np.percentile(resampled, [2.5, 97.5])
    return float(np.median(ratios)), float(low), float(high)


def _time(call: Callable[[], object], count: int) -> np.ndarray:
    times = np.empty(count)
    for index in range(count):
        start = time.perf_counter_ns()
        call()
        times[index] = time.perf_counter_ns() - start
    return times / 1e6
