"""Measures latencies in turns, so that a change of the machine's speed affects all candidates alike."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

ORIGIN_DROPPED, ORIGIN_KEPT = 2, 10
"""MindSpore's protocol: drop the first two requests, and take the mean of the next ten."""

FEWEST_CALLS = 3
"""Least number of calls of a turn."""

BOOTSTRAP_SAMPLES = 1000

Name = TypeVar("Name", bound=Hashable)

Turn = Callable[[int, float], np.ndarray]
"""Makes at least a number of calls, for a number of seconds; returns their latencies in ms, float64[N]."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Latencies of one candidate.

    Attributes:
        first: Of its first twelve calls, in ms, in order.
        steady: Of all its later calls, in ms, one array per round.
    """

    first: np.ndarray
    steady: Sequence[np.ndarray]

    @property
    def mean10_ms(self) -> float:
        """Mean of ten calls after the first two."""
        return float(self.first[ORIGIN_DROPPED : ORIGIN_DROPPED + ORIGIN_KEPT].mean())

    def percentile_ms(self, q: float) -> float:
        """Return a percentile over all steady calls."""
        return float(np.percentile(np.concatenate(list(self.steady)), q))

    def round_medians(self) -> np.ndarray:
        """Return the median of each round, in ms."""
        return np.array([np.median(calls) for calls in self.steady])

    def over(self, other: Latencies) -> np.ndarray:
        """Return how much longer it takes than another candidate, in ms, for each round; drift cancels."""
        longer: np.ndarray = self.round_medians() - other.round_medians()
        return longer


class Interleaving(Generic[Name]):
    """Candidates that take turns: A B C, B C A, C A B, ... Complete rounds can be read at any time."""

    def __init__(self, turns: Mapping[Name, Turn], *, seconds_per_turn: float = 0.2, settle_s: float = 0.0) -> None:
        """Make the first twelve calls of each candidate.

        Args:
            turns: The candidates by name.
            seconds_per_turn: Approximate length of a turn, which has at least three calls.
            settle_s: Pause before each turn, in which the threads of the preceding candidate go to sleep.
        """
        self._turns = turns
        self._seconds_per_turn = seconds_per_turn
        self._settle_s = settle_s
        self._first = {name: self._take_turn(name, ORIGIN_DROPPED + ORIGIN_KEPT, 0.0) for name in turns}
        self._rounds: list[dict[Name, np.ndarray]] = []

    def run(self, rounds: int, *, after_round: Callable[[], object] = lambda: None) -> None:
        """Give each candidate a turn per round.

        Args:
            rounds: Number of rounds.
            after_round: Called after each round.
        """
        order = list(self._turns)
        for _ in range(rounds):
            # The first call of a turn loads the weights into the caches, so it doesn't count.
            self._rounds.append({n: self._take_turn(n, FEWEST_CALLS + 1, self._seconds_per_turn)[1:] for n in order})
            order = [*order[1:], order[0]]
            after_round()

    def latencies(self) -> dict[Name, Latencies]:
        """Return latencies by name, of the complete rounds; empty if there are none."""
        if not self._rounds:
            return {}
        return {
            name: Latencies(first=first, steady=[times[name] for times in self._rounds])
            for name, first in self._first.items()
        }

    def _take_turn(self, name: Name, fewest: int, seconds: float) -> np.ndarray:
        time.sleep(self._settle_s)
        return self._turns[name](fewest, seconds)


def time_calls(call: Callable[[], object], fewest: int, seconds: float) -> np.ndarray:
    """Return the times of single calls in ms, at least ``fewest`` and for ``seconds``."""
    times: list[int] = []
    now = time.perf_counter_ns()
    deadline = now + seconds * 1e9
    while len(times) < fewest or now < deadline:
        start = time.perf_counter_ns()
        call()
        now = time.perf_counter_ns()
        times.append(now - start)
    return np.array(times) / 1e6


def ratio_with_interval(baseline: Latencies, candidate: Latencies) -> tuple[float, float, float]:
    """Compare a candidate with a baseline of the same rounds; a ratio above 1 is faster.

    Returns:
        The median over rounds of the ratio of their medians, and its 95 % bootstrap interval.
    """
    return median_with_interval(baseline.round_medians() / candidate.round_medians())


def median_with_interval(values: np.ndarray) -> tuple[float, float, float]:
    """Return the median of values, one per round, and its 95 % bootstrap interval."""
    rng = np.random.default_rng(0)
    resampled = np.median(rng.choice(values, (BOOTSTRAP_SAMPLES, len(values))), axis=1)
    low, high = np.percentile(resampled, [2.5, 97.5])
    return float(np.median(values)), float(low), float(high)
