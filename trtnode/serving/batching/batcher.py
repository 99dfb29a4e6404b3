"""Dynamic batching: requests that wait at the same time are answered by one execution.

There is no thread of the batcher's own, and none waits here. A request comes in a thread of the pool, which runs the
batch that is due with it, if one is. Else the thread that ends a run, or the pool's clock, lets the next one begin. So
a lone request runs in its own thread, without a hop and without a copy.
"""

from __future__ import annotations

import bisect
import functools
import logging
import operator
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from trtnode.serving.batching.concatenation import BatchMemory, Feeds, split
from trtnode.serving.batching.length_batches import LengthBatches
from trtnode.serving.batching.long_requests import LongRequest, Part, parts_of
from trtnode.serving.batching.policy import BatchLimits, next_batch
from trtnode.serving.batching.queued_request import Result, Then, WaitingRequest, batch_key, check_rows
from trtnode.serving.batching.request_options import RequestOptions
from trtnode.serving.errors import CancelledRequestError, InvalidRequestError, QueueFullError, QueueTimeoutError
from trtnode.serving.executables.interface import Run
from trtnode.serving.protocol.tensors import aligned
from trtnode.serving.schema.model import BatchingConfig
from trtnode.serving.telemetry.request_stats import BatchStats, Durations, Execution, ModelCounts, RejectionReason
from trtnode.serving.threads.request_pool import RequestPool

logger = logging.getLogger(__name__)


class _Work(NamedTuple):
    """A batch that left the queue, and the instance's memory for it."""

    batch: list[WaitingRequest]
    memory: BatchMemory


