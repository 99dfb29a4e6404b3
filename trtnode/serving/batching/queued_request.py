"""A request that waits for its batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from trtnode.serving.batching.concatenation import Feeds
from trtnode.serving.errors import InvalidRequestError
from trtnode.serving.telemetry.request_stats import Durations

Result = Mapping[str, np.ndarray] | BaseException
"""Results by name, or the error of a request."""

Then = Callable[[Result], None]
"""Takes the outcome of a request, in whatever thread it is known, and never raises."""


class WaitingRequest:
    """One request, from the queue to its outcome. Every attribute changes under the batcher's lock alone.

    Attributes:
        feeds: Its inputs.
        names: The outputs that it asks for; None for all.
        rows: Its size along axis 0.
        length: Its length; None for a model without lengths.
        bucket: The length that it is padded to; None if it isn't.
        key: Equal for requests that may share a batch; None for one that runs by itself.
        priority: 1 runs before 2.
        arrived_ns: When it entered the queue.
        deadline_ns: When it leaves the queue unanswered; None for never.
        durations: Gets the time in the queue and of the execution.
        queued: Whether it is still in the queue.
        then: Gets its results or its error.
        whole: The long request that it is a part of; None for a whole one.
    """

    __slots__ = (
        "arrived_ns", "bucket", "deadline_ns", "durations", "feeds", "key", "length", "names", "priority", "queued",
        "rows", "then", "whole",
    )  # fmt: skip

    def __init__(
        self,
        feeds: Feeds,
        names: Sequence[str] | None,
        *,
        rows: int,
        key: Hashable | None,
        durations: Durations,
        then: Then,
    ) -> None:
        self.feeds = feeds
        self.names = names
        self.rows = rows
        self.key = key
        self.length: int | None = None
        self.bucket: int | None = None
        self.priority = 1
        self.arrived_ns = 0
        self.deadline_ns: int | None = None
        self.durations = durations
        self.queued = False
        self.then = then
        self.whole: object = None

    def is_late(self, now_ns: int) -> bool:
        """Return whether it has waited as long as it may."""
        return self.deadline_ns is not None and now_ns >= self.deadline_ns


def check_rows(inputs: Sequence[str], feeds: Feeds) -> None:
    """Refuse a request that is no batch, even of one.

    Args:
        inputs: Names of the inputs that every request has; axis 0 of each is that of the batch.
        feeds: The request's inputs.

    Raises:
        InvalidRequestError: It has no row, or inputs with different numbers of rows.
    """
    rows = {name: len(feeds[name]) for name in inputs}
    if len(set(rows.values())) > 1:
        listed = ", ".join(f"{name!r} has {count}" for name, count in rows.items())
        raise InvalidRequestError(f"the inputs of a request should have the same number of rows (axis 0), but {listed}")
    if 0 in rows.values():
        raise InvalidRequestError("the request has no row (axis 0 is 0), so there is nothing to compute")


def batch_key(
    inputs: Sequence[str], feeds: Feeds, names: Sequence[str] | None, lengths: Mapping[str, int]
) -> tuple[int, Hashable | None]:
    """Return how many rows a request has, and the kind of requests that it may share a batch with.

    Args:
        inputs: Names of the inputs that every request has; one that brings others too runs by itself.
        feeds: The request's inputs.
        names: The outputs that it asks for; None for all.
        lengths: Axes that are padded to one size, by input.
    """
    sizes = {len(array) if array.ndim else 0 for array in feeds.values()}
    rows = max(sizes, default=0)
    if len(sizes) > 1 or not rows or len(feeds) != len(inputs):
        return rows, None
    shapes = tuple(_without(lengths.get(name, 0), feeds[name].shape)[1:] for name in inputs)
    return rows, (shapes, None if names is None else tuple(names))


def _without(axis: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape with one axis that doesn't count."""
    return (*shape[:axis], -1, *shape[axis + 1 :]) if axis else shape
