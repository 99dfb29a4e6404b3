"""Requests that take several executions: their rows in parts, and the results of those in the order of the rows.

One part an instance is in the queue or runs. The next one enters behind whoever waits then, so a long request takes its
turns like a caller that sends its rows one batch after the other.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from trtnode.serving.batching.concatenation import Feeds
from trtnode.serving.batching.queued_request import Result, Then
from trtnode.serving.batching.request_options import RequestOptions
from trtnode.serving.errors import InvalidOutputError
from trtnode.serving.telemetry.request_stats import Durations, Execution


class Part(NamedTuple):
    """Rows that run together.

    Attributes:
        rows: Their places in the request.
        feeds: Their inputs.
    """

    rows: np.ndarray
    feeds: Feeds


class LongRequest:
    """A request in parts. Every attribute changes under the batcher's lock alone.

    Attributes:
        names: The outputs that it asks for; None for all.
        options: What it asks of the queue.
        durations: Gets the sums of its parts' times.
        left: Makes each part that isn't in the queue yet.
        pending: Parts that have not ended.
        error: The first error of a part; None without one.
    """

    def __init__(
        self,
        names: Sequence[str] | None,
        parts: Sequence[Callable[[], Part]],
        options: RequestOptions,
        durations: Durations,
        then: Then,
    ) -> None:
        self.names = names
        self.options = options
        self.durations = durations
        self.left = collections.deque(parts)
        self.pending = len(parts)
        self.error: BaseException | None = None
        self._then = then
        self._done: list[tuple[np.ndarray, Mapping[str, np.ndarray]]] = []

    def keep(self, rows: np.ndarray, results: Mapping[str, np.ndarray], spent: Durations) -> None:
        """Take the results of a part."""
        self._done.append((rows, results))
        whole = self.durations
        whole.queue += spent.queue
        whole.compute_input += spent.compute_input
        whole.compute_infer += spent.compute_infer
        if (last := spent.execution) is not None:
            first = whole.execution or Execution(began_ns=last.began_ns)
            rows_run, stages = first.rows + len(rows), [*first.stages, *last.stages]
            whole.execution = dataclasses.replace(first, rows=rows_run, ended_ns=last.ended_ns, stages=stages)

    def finish(self) -> None:
        """Give the results, or the error."""
        self._then(self.error or self._joined())

    def _joined(self) -> Result:
        places = np.argsort(np.concatenate([rows for rows, _ in self._done]))
        joined = {}
        for name in self._done[0][1]:
            shapes = {(results[name].shape[:1] == rows.shape, *results[name].shape[1:]) for rows, results in self._done}
            if len(shapes) > 1 or not next(iter(shapes))[0]:
                return InvalidOutputError(f"output {name!r} has not one row of one shape for each row of the request")
            joined[name] = np.concatenate([results[name] for _, results in self._done])[places]
        return joined


def parts_of(feeds: Feeds, rows: int, most: int) -> list[Callable[[], Part]]:
    """Return what makes each part of a request of equal rows."""
    order = np.arange(rows)
    starts = range(0, rows, most)
    return [functools.partial(_part_between, feeds, order[start : start + most]) for start in starts]


def _part_between(feeds: Feeds, rows: np.ndarray) -> Part:
    return Part(rows, {name: array[rows[0] : rows[-1] + 1] for name, array in feeds.items()})


def rows_by_size(
    sizes: np.ndarray, most_rows: Callable[[int], int], pays: Callable[..., bool]
) -> list[tuple[np.ndarray, int]]:
    """Return the rows of each part, and the size that they are padded to, the largest first.

    A part ends where it is full, or before a row of half its size, if executions have measured faster that way.

    Args:
        sizes: The size of each row, once it is padded.
        most_rows: Returns how many rows of a size may run together.
        pays: See ``BucketTimes``.
    """
    order, parts = np.argsort(-sizes, kind="stable"), []
    while len(order):
        size = int(sizes[order[0]])
        rows = order[: most_rows(size)]
        near = int((2 * sizes[rows] > size).sum())
        if near < len(rows):
            far = int(sizes[rows[near]]), len(rows) - near
            rows = rows if pays((size, len(rows)), (size, near), far) else rows[:near]
        parts.append((rows, size))
        order = order[len(rows) :]
    return parts
