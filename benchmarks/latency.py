"""Interleaved latency measurement: candidates take turns, so that a change of the machine's speed hits all of them."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

ORIGIN_DROPPED, ORIGIN_KEPT = 2, 10
"""MindSpore's own protocol: drop the first two requests, take the mean of the next ten."""

FEWEST_CALLS = 3
"""Calls of a turn, however long they take."""

BOOTSTRAP_SAMPLES = 1000

Name = TypeVar("Name", bound=Hashable)

Turn = Callable[[int, float], np.ndarray]
"""Makes at least so many calls, one after the other, for so many seconds; gives what each took in ms: float64[N]."""


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

    def over(self, other: Latencies) -> np.ndarray:
        """What this candidate takes longer than another of the same race, in ms, round by round: drift cancels."""
        longer: np.ndarray = self.round_medians() - other.round_medians()
        return longer


class Race(Generic[Name]):
    """Candidates that take turns: A B C, B C A, C A B, ... What is complete can be read at any time."""

    def __init__(self, turns: Mapping[Name, Turn], *, seconds_per_turn: float = 0.2, settle_s: float = 0.0) -> None:
        """Make the first twelve calls of each candidate.

        Args:
            turns: What to time, by name.
            seconds_per_turn: About how long a turn takes; it has at least three calls.
            settle_s: Pause before each turn, in which the threads of the one before go to sleep.
        """
        self._turns = turns
        self._seconds_per_turn = seconds_per_turn
        self._settle_s = settle_s
        self._first = {name: self._take_turn(name, ORIGIN_DROPPED + ORIGIN_KEPT, 0.0) for name in turns}
        self._rounds: list[dict[Name, np.ndarray]] = []

    def run(self, rounds: int, *, after_round: Callable[[], object] = lambda: None) -> None:
        """Give each candidate so many turns.

        Args:
            rounds: How many.
            after_round: Called when all have had a turn.
        """
        order = list(self._turns)
        for _ in range(rounds):
            # The first call of a turn brings the weights back into the caches, so it doesn't count.
            self._rounds.append({n: self._take_turn(n, FEWEST_CALLS + 1, self._seconds_per_turn)[1:] for n in order})
            order = [*order[1:], order[0]]
            after_round()

    def latencies(self) -> dict[Name, Latencies]:
        """Latencies by name, of the rounds that are complete; empty if none is."""
        if not self._rounds:
            return {}
        return {
            name: Latencies(first=first, steady=[times[name] for times in self._rounds])
            for name, first in self._first.items()
        }

    def _take_turn(self, name: Name, fewest: int, seconds: float) -> np.ndarray:
        time.sleep(self._settle_s)
        return self._turns[name](fewest, seconds)


def measure(
    candidates: Mapping[str, Callable[[], object]], *, rounds: int = 15, seconds_per_round: float = 0.2
) -> dict[str, Latencies]:
    """Time calls of this process in turn.

    Args:
        candidates: What to call, by name.
        rounds: How many turns each gets.
        seconds_per_round: About how long a turn takes.

    Returns:
        Latencies by name.
    """
    turns = {name: functools.partial(time_calls, call) for name, call in candidates.items()}
    race = Race(turns, seconds_per_turn=seconds_per_round)
    race.run(rounds)
    return race.latencies()


def time_calls(call: Callable[[], object], fewest: int, seconds: float) -> np.ndarray:
    """Time calls one by one, at least so many and for so many seconds; in ms."""
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
    """How many times faster a candidate is than a baseline measured in the same rounds.

    Returns:
        The median over rounds of the ratio of their medians, and its 95 % bootstrap interval.
    """
    return median_with_interval(baseline.round_medians() / candidate.round_medians())


def median_with_interval(values: np.ndarray) -> tuple[float, float, float]:
    """The median of values, one a round, and its 95 % bootstrap interval."""
    rng = np.random.default_rng(0)
    resampled = np.median(rng.choice(values, (BOOTSTRAP_SAMPLES, len(values))), axis=1)
    low, high = np.percentile(resampled, [2.5, 97.5])
    return float(np.median(values)), float(low), float(high)
