"""Executions of padded requests: measured times by bucket and rows, and the requests that they let run together."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import time
from collections.abc import Callable, Sequence

import numpy as np

from trtnode.engines.backends.stage_times import StageTime
from trtnode.engines.errors import ExecutionError, MemoryLimitError
from trtnode.serving.batching.concatenation import Feeds
from trtnode.serving.batching.lengths import Lengths
from trtnode.serving.batching.long_requests import Part, rows_by_size
from trtnode.serving.batching.policy import BatchLimits
from trtnode.serving.batching.queued_request import WaitingRequest
from trtnode.serving.errors import InvalidRequestError
from trtnode.serving.executables.interface import Run
from trtnode.serving.telemetry.request_stats import ModelCounts

FORGETTING = 256
"""The part by which the time of an execution that was not worth it sinks, so that it is tried again some day."""


NEIGHBOURS = 2
"""Buckets on each side of that of a request whose requests may run with it."""


class BucketTimes:
    """Times of executions by bucket and rows. A shorter one counts at once, a longer one by and by."""

    def __init__(self) -> None:
        self._ns: dict[tuple[int, int], int] = {}

    def add(self, bucket: int, rows: int, took_ns: int) -> None:
        """Take an execution into account."""
        known = self._ns.get((bucket, rows), took_ns)
        self._ns[bucket, rows] = took_ns if took_ns < known else known + (took_ns - known) // 8

    def pays(self, together: tuple[int, int], *apart: tuple[int, int]) -> bool:
        """Return whether an execution takes no longer than others one by one; True where one isn't measured."""
        whole, parts = self._estimate(*together), [self._estimate(*one) for one in apart]
        if whole is None or None in parts or whole <= sum(filter(None, parts)):
            return True
        self._ns[together] = whole - whole // FORGETTING
        return False

    def _estimate(self, bucket: int, rows: int) -> int | None:
        """Return the time of an execution: as measured, else between those of the powers of two around its rows."""
        if (known := self._ns.get((bucket, rows))) is not None:
            return known
        fewer = 1 << rows.bit_length() - 1
        low, high = self._ns.get((bucket, fewer)), self._ns.get((bucket, 2 * fewer))
        return None if low is None or high is None else low + (high - low) * (rows - fewer) // fewer


