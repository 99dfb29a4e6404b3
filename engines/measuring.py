"""Times calls in turn, so that a change of the machine's speed hits all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

ROUNDS = 41
"""Turns that each call gets: many short ones, so that neighbours in a turn meet the same load of the machine."""

FEWEST_ROUNDS = 5
"""Turns that even slow calls get, however long they take."""

PATIENCE = 1.5
"""How many times the time given may pass before no further round begins."""


def time_in_turn(
    calls: Mapping[str, Callable[[], object]], *, seconds: float, rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """Time calls one after the other, again and again: A B C, B C A, C A B, ...

    Args:
        calls: What to call, by name.
        seconds: About how long all of it takes; more for calls of which a few take longer.
        rounds: How many turns each gets.

    Returns:
        The median of each turn in ms, by name. Turns with the same index were next to each other.
    """
    turn_s = seconds / rounds / len(calls)
    counts = {name: max(1, int(turn_s / _estimate(call))) for name, call in calls.items()}
    medians: dict[str, list[float]] = {name: [] for name in calls}
    deadline = time.monotonic() + PATIENCE * seconds
    order = list(calls)
    for done in range(rounds):
        if done >= FEWEST_ROUNDS and time.monotonic() > deadline:
            break
        for name in order:
            calls[name]()  # brings its weights back into the caches after the other calls' turns
            medians[name].append(_median_ms(calls[name], counts[name]))
        order = [*order[1:], order[0]]
    return medians


def _estimate(call: Callable[[], object]) -> float:
    """Seconds that a call takes, the first one left out."""
    call()
    return _median_ms(call, 3) / 1e3


def _median_ms(call: Callable[[], object], count: int) -> float:
    times = []
    for _ in range(count):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1e6
