"""Requests of the last minutes, by slots of a few seconds, for the status page."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

SLOT_S = 2
SLOTS = 60
"""Two minutes, with the slot that is not over yet."""

LATENCY_SLOTS = 15
"""The number of slots whose latencies are told."""

MOST_DETAIL = 300
"""Characters that are kept of an error's sentence."""


def slot_at(time_ns: int) -> int:
    """Return the slot of a time of ``time.perf_counter_ns``. All processes of a machine number slots alike."""
    return time_ns // (SLOT_S * 1_000_000_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LastFailure:
    """The last request that got an error.

    Attributes:
        reason: A ``FailureReason``.
        detail: The error's sentence.
        ended_ns: When, by ``time.perf_counter_ns``.
    """

    reason: str
    detail: str
    ended_ns: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """Requests of the last slots, as of one moment.

    Attributes:
        answered: Number of answered requests by slot.
        failed: Number of those that got an error, by slot.
        latencies: Answered requests of the last ``LATENCY_SLOTS`` by step, see ``latency_bound_us``.
        last_ns: When the last one ended, by ``time.perf_counter_ns``; 0 if there was none.
        last_failure: The last one that got an error, if any.
    """

    answered: Mapping[int, int]
    failed: Mapping[int, int]
    latencies: Mapping[int, int]
    last_ns: int
    last_failure: LastFailure | None


class RecentRequests:
    """Counts requests by slot, and forgets old slots. The caller holds a lock."""

    def __init__(self) -> None:
        self._answered: dict[int, Counter[int]] = {}
        self._failed: Counter[int] = Counter()
        self._last_ns = 0
        self._last_failure: LastFailure | None = None

    def add(self, ended_ns: int, step: int) -> None:
        """Count an answered request by the time of its end and the step of its latency."""
        slot = slot_at(ended_ns)
        if slot not in self._answered:
            self._answered = {key: steps for key, steps in self._answered.items() if key > slot - SLOTS}
            self._answered[slot] = Counter()
        self._answered[slot][step] += 1
        self._last_ns = max(self._last_ns, ended_ns)

    def add_failure(self, ended_ns: int, reason: str, detail: str) -> None:
        """Count a request that got an error, and keep its sentence."""
        self._last_ns = max(self._last_ns, ended_ns)
        self._last_failure = LastFailure(reason=reason, detail=detail[:MOST_DETAIL], ended_ns=ended_ns)
        slot = slot_at(ended_ns)
        if slot not in self._failed:
            self._failed = Counter({key: count for key, count in self._failed.items() if key > slot - SLOTS})
        self._failed[slot] += 1

    def as_of(self, now_ns: int) -> Recent:
        """Return the counts of the slots before a time."""
        now = slot_at(now_ns)
        latencies: Counter[int] = Counter()
        for slot, steps in self._answered.items():
            if slot > now - LATENCY_SLOTS:
                latencies.update(steps)
        answered = {slot: steps.total() for slot, steps in sorted(self._answered.items()) if slot > now - SLOTS}
        failed = {slot: count for slot, count in sorted(self._failed.items()) if slot > now - SLOTS}
        return Recent(
            answered=answered,
            failed=failed,
            latencies=dict(sorted(latencies.items())),
            last_ns=self._last_ns,
            last_failure=self._last_failure,
        )
