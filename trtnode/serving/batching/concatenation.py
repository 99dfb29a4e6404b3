"""Joins requests to one batch along axis 0, and cuts its results apart again."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from trtnode.serving.errors import InvalidOutputError

KEPT_KEYS = 4
"""Kinds of requests whose memory is kept; that of the kind that was new longest ago goes first."""

Feeds = Mapping[str, np.ndarray]


class BatchMemory:
    """Memory for the inputs of one batch at a time, allocated once for each kind of request."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._buffers: dict[Hashable, dict[str, np.ndarray]] = {}

    def join(self, key: Hashable, requests: Sequence[Feeds]) -> dict[str, np.ndarray]:
        """Return arrays that hold the rows of all requests, valid until the next call.

        Args:
            key: The kind of the requests: equal for equal names, types and shapes beyond axis 0.
            requests: Together at most ``max_rows`` rows.
        """
        buffers = self._buffers.get(key)
        if buffers is None:
            buffers = self._allocate(key, requests[0])
        joined = {}
        for name in requests[0]:
            arrays = [feeds[name] for feeds in requests]
            buffer = buffers.get(name)
            rows = sum(map(len, arrays))
            joined[name] = np.concatenate(arrays, out=None if buffer is None else buffer[:rows])
        return joined

    def _allocate(self, key: Hashable, like: Feeds) -> dict[str, np.ndarray]:
        if len(self._buffers) == KEPT_KEYS:
            del self._buffers[next(iter(self._buffers))]
        self._buffers[key] = {
            name: np.empty((self._max_rows, *array.shape[1:]), array.dtype)
            for name, array in like.items()
            if array.dtype != np.object_  # kept texts would stay in memory until another batch overwrites them
        }
        return self._buffers[key]


def split(results: Feeds, rows: Sequence[int]) -> list[dict[str, np.ndarray]]:
    """Return each request's part of a batch's results, as views.

    Args:
        results: Arrays with one row for each row of the batch.
        rows: Rows of each request, in the order of the batch.

    Raises:
        InvalidOutputError: A result has another number of rows.
    """
    total = sum(rows)
    for name, array in results.items():
        if array.ndim == 0 or len(array) != total:
            raise InvalidOutputError(f"output {name!r} has shape {list(array.shape)} for a batch of {total} rows")
    parts = []
    start = 0
    for count in rows:
        parts.append({name: array[start : start + count] for name, array in results.items()})
        start += count
    return parts
