"""The choice of the next batch, and of its time: a function of the queue and the clock, without side effects."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Protocol


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
        """The time at which it entered the queue, in nanoseconds."""
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
