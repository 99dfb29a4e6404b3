"""Requests of the last hour, by slots of ten seconds, for the status page."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping

from trtnode.serving.telemetry.latency_steps import added, quantile_us

SLOT_S = 10
SLOT_NS = SLOT_S * 1_000_000_000
SLOTS = 360
"""An hour."""

RECENT_SLOTS = 3
"""The number of slots whose rate and latencies are shown, with the one that is not over yet."""

MOST_DETAIL = 300
"""Characters that are kept of an error's sentence."""


def slot_at(time_ns: int) -> int:
    """Return the slot of a time of ``time.perf_counter_ns``. All processes of a machine number slots alike."""
    return time_ns // SLOT_NS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counts of a model version since its start, as of one moment.

    Attributes:
        answered: Answered requests.
        failed: Requests that got an error.
        waited_ns: Time that answered requests waited for an instance.
        ran_ns: Time of executions.
        latencies: Answered requests by step, see ``latency_bound_us``.
    """

    answered: int = 0
    failed: int = 0
    waited_ns: int = 0
    ran_ns: int = 0
    latencies: Mapping[int, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Requests to a model version that ended in a slot.

    Attributes:
        number: See ``slot_at``.
        answered: Number of answered requests.
        failed: Number of those that got an error.
        p50_us: Time in the server that half of the answered ones kept within, in microseconds; 0 if there are none.
        p99_us: The same of 99 of 100.
        waited_ns: Time that the answered ones waited for an instance.
        cpu_ns: The version's share of the process's time on processors.
    """

    number: int
    answered: int
    failed: int
    p50_us: float
    p99_us: float
    waited_ns: int
    cpu_ns: int


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
    """Requests of the last hour, as of one moment.

    Attributes:
        slots: Those in which requests ended, in order; the last one may not be over yet.
        latencies: Answered requests of the last ``RECENT_SLOTS`` by step, see ``latency_bound_us``.
        last_ns: When the last one ended, by ``time.perf_counter_ns``; 0 if there was none.
        last_failure: The last one that got an error, if any.
    """

    slots: tuple[Slot, ...]
    latencies: Mapping[int, int]
    last_ns: int
    last_failure: LastFailure | None


class RecentRequests:
    """Remembers what a version did in each slot of an hour. The caller holds a lock.

    A slot costs requests nothing: it is the difference of the counts at its two ends.

    Attributes:
        last_ns: When the last request ended, by ``time.perf_counter_ns``; 0 if there was none.
    """

    def __init__(self) -> None:
        self.last_ns = 0
        self._slots: deque[Slot] = deque(maxlen=SLOTS)
        self._begins = deque([Totals()], maxlen=RECENT_SLOTS)
        self._last_failure: LastFailure | None = None

    def ran_ns(self, now: Totals) -> int:
        """Return the time of executions in the slot that is not over yet."""
        return now.ran_ns - self._begins[-1].ran_ns

    def end_slot(self, number: int, now: Totals, cpu_ns: int) -> None:
        """Keep what happened in a slot that is over, and begin the next."""
        self._slots.append(self._slot(number, now, cpu_ns))
        self._begins.append(now)

    def add_failure(self, ended_ns: int, reason: str, detail: str) -> None:
        """Keep the sentence of a request that got an error."""
        self.last_ns = ended_ns
        self._last_failure = LastFailure(reason=reason, detail=detail[:MOST_DETAIL], ended_ns=ended_ns)

    def as_of(self, number: int, now: Totals) -> Recent:
        """Return what is known in a slot that is not over yet."""
        slots = (*self._slots, self._slot(number, now, 0))
        return Recent(
            slots=tuple(one for one in slots if one.answered or one.failed),
            latencies=added(now.latencies, self._begins[0].latencies),
            last_ns=self.last_ns,
            last_failure=self._last_failure,
        )

    def _slot(self, number: int, now: Totals, cpu_ns: int) -> Slot:
        begin = self._begins[-1]
        latencies = added(now.latencies, begin.latencies)
        return Slot(
            number=number,
            answered=now.answered - begin.answered,
            failed=now.failed - begin.failed,
            p50_us=quantile_us(latencies, 0.5),
            p99_us=quantile_us(latencies, 0.99),
            waited_ns=now.waited_ns - begin.waited_ns,
            cpu_ns=cpu_ns,
        )
