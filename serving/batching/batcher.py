"""Dynamic batching: requests that wait at the same time are answered by one execution.

There is no thread of the batcher's own. Each request comes in a thread that waits for its answer anyway; whichever of
them finds that a batch with its own request is due runs that batch for all. So a lone request runs in its own thread,
without a hop and without a copy.
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

from serving.batching.concatenation import BatchMemory, Feeds, split
from serving.batching.latency_controller import LatencyController
from serving.batching.policy import BatchLimits, next_batch
from serving.batching.queued_request import WaitingRequest, batch_key, check_rows
from serving.batching.request_options import RequestOptions
from serving.errors import CancelledRequestError, InvalidRequestError, QueueFullError, QueueTimeoutError
from serving.executables.interface import Choose
from serving.schema.model import BatchingConfig
from serving.telemetry.request_stats import BatchStats, Durations, Execution, ModelCounts, RejectionReason

logger = logging.getLogger(__name__)


class _Work(NamedTuple):
    """A batch that left the queue, and the instance's memory for it."""

    batch: list[WaitingRequest]
    memory: BatchMemory


class DynamicBatcher:
    """Answers the requests of one model in batches. Thread-safe."""

    def __init__(
        self,
        choose: Choose,
        inputs: Iterable[str],
        config: BatchingConfig,
        instances: int,
        counts: ModelCounts,
        runs_apart: Callable[[Feeds], bool],
    ) -> None:
        """Batch requests.

        Args:
            choose: Returns the run of the next execution.
            inputs: Names of the inputs that every request has.
            config: Limits of batches and of the queue.
            instances: Executions at the same time.
            counts: Gets what happens.
            runs_apart: Tells whether a request would make a whole batch run natively, so it is a batch of its own.
        """
        self._choose = choose
        self._inputs = tuple(sorted(inputs))
        self._config = config
        self._counts = counts
        self._runs_apart = runs_apart
        self._limits = BatchLimits(
            config.max_batch_size, config.max_queue_delay_us * 1000, frozenset(config.preferred_batch_sizes)
        )
        self._configured = self._limits
        self._controllers: dict[str, LatencyController] = {}
        self._lock = threading.Lock()
        self._queue: list[WaitingRequest] = []  # in the order in which they are to run
        self._idle = [BatchMemory(config.max_batch_size) for _ in range(instances)]
        self._present = 0
        self._expected_concurrency = 0

    def infer(
        self, feeds: Feeds, names: Sequence[str] | None, options: RequestOptions, durations: Durations
    ) -> Mapping[str, np.ndarray]:
        """Answer one request, together with others where possible.

        Args:
            feeds: Arrays that fit the model.
            names: The outputs to give; None for all.
            options: What the request asks of the queue.
            durations: Gets the time in the queue and of the execution.

        Returns:
            The request's rows of each output. They are views of the batch's results.

        Raises:
            QueueFullError: As many requests wait as may.
            QueueTimeoutError: It waited longer than it may.
            CancelledRequestError: Its client left while it waited.
            InvalidRequestError: It has no row, more rows than a batch may have, or inputs with different numbers.
            Exception: What the execution raised.
        """
        check_rows(self._inputs, feeds)
        rows, key = batch_key(self._inputs, feeds, names)
        if rows > self._config.max_batch_size:
            raise InvalidRequestError(
                f"the request has {rows} rows, but {self._config.max_batch_size} are the most (batching.max_batch_size)"
            )
        if key is not None and self._runs_apart(feeds):
            key = None
        request = WaitingRequest(feeds, names, rows=rows, key=key, durations=durations)
        with self._lock:
            self._enter(request, options)
            work, until_ns = self._next_step(request)
        try:
            if work is not None:
                self._execute(work)
            else:
                self._wait(request, until_ns, options)
        finally:
            with self._lock:
                self._present -= 1
        if isinstance(request.outcome, Exception):
            raise request.outcome
        assert request.outcome is not None
        return request.outcome

    def _enter(self, request: WaitingRequest, options: RequestOptions) -> None:
        if len(self._queue) >= self._config.max_queue_size:
            self._counts.add_rejection(RejectionReason.QUEUE_FULL)
            raise QueueFullError(self._config.max_queue_size)
        request.arrived_ns = time.perf_counter_ns()
        request.priority = options.level(self._config.priority_levels)
        timeout_ns = options.timeout_ns(self._config.timeout_ms)
        request.deadline_ns = None if timeout_ns is None else request.arrived_ns + timeout_ns
        bisect.insort_right(self._queue, request, key=operator.attrgetter("priority"))
        request.queued = True
        self._counts.enter_queue()
        self._present += 1
        self._expected_concurrency = max(self._expected_concurrency, self._present)

    def _wait(self, request: WaitingRequest, until_ns: int | None, options: RequestOptions) -> None:
        """Sleep, and run what is due then, until the request has an outcome."""
        if not options.on_cancel(functools.partial(self._cancel, request)):
            self._cancel(request)
        while request.outcome is None:
            with options.waiting:
                request.sleep(until_ns)
            if request.outcome is None:
                with self._lock:
                    work, until_ns = self._next_step(request)
                if work is not None:
                    self._execute(work)

    def _next_step(self, request: WaitingRequest) -> tuple[_Work | None, int | None]:
        """Return what the request's thread runs now; or None, and until when it sleeps, unless somebody wakes it."""
        if not request.queued:
            return None, None
        now_ns = time.perf_counter_ns()
        if request.is_late(now_ns):
            self._expire(request)
            return None, None
        if not self._idle:
            return None, request.deadline_ns
        for late in [one for one in self._queue if one.is_late(now_ns)]:
            self._expire(late)
        more_expected = self._present < self._expected_concurrency
        decision = next_batch(self._queue, self._limits, now_ns, more_expected=more_expected)
        head, batch = self._queue[0], self._queue[: decision.count]
        if request in batch:
            if more_expected and now_ns >= head.arrived_ns + self._limits.max_delay_ns:
                self._expected_concurrency = self._present  # those who were expected did not come
            return self._take(batch), None
        if batch:
            head.wake()
        elif request is head:
            return None, decision.due_ns if request.deadline_ns is None else min(decision.due_ns, request.deadline_ns)
        return None, request.deadline_ns

    def _take(self, batch: list[WaitingRequest]) -> _Work:
        del self._queue[: len(batch)]
        for one in batch:
            one.queued = False
        memory = self._idle.pop()
        if self._idle:
            self._wake_head()
        return _Work(batch, memory)

    def _execute(self, work: _Work) -> None:
        started_ns = time.perf_counter_ns()
        outcomes = self._outcomes(work.batch, work.memory)
        with self._lock:
            rows = sum(one.rows for one in work.batch)
            if self._config.adaptive and rows:
                controller = self._controller(work.batch[0].durations.variant)
                self._limits = controller.observe(rows, time.perf_counter_ns() - started_ns)
            self._idle.append(work.memory)
            self._wake_head()
        for one, outcome in zip(work.batch, outcomes, strict=True):
            one.durations.queue = started_ns - one.arrived_ns
            one.outcome = outcome
            one.wake()

    def _controller(self, variant: str) -> LatencyController:
        """Return the controller of a variant: each learns its own times."""
        if variant not in self._controllers:
            assert self._config.latency_target_ms is not None, "the configuration was checked"
            target_ns = int(self._config.latency_target_ms * 1e6)
            self._controllers[variant] = LatencyController(target_ns, self._configured)
        return self._controllers[variant]

    def _outcomes(
        self, batch: Sequence[WaitingRequest], memory: BatchMemory
    ) -> Sequence[Mapping[str, np.ndarray] | Exception]:
        if len(batch) > 1:
            try:
                return self._run_together(batch, memory)
            except Exception as error:  # one of them is to blame, and the others must not suffer
                logger.info("A batch of %d requests failed, so they run one by one: %s", len(batch), error)
            return [self._run_alone(one, leaving=0) for one in batch]
        return [self._run_alone(one, leaving=1) for one in batch]

    def _run_together(self, batch: Sequence[WaitingRequest], memory: BatchMemory) -> Sequence[Mapping[str, np.ndarray]]:
        key, rows = batch[0].key, [one.rows for one in batch]
        assert key is not None, "a request without a key is a batch of its own"
        self._counts.begin_execution(len(batch))
        execution = _execution(batch)
        began = time.perf_counter_ns()
        feeds = memory.join(key, [one.feeds for one in batch])
        joined = time.perf_counter_ns()
        run, variant = self._choose()
        results = run(feeds, batch[0].names, execution.stages if execution else None)
        ran = time.perf_counter_ns()
        parts = split(results, rows)
        spent = BatchStats(1, joined - began, ran - joined, time.perf_counter_ns() - ran)
        self._counts.add_batch(sum(rows), spent)
        for one in batch:
            one.durations.compute_input += spent.compute_input
            one.durations.compute_infer = spent.compute_infer
            one.durations.variant = variant
        _end(execution, batch)
        return parts

    def _run_alone(self, request: WaitingRequest, *, leaving: int) -> Mapping[str, np.ndarray] | Exception:
        self._counts.begin_execution(leaving)
        execution = _execution([request])
        began = time.perf_counter_ns()
        run, request.durations.variant = self._choose()
        try:
            results = run(request.feeds, request.names, execution.stages if execution else None)
        except Exception as error:
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

    def _expire(self, request: WaitingRequest) -> None:
        waited_ms = (time.perf_counter_ns() - request.arrived_ns) / 1e6
        self._drop(request, QueueTimeoutError(waited_ms), RejectionReason.TIMEOUT)

    def _drop(self, request: WaitingRequest, error: Exception, reason: RejectionReason) -> None:
        self._queue.remove(request)
        request.queued, request.outcome = False, error
        self._counts.leave_queue()
        self._counts.add_rejection(reason)
        request.wake()
        self._wake_head()

    def _wake_head(self) -> None:
        if self._queue:
            self._queue[0].wake()


def _execution(batch: Sequence[WaitingRequest]) -> Execution | None:
    """Return what a trace needs of an execution that begins; None if no request of it is traced."""
    traced = any(one.durations.traced for one in batch)
    return Execution(rows=sum(one.rows for one in batch)) if traced else None


def _end(execution: Execution | None, batch: Sequence[WaitingRequest]) -> None:
    if execution is not None:
        execution.ended_ns = time.perf_counter_ns()
        for one in batch:
            one.durations.execution = execution
