"""The instances of one model: how many requests run at the same time where none are joined to batches."""

from __future__ import annotations

import collections
import functools
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from trtnode.serving.batching.concatenation import Feeds
from trtnode.serving.batching.queued_request import Result, Then
from trtnode.serving.batching.request_options import RequestOptions
from trtnode.serving.errors import CancelledRequestError
from trtnode.serving.executables.interface import Run
from trtnode.serving.telemetry.request_stats import Durations, Execution, ModelCounts, RejectionReason
from trtnode.serving.threads.request_pool import RequestPool


class _Request(NamedTuple):
    feeds: Feeds
    names: Sequence[str] | None
    pool: RequestPool
    durations: Durations
    then: Then
    arrived_ns: int


class InstancePool:
    """Runs each request of a model by itself, when an instance is free. Thread-safe."""

    def __init__(self, run: Run, instances: int, counts: ModelCounts) -> None:
        self._run = run
        self._counts = counts
        self._free = instances
        self._lock = threading.Lock()
        self._queue: collections.deque[_Request] = collections.deque()

    @property
    def has_room(self) -> bool:
        """True if a request needs not wait for an instance."""
        return self._free > 0

    def submit(
        self, feeds: Feeds, names: Sequence[str] | None, options: RequestOptions, durations: Durations, then: Then
    ) -> None:
        """Run the model once: in this thread if an instance is free, else when one is.

        Args:
            feeds: Arrays that fit the model.
            names: The outputs to give; None for all.
            options: Of the request; its priority and timeout don't count here.
            durations: Gets the time in the queue and of the run.
            then: Gets the results, what the execution raised, or CancelledRequestError.
        """
        arrived_ns = time.perf_counter_ns()
        with self._lock:
            runs = self._free > 0
            if runs:
                self._free -= 1
            else:
                request = _Request(feeds, names, options.pool, durations, then, arrived_ns)
                self._queue.append(request)
                self._counts.enter_queue()
        if runs:
            self._execute(feeds, names, durations, then, arrived_ns)
        elif not options.on_cancel(functools.partial(self._cancel, request)):
            self._cancel(request)

    def _execute(
        self, feeds: Feeds, names: Sequence[str] | None, durations: Durations, then: Then, arrived_ns: int
    ) -> None:
        execution = durations.execution = Execution() if durations.traced else None
        outcome: Result
        started_ns = time.perf_counter_ns()
        try:
            self._counts.begin_execution(int(durations.waited))
            outcome = self._run(feeds, names, execution.stages if execution else None)
        except BaseException as error:
            outcome = error
        ended_ns = time.perf_counter_ns()
        self._let_next_run()
        durations.alone = True
        durations.queue = started_ns - arrived_ns
        durations.compute_infer = ended_ns - started_ns
        if execution is not None:
            execution.ended_ns = ended_ns
        then(outcome)

    def _execute_waiting(self, request: _Request) -> None:
        request.durations.waited = True
        self._execute(request.feeds, request.names, request.durations, request.then, request.arrived_ns)

    def _let_next_run(self) -> None:
        with self._lock:
            if not self._queue:
                self._free += 1
                return
            following = self._queue.popleft()
        following.pool.run(functools.partial(self._execute_waiting, following))

    def _cancel(self, request: _Request) -> None:
        """Take a request out of the queue whose client has left; one that runs already goes on."""
        with self._lock:
            waiting = any(one is request for one in self._queue)
            if waiting:
                self._queue = collections.deque(one for one in self._queue if one is not request)
        if waiting:
            self._counts.leave_queue()
            self._counts.add_rejection(RejectionReason.CANCELLED)
            request.then(CancelledRequestError())
