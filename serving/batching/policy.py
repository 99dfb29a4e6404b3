"""The choice of the next batch, and of its time: a function of the queue and the clock, without side effects.

Beside it, the choice of its limits from measured execution times, so that answers stay within a latency target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Protocol

import numpy as np

FORGETTING = 1 / 512
"""The rate at which the high-water mark of a batch size sinks towards what is measured now."""


@dataclasses.dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of a batch.

    Attributes:
        max_rows: Most rows; a request with more is a batch of its own.
        max_delay_ns: How long a request may wait for others while an instance is idle, in nanoseconds.
        preferred_rows: Numbers of rows that run as soon as they are reached.
    """

    max_rows: int
    max_delay_ns: int
    preferred_rows: frozenset[int] = frozenset()


class Queued(Protocol):
    """A request in the queue."""

    @property
    def rows(self) -> int:
        """Its size along axis 0."""
        ...

    @property
    def key(self) -> Hashable | None:
        """Equal for requests that may share a batch; None for one that runs by itself."""
        ...

    @property
    def arrived_ns(self) -> int:
        """When it entered the queue, in nanoseconds."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """The next step of an idle instance.

    Attributes:
        count: How many requests from the head of the queue it runs; 0 if it waits.
        due_ns: When it stops waiting, if no request arrives before.
    """

    count: int
    due_ns: int


def next_batch(
    queue: Sequence[Queued], limits: BatchLimits, now_ns: int, *, more_expected: bool, others_wait: bool = False
) -> Decision:
    """Decide for an instance that is idle.

    A batch is a run of requests from the head of the queue, so no request overtakes another one. It runs at once if it
    can't grow, either because it is full or because the next request doesn't fit; if it has a preferred size; if nobody
    else is expected; or if its oldest request has waited as long as it may.

    Args:
        queue: Not empty, in the order in which requests are to run.
        limits: Limits of a batch.
        now_ns: The time, on the clock of ``arrived_ns``.
        more_expected: Whether further requests are likely to come soon.
        others_wait: Whether there are requests behind ``queue``, which don't fit.
    """
    key, due = queue[0].key, queue[0].arrived_ns + limits.max_delay_ns
    count = rows = preferred = 0
    for request in queue:
        if count and (key is None or request.key != key or rows + request.rows > limits.max_rows):
            return Decision(count, now_ns)
        count, rows = count + 1, rows + request.rows
        due = min(due, request.arrived_ns + limits.max_delay_ns)
        if rows in limits.preferred_rows:
            preferred = count
    if key is None or rows >= limits.max_rows or others_wait or not more_expected or now_ns >= due:
        return Decision(count, now_ns)
    return Decision(preferred, now_ns if preferred else due)


class LatencyController:
    """Keeps the longest wait that batching itself causes below a target.

    At worst a request arrives just after a batch has begun: it waits for that one to end, then for the delay, then for
    its own. With ``t(b)`` for the time of a batch of ``b`` rows, that is ``2 t(b) + delay``. So the largest ``b`` is
    chosen up to which ``2 t(b) <= target``, at least 1, and what is left of the target, at most the configured delay,
    is the delay. A load beyond what the model can do makes queues that no choice of these two shortens; that is what
    ``timeout_ms`` and ``max_queue_size`` are for.

    ``t(b)`` is a high-water mark: it jumps to each longer time at once and sinks slowly, so that it stands for slow
    executions and not for the mean. An execution also lets the marks of larger batches sink, towards their share of its
    time: otherwise a size that was slow once would never be tried again. Between measured sizes time is taken to grow
    evenly, and beyond the largest one in proportion.
    """

    def __init__(self, target_ns: int, configured: BatchLimits) -> None:
        self._target_ns = target_ns
        self._configured = configured
        self._marks_ns: dict[int, float] = {}

    def observe(self, rows: int, took_ns: int) -> BatchLimits:
        """Take an execution into account; return the limits for the next one.

        Args:
            rows: Its size, at least 1.
            took_ns: How long it took, in nanoseconds.
        """
        for size, mark in self._marks_ns.items():
            share = took_ns * size / rows
            if size >= rows and share < mark:
                self._marks_ns[size] = mark - (mark - share) * FORGETTING
        self._marks_ns[rows] = max(took_ns, self._marks_ns.get(rows, 0.0))
        return self._limits()

    def _limits(self) -> BatchLimits:
        worst_ns = 2 * self._times_ns()
        rows = max(1, int(np.count_nonzero(np.cumprod(worst_ns <= self._target_ns))))
        spare_ns = max(0, self._target_ns - int(worst_ns[rows - 1]))
        return BatchLimits(
            max_rows=rows,
            max_delay_ns=min(self._configured.max_delay_ns, spare_ns),
            preferred_rows=self._configured.preferred_rows,
        )

    def _times_ns(self) -> np.ndarray:
        """Return what batches of 1, 2, ... rows take: float64[max_rows]."""
        sizes = sorted(self._marks_ns)
        rows = np.arange(1, self._configured.max_rows + 1)
        measured = np.interp(rows, sizes, [self._marks_ns[size] for size in sizes])
        return measured * np.maximum(1, rows / sizes[-1])