class LengthBatches:
    """Pads requests to the buckets of a model, and chooses those that run together. Thread-safe.

    Attributes:
        lengths: Of the model.
    """

    def __init__(self, lengths: Lengths, counts: ModelCounts, max_tokens: int | None = None) -> None:
        """Pad requests.

        Args:
            lengths: Of the model.
            counts: Gets executions and padding.
            max_tokens: Most rows times length of an execution of several rows; None for no limit.
        """
        self.lengths = lengths
        self._max_tokens = max_tokens
        self._counts = counts
        self._times = BucketTimes()
        self._places = {bucket: place for place, bucket in enumerate(lengths.buckets)}

    def padding(self, run: Run, *, counted: bool = True) -> Run:
        """Return a run that pads requests, and cuts their results back; that of a warm-up isn't counted."""
        lengths = self.lengths

        def padded(feeds: Feeds, names: Sequence[str] | None, stages: list[StageTime] | None) -> Feeds:
            length = lengths.of(feeds)
            bucket = lengths.bucket(length)
            if bucket is None or length is None:
                return self._run_as_it_is(run, feeds, names, stages)
            whole = feeds if length == bucket else lengths.padded(feeds, bucket)
            rows = max(len(whole[name]) for name in lengths.axes)
            began = time.perf_counter_ns()
            results = run(whole, names, stages)
            self._times.add(bucket, rows, time.perf_counter_ns() - began)
            added = lengths.elements(whole) - lengths.elements(feeds)
            self._counts.add_bucket(bucket, rows, added, executions=int(counted))
            return results if length == bucket else lengths.cut(results, length)

        return padded

    def _run_as_it_is(
        self, run: Run, feeds: Feeds, names: Sequence[str] | None, stages: list[StageTime] | None
    ) -> Feeds:
        """Run a request without padding.

        Raises:
            InvalidRequestError: It is longer than all buckets, and the model can't take it.
        """
        try:
            return run(feeds, names, stages)
        except MemoryLimitError:
            raise
        except ExecutionError as error:
            length, longest = self.lengths.of(feeds), self.lengths.buckets[-1]
            if length is None or length <= longest:
                raise
            problem = f"the request has length {length}, beyond the last of the model's buckets ({longest})"
            raise InvalidRequestError(f"{problem}, and the model fails on it: {error}") from error

    def join(self, batch: Sequence[WaitingRequest]) -> list[Feeds]:
        """Return the inputs of requests at one length."""
        whole = max(one.bucket or 0 for one in batch)
        padded = [one.feeds if one.length == whole else self.lengths.padded(one.feeds, whole) for one in batch]
        before = (self.lengths.elements(one.feeds) for one in batch)
        self._counts.add_padding(sum(map(self.lengths.elements, padded)) - sum(before))
        return padded

    def most_rows(self, size: int, max_rows: int) -> int:
        """Return how many rows of a length may run together, if a batch may have ``max_rows``."""
        return max_rows if self._max_tokens is None else max(1, min(max_rows, self._max_tokens // size))

    def limits(self, limits: BatchLimits, head: WaitingRequest) -> BatchLimits:
        """Return the limits of a batch that begins with a request."""
        if self._max_tokens is None or head.bucket is None:
            return limits
        return dataclasses.replace(limits, max_rows=self.most_rows(head.bucket, limits.max_rows))

    def parts(self, feeds: Feeds, names: Sequence[str] | None, max_rows: int) -> list[Callable[[], Part]]:
        """Return what makes each part of a request: rows of near lengths, no more than may run together.

        Args:
            feeds: A request whose inputs have equal numbers of rows.
            names: The outputs that it asks for; None for all.
            max_rows: Rows that a batch may have.
        """
        length, rows = self.lengths.of(feeds), len(next(iter(feeds.values())))
        if not length:
            return []
        found = self.lengths.of_rows(feeds, names)
        lengths = np.full(rows, length) if found is None else found
        padded = np.array((*self.lengths.buckets, 0))[np.searchsorted(self.lengths.buckets, lengths)]
        most_rows = functools.partial(self.most_rows, max_rows=max_rows)
        parts = rows_by_size(np.maximum(padded, lengths), most_rows, self._times.pays)
        return [functools.partial(self._part, feeds, chosen, size) for chosen, size in parts]

    def _part(self, feeds: Feeds, rows: np.ndarray, size: int) -> Part:
        return Part(rows, self.lengths.of_part(feeds, rows, size))

    def candidates(self, queue: Sequence[WaitingRequest], max_rows: int) -> list[WaitingRequest]:
        """Return the batch candidates: the head of a queue, and the requests to run with it.

        They are those of its bucket, then those of its neighbours, as far as each makes the execution longer by no
        more than it would take by itself. So a request may overtake others of its priority, but none of a higher one.
        The head always runs next, so none waits for ever.
        """
        head = queue[0]
        chosen, rows, bucket = [head], head.rows, head.bucket
        if bucket is None:
            return chosen
        for _, group in itertools.groupby(queue, key=operator.attrgetter("priority")):
            level = [one for one in group if one is not head]
            before = len(chosen)
            for one in sorted(level, key=lambda one: self._distance(head, one)):
                if one.bucket is None or one.key != head.key or self._distance(head, one) > NEIGHBOURS:
                    continue
                together = max(bucket, one.bucket), rows + one.rows
                most = self.most_rows(together[0], max_rows)
                if together[1] <= most and self._times.pays(together, (bucket, rows), (one.bucket, one.rows)):
                    chosen.append(one)
                    bucket, rows = together
            if len(chosen) - before < len(level):
                break
        return chosen

    def _distance(self, head: WaitingRequest, one: WaitingRequest) -> int:
        if head.bucket is None or one.bucket is None:
            return len(self._places)
        return abs(self._places[head.bucket] - self._places[one.bucket])
