"""Requests of the last minutes, by slots of a few seconds, for the status page."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping

SLOT_S = 2
SLOT_NS = SLOT_S * 1_000_000_000
SLOTS = 60
"""Two minutes, with the slot that is not over yet."""

LATENCY_SLOTS = 15
"""The number of slots whose latencies are told."""

MOST_DETAIL = 300
"""Characters that are kept of an error's sentence."""


def slot_at(time_ns: int) -> int:
    """Return the slot of a time of ``time.perf_counter_ns``. All processes of a machine number slots alike."""
    return time_ns // SLOT_NS


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
    """Remembers the counts as of the beginning of each slot, and forgets old slots. The caller holds a lock.

    An answered request costs one comparison, with ``ends_ns``: what a slot counts is the difference to the next one.

    Attributes:
        ends_ns: End of the newest slot, by ``time.perf_counter_ns``.
        last_ns: When the last request ended, likewise; 0 if there was none.
    """

    def __init__(self) -> None:
        self.ends_ns = 1
        self.last_ns = 0
        self._begun: dict[int, tuple[int, Mapping[int, int]]] = {}
        self._failed: Counter[int] = Counter()
        self._last_failure: LastFailure | None = None

    def begin_slot(self, ended_ns: int, success: int, latencies: Mapping[int, int]) -> None:
        """Begin the slot of an answered request.

        Args:
            ended_ns: When the request ended.
            success: Number of those answered before it.
            latencies: Those by step, see ``latency_bound_us``.
        """
        slot = slot_at(ended_ns)
        self.ends_ns = (slot + 1) * SLOT_NS
        self._begun = {key: counts for key, counts in self._begun.items() if key > slot - SLOTS}
        self._begun[slot] = success, dict(latencies)

    def add_failure(self, ended_ns: int, reason: str, detail: str) -> None:
        """Count a request that got an error, and keep its sentence."""
        self.last_ns = ended_ns
        self._last_failure = LastFailure(reason=reason, detail=detail[:MOST_DETAIL], ended_ns=ended_ns)
        slot = slot_at(ended_ns)
        if slot not in self._failed:
            self._failed = Counter({key: count for key, count in self._failed.items() if key > slot - SLOTS})
        self._failed[slot] += 1

    def as_of(self, now_ns: int, success: int, latencies: Mapping[int, int]) -> Recent:
        """Return the counts of the slots before a time, at which so many requests have been answered."""
        now = slot_at(now_ns)
        begun = {slot: counts for slot, counts in self._begun.items() if slot > now - SLOTS}
        totals = [*(count for count, _ in begun.values()), success]
        before = next((steps for slot, (_, steps) in begun.items() if slot > now - LATENCY_SLOTS), latencies)
        steps = {step: count - before.get(step, 0) for step, count in sorted(latencies.items())}
        return Recent(
            answered=dict(zip(begun, (b - a for a, b in itertools.pairwise(totals)), strict=True)),
            failed={slot: count for slot, count in self._failed.items() if slot > now - SLOTS},
            latencies={step: count for step, count in steps.items() if count},
            last_ns=self.last_ns,
            last_failure=self._last_failure,
        )