class DynamicBatcher:
    """Answers the requests of one model in batches. Thread-safe."""

    has_room = False
    """A request waits for others."""

    def __init__(
        self,
        run: Run,
        inputs: Iterable[str],
        config: BatchingConfig,
        instances: int,
        counts: ModelCounts,
        runs_apart: Callable[[Feeds], bool],
        unlike: LengthBatches | None = None,
    ) -> None:
        """Batch requests.

        Args:
            run: Executes the model.
            inputs: Names of the inputs that every request has.
            config: Limits of batches and of the queue.
            instances: Executions at the same time.
            counts: Gets what happens.
            runs_apart: Tells whether a request would make a whole batch run natively, so it is a batch of its own.
            unlike: Joins requests of unlike lengths; None joins those of one shape.
        """
        self._run = run
        self._inputs = tuple(sorted(inputs))
        self._config = config
        self._counts = counts
        self._runs_apart = runs_apart
        self._unlike = unlike
        self._axes: Mapping[str, int] = unlike.lengths.axes if unlike else {}
        self._splits = unlike is not None or config.max_batch_tokens is not None
        self._limits = BatchLimits(
            config.max_batch_size, config.max_queue_delay_us * 1000, frozenset(config.preferred_batch_sizes)
        )
        self._lock = threading.Lock()
        self._queue: list[WaitingRequest] = []  # in the order in which they are to run
        self._instances = instances
        self._idle = [BatchMemory(config.max_batch_size) for _ in range(instances)]
        self._present = 0
        self._expected_concurrency = 0
        self._pool: RequestPool

    def submit(
        self, feeds: Feeds, names: Sequence[str] | None, options: RequestOptions, durations: Durations, then: Then
    ) -> None:
        """Answer one request, together with others where possible.

        Args:
            feeds: Arrays that fit the model.
            names: The outputs to give; None for all.
            options: What the request asks of the queue.
            durations: Gets the time in the queue and of the execution.
            then: Gets the request's rows of each output, which are views of the batch's results. Or it gets
                QueueTimeoutError, CancelledRequestError, or what the execution raised.

        Raises:
            QueueFullError: As many requests wait as may.
            InvalidRequestError: It has no row, more rows than a batch may have, or inputs with different numbers.
        """
        check_rows(self._inputs, feeds)
        self._pool = options.pool
        if self._splits and len(feeds[self._inputs[0]]) > 1 and len(parts := self._parts(feeds, names)) > 1:
            self._begin(LongRequest(names, parts, options, durations, then))
            return
        request = self._request(feeds, names, durations, then)
        if request.rows > self._config.max_batch_size:
            raise InvalidRequestError(
                f"the request has {request.rows} rows, but {self._config.max_batch_size} are the most "
                "(batching.max_batch_size)"
            )
        with self._lock:
            self._check_room()
            self._enter(request, options)
            work = self._next_work()
        if work is not None:
            self._execute(work)
        if request.queued and not options.on_cancel(functools.partial(self._cancel, request)):
            self._cancel(request)

    def _request(self, feeds: Feeds, names: Sequence[str] | None, durations: Durations, then: Then) -> WaitingRequest:
        rows, key = batch_key(self._inputs, feeds, names, self._axes)
        if key is not None and self._runs_apart(feeds):
            key = None
        request = WaitingRequest(feeds, names, rows=rows, key=key, durations=durations, then=then)
        if self._unlike is not None and key is not None:
            request.length = self._unlike.lengths.of(feeds)
            request.bucket = self._unlike.lengths.bucket(request.length)
            request.key = key if request.bucket else None
        return request

    def _parts(self, feeds: Feeds, names: Sequence[str] | None) -> Sequence[Callable[[], Part]]:
        """Return what makes the parts of a request; none for one that can't be taken apart."""
        rows, key = batch_key(self._inputs, feeds, names, self._axes)
        if key is None:
            return ()
        if self._unlike is None:
            return parts_of(feeds, rows, self._config.max_batch_size)
        return self._unlike.parts(feeds, names, self._config.max_batch_size)

    def _begin(self, long: LongRequest) -> None:
        """Put the first parts of a long request into the queue."""
        first = [self._part(long, long.left.popleft()) for _ in range(min(self._instances, len(long.left)))]
        with self._lock:
            self._check_room()
            for part in first:
                self._enter(part, long.options)
        self._look()
        if not long.options.on_cancel(functools.partial(self._cancel_long, long)):
            self._cancel_long(long)

    def _part(self, long: LongRequest, make: Callable[[], Part]) -> WaitingRequest:
        rows, feeds = make()
        durations = Durations(traced=long.durations.traced)
        part = self._request(feeds, long.names, durations, functools.partial(self._end_part, long, rows, durations))
        part.whole = long
        return part

    def _end_part(self, long: LongRequest, rows: np.ndarray, spent: Durations, outcome: Result) -> None:
        """Take the outcome of a part, and put the next one into the queue."""
        with self._lock:
            long.pending -= 1
            if isinstance(outcome, BaseException):
                self._stop(long, outcome)
            else:
                long.keep(rows, outcome, spent)
            make, over = long.left.popleft() if long.left else None, not long.pending
        if make is not None:
            part = self._part(long, make)
            with self._lock:
                if long.error is None:
                    self._enter(part, long.options)
                else:
                    long.pending -= 1
                    over = not long.pending
            self._pool.run(self._look)
        if over:
            long.finish()

    def _stop(self, long: LongRequest, error: BaseException) -> None:
        """Let no further part of a long request run."""
        long.error = long.error or error
        waiting = [one for one in self._queue if one.whole is long]
        for one in waiting:
            self._withdraw(one)
        long.pending -= len(waiting) + len(long.left)
        long.left.clear()

    def _cancel_long(self, long: LongRequest) -> None:
        with self._lock:
            if long.pending and long.error is None:
                self._drop_long(long, CancelledRequestError(), RejectionReason.CANCELLED)
                self._pool.run(self._look)

    def _check_room(self) -> None:
        if len(self._queue) >= self._config.max_queue_size:
            self._counts.add_rejection(RejectionReason.QUEUE_FULL)
            raise QueueFullError(self._config.max_queue_size)

    def _enter(self, request: WaitingRequest, options: RequestOptions) -> None:
        request.arrived_ns = time.perf_counter_ns()
        request.priority = options.level(self._config.priority_levels)
        timeout_ns = options.timeout_ns(self._config.timeout_ms, only_configured=self._config.own_timeout)
        request.deadline_ns = None if timeout_ns is None else request.arrived_ns + timeout_ns
        bisect.insort_right(self._queue, request, key=operator.attrgetter("priority"))
        request.queued = True
        self._counts.enter_queue()
        self._present += 1
        self._expected_concurrency = max(self._expected_concurrency, self._present)

    def _look(self) -> None:
        """Run what is due."""
        with self._lock:
            work = self._next_work()
        if work is not None:
            self._execute(work)

    def _next_work(self) -> _Work | None:
        """Take the batch that is due; where there is none, have somebody look again when one may be."""
        now_ns = time.perf_counter_ns()
        for late in [one for one in self._queue if one.is_late(now_ns)]:
            error = QueueTimeoutError((now_ns - late.arrived_ns) / 1e6)
            if not isinstance(late.whole, LongRequest):
                self._drop(late, error, RejectionReason.TIMEOUT)
            elif late.queued:  # else it left with another part of its request
                self._drop_long(late.whole, error, RejectionReason.TIMEOUT)
        work, times = None, []
        if self._queue and self._idle:
            more_expected = self._present < self._expected_concurrency
            line, limits = self._queue, self._limits
            if self._unlike is not None:
                line, limits = self._unlike.candidates(line, limits.max_rows), self._unlike.limits(limits, line[0])
            others_wait = len(line) < len(self._queue)
            decision = next_batch(line, limits, now_ns, more_expected=more_expected, others_wait=others_wait)
            if decision.count:
                if more_expected and now_ns >= self._queue[0].arrived_ns + self._limits.max_delay_ns:
                    self._expected_concurrency = self._present  # those who were expected did not come
                work = self._take(line[: decision.count])
            else:
                times.append(decision.due_ns)
        times += [one.deadline_ns for one in self._queue if one.deadline_ns is not None]
        self._pool.run_at(min(times, default=None), self._look)
        return work

    def _take(self, batch: list[WaitingRequest]) -> _Work:
        for one in batch:
            one.queued = False
        self._queue = [one for one in self._queue if one.queued]
        memory = self._idle.pop()
        if self._queue and self._idle:
            self._pool.run(self._look)  # there may be a batch for another instance
        return _Work(batch, memory)

    def _execute(self, work: _Work) -> None:
        started_ns = time.perf_counter_ns()
        outcomes = self._outcomes(work.batch, work.memory)
        with self._lock:
            self._idle.append(work.memory)
            self._present -= len(work.batch)
            if (following := self._next_work()) is not None:  # it begins before these answers are written
                self._pool.run(functools.partial(self._execute, following))
        for one, outcome in zip(work.batch, outcomes, strict=True):
            one.durations.queue = started_ns - one.arrived_ns
            one.then(outcome)

    def _outcomes(self, batch: Sequence[WaitingRequest], memory: BatchMemory) -> Sequence[Result]:
        if len(batch) > 1:
            try:
                return self._run_together(batch, memory)
            except Exception as error:  # one of them causes it, and the others must not fail
                logger.info("A batch of %d requests failed, so they run one by one: %s", len(batch), error)
            return [self._run_alone(one, leaving=0) for one in batch]
        return [self._run_alone(one, leaving=1) for one in batch]

    def _run_together(self, batch: Sequence[WaitingRequest], memory: BatchMemory) -> Sequence[Mapping[str, np.ndarray]]:
        key, rows = batch[0].key, [one.rows for one in batch]
        assert key is not None, "a request without a key is a batch of its own"
        self._counts.begin_execution(len(batch))
        execution = _execution(batch)
        began = time.perf_counter_ns()
        requests = [one.feeds for one in batch] if self._unlike is None else self._unlike.join(batch)
        feeds = memory.join((key, max(one.bucket or 0 for one in batch)), requests)
        joined = time.perf_counter_ns()
        results = self._run(feeds, batch[0].names, execution.stages if execution else None)
        ran = time.perf_counter_ns()
        parts = split(results, rows)
        if self._unlike is not None:
            parts = [self._unlike.lengths.cut(part, one.length or 0) for part, one in zip(parts, batch, strict=True)]
        spent = BatchStats(1, joined - began, ran - joined, time.perf_counter_ns() - ran)
        self._counts.add_batch(sum(rows), spent)
        for one in batch:
            one.durations.compute_input += spent.compute_input
            one.durations.compute_infer = spent.compute_infer
        _end(execution, batch)
        return parts

    def _run_alone(self, request: WaitingRequest, *, leaving: int) -> Result:
        self._counts.begin_execution(leaving)
        execution = _execution([request])
        began = time.perf_counter_ns()
        try:
            feeds = {name: aligned(array) for name, array in request.feeds.items()}
            results = self._run(feeds, request.names, execution.stages if execution else None)
        except BaseException as error:
            return error
        request.durations.compute_infer = time.perf_counter_ns() - began
        _end(execution, [request])
        self._counts.add_batch(request.rows, BatchStats(1, compute_infer=request.durations.compute_infer))
        return results

    def _cancel(self, request: WaitingRequest) -> None:
        """Take a request out of the queue whose client has left; one that runs already goes on."""
        with self._lock:
            if request.queued:
                self._drop(request, CancelledRequestError(), RejectionReason.CANCELLED)
                self._pool.run(self._look)  # the others may have waited for it

    def _drop(self, request: WaitingRequest, error: Exception, reason: RejectionReason) -> None:
        self._withdraw(request)
        self._counts.add_rejection(reason)
        self._pool.run(functools.partial(request.then, error))

    def _drop_long(self, long: LongRequest, error: Exception, reason: RejectionReason) -> None:
        self._stop(long, error)
        self._counts.add_rejection(reason)
        if not long.pending:
            self._pool.run(long.finish)

    def _withdraw(self, request: WaitingRequest) -> None:
        self._queue.remove(request)
        request.queued = False
        self._present -= 1
        self._counts.leave_queue()


def _execution(batch: Sequence[WaitingRequest]) -> Execution | None:
    """Return what a trace needs of an execution that begins; None if no request of it is traced."""
    traced = any(one.durations.traced for one in batch)
    return Execution(rows=sum(one.rows for one in batch)) if traced else None


def _end(execution: Execution | None, batch: Sequence[WaitingRequest]) -> None:
    if execution is not None:
        execution.ended_ns = time.perf_counter_ns()
        for one in batch:
            one.durations.execution = execution
