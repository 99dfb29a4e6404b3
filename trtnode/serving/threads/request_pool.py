"""The threads that answer requests. A request that waits for something holds none of them."""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

logger = logging.getLogger(__name__)

Work = Callable[[], object]
"""A step of a request that waits for nobody."""

Result = TypeVar("Result")


def inference_threads(instances: int) -> int:
    """Return how many threads run inference: enough to read and write some requests while all instances compute."""
    return min(64, instances + 2)


class RequestPool:
    """Runs the steps of requests in a few threads, and bounds how many requests are in flight.

    Few are enough: a model releases the interpreter lock while it computes, and more threads only take it from each
    other.
    """

    def __init__(
        self, threads: int, max_requests: int = sys.maxsize, settle: Callable[[], None] = lambda: None
    ) -> None:
        """Start no thread yet.

        Args:
            threads: How many may work at a time.
            max_requests: How many requests may be in flight.
            settle: What each thread does first.
        """
        self.in_flight = 0
        """Requests that were accepted and are not answered yet."""
        self.draining = False
        """True from the moment when no request may come in any more."""
        self._max_requests = max_requests
        self._most = threads
        self._settle = settle
        self._started = 0
        self._closed = False
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._alarms: dict[Work, int] = {}
        self._alarm_set = threading.Condition()
        self._clock: threading.Thread | None = None

    def let_work(self, threads: int) -> None:
        """Let so many threads work at a time from now on; those beyond finish what they do."""
        with self._lock:
            self._most = threads
            for _ in range(self._started - threads):
                self._work.put(None)

    def admits(self) -> bool:
        """Return whether one more request may come in now. Ports ask at the same time, and may each let one in."""
        return not self.draining and self.in_flight < self._max_requests

    def enter(self) -> None:
        """Count a request that comes in."""
        with self._lock:
            self.in_flight += 1

    def leave(self) -> None:
        """Count a request as answered."""
        with self._lock:
            self.in_flight -= 1
            if not self.in_flight:
                self._idle.notify_all()

    def run(self, work: Work) -> None:
        """Have a thread work."""
        self._work.put(work)
        if self._started < self._most:
            self._start_thread()

    def call(self, work: Callable[[], Result]) -> Future[Result]:
        """Have a thread work, and return the future of the result."""
        answer: Future[Result] = Future()
        self.run(lambda: _fulfil(answer, work))
        return answer

    def run_at(self, when_ns: int | None, work: Work) -> None:
        """Have a thread work at a time of ``time.perf_counter_ns``, in place of the time that was set before.

        Args:
            when_ns: The time; None for never.
            work: Equal to what the earlier time was set for.
        """
        if self._alarms.get(work) == when_ns:
            return
        with self._alarm_set:
            if when_ns is None:
                self._alarms.pop(work, None)
                return
            is_next = when_ns < min(self._alarms.values(), default=when_ns + 1)
            self._alarms[work] = when_ns
            if self._clock is None:
                self._clock = threading.Thread(target=self._ring, name="alarms", daemon=True)
                self._clock.start()
            elif is_next:
                self._alarm_set.notify()

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no request is in flight; return False if that takes longer."""
        with self._idle:
            return self._idle.wait_for(lambda: self.in_flight == 0, timeout_s)

    def close(self) -> None:
        """Let the threads end after what they do, and forget what nobody has begun."""
        with self._lock, self._alarm_set:
            self._closed = True
            while not self._work.empty():
                self._work.get_nowait()
            for _ in range(self._started):
                self._work.put(None)
            self._alarm_set.notify()

    def _start_thread(self) -> None:
        with self._lock:
            if self._started >= self._most or self._closed:
                return
            try:
                threading.Thread(target=self._serve, name="infer", daemon=True).start()
            except RuntimeError as error:  # the system has no thread to give: those that there are do the work
                logger.warning("%s; %d requests are in flight", error, self.in_flight)
            else:
                self._started += 1

    def _serve(self) -> None:
        self._settle()
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException:
                logger.exception("A request ended without an answer")
            del work  # a thread at rest must not keep a request in memory
        with self._lock:
            self._started -= 1

    def _ring(self) -> None:
        while True:
            with self._alarm_set:
                if self._closed:
                    return
                now_ns = time.perf_counter_ns()
                due = [work for work, when_ns in self._alarms.items() if when_ns <= now_ns]
                for work in due:
                    del self._alarms[work]
                if not due:
                    wait_s = (
                        min((when_ns - now_ns) / 1e9 for when_ns in self._alarms.values()) if self._alarms else None
                    )
                    self._alarm_set.wait(None if wait_s is None else min(wait_s, threading.TIMEOUT_MAX))
            for work in due:
                self.run(work)


def _fulfil(answer: Future[Result], work: Callable[[], Result]) -> None:
    if not answer.set_running_or_notify_cancel():  # nobody waits for it any more
        return
    try:
        result = work()
    except BaseException as error:
        answer.set_exception(error)
    else:
        answer.set_result(result)
