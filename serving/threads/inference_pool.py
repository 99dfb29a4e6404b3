"""Bounds the inference requests in the server, and knows when the last one is answered."""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

logger = logging.getLogger(__name__)

BODY_S = 0.05
"""A thread that waits so long, or up to twice as long, for the body of its request no longer counts as one at work, if
others wait for a thread."""

DONE: Future[None] = Future()
"""The future that gRPC gets for each request, see ``InferencePool.submit``."""
DONE.set_result(None)


def inference_threads(instances: int) -> int:
    """Return how many threads run inference: enough to read and write some requests while all instances compute."""
    return min(64, instances + 2)


class InferencePool(ThreadPoolExecutor):
    """The threads that answer requests.

    Few are at work at a time: the model releases the interpreter lock while it computes, and more threads only take it
    from each other. A request that waits inside ``waiting`` doesn't count, so that batches can form whatever their
    size. The thread that was at work last takes the next request, since its memory is still in the caches.

    gRPC lets a thread wait for the body of a request, which a client may send slowly or never. So a handler is marked
    with ``begins``; a thread that doesn't get there soon is not counted, and others take its place.

    gRPC hands its requests to ``submit``. Those that aren't admitted go to other threads, where the handler's refusal
    answers them at once: gRPC submits in the thread that takes requests off the wire, so none of them waits behind
    those that are admitted.

    (The executor's own threads are never used; gRPC accepts no other class.)
    """

    def __init__(
        self,
        at_work: int,
        max_requests: int = sys.maxsize,
        settle: Callable[[], None] | None = None,
        *,
        newest_first: bool = False,
    ) -> None:
        """Start no thread yet.

        Args:
            at_work: How many threads may be at work at a time.
            max_requests: How many requests may be in flight.
            settle: What each thread does first.
            newest_first: Whether the newest request that waits is the next one. Then thousands of requests whose bodies
                don't come keep no later one waiting.
        """
        super().__init__(at_work)
        self.in_flight = 0
        """Requests that were accepted and are not answered yet, whether they run or wait for a thread."""
        self.draining = False
        """True from the moment when no request may come in any more."""
        self.waiting = _Waiting(self._begin_to_wait, self._end_wait)
        """Enter this while a request waits for others."""
        self.elsewhere: ThreadPoolExecutor | None = None
        """Threads for requests that are not admitted; ``submit`` admits all where there are none."""
        self._max_requests = max_requests
        self._most_at_work = at_work
        self._settle = settle
        self._newest_first = newest_first
        self._at_work = 0
        self._closed = False
        self._here = threading.local()
        self._workers: list[_Worker] = []
        self._crowded = threading.Event()
        self._patrol: threading.Thread | None = None
        self._backlog: collections.deque[Callable[[], object]] = collections.deque()
        self._resting: list[_Worker] = []
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)

    def let_work(self, at_work: int) -> None:
        """Let so many threads be at work at a time from now on; those that are beyond that finish their requests."""
        with self._lock:
            self._most_at_work = at_work
            while self._set_to_work():
                pass

    def admits(self) -> bool:
        """Return whether one more request may come in now.

        Each port asks in the one thread that takes requests off its wire, so a count that it reads doesn't rise before
        the request that it lets through is submitted. At worst each open stream, and each port, takes the count one
        beyond the limit.
        """
        return not self.draining and self.in_flight < self._max_requests

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Accept a request of gRPC, or have it refused.

        Returns:
            A future that is done. With it, gRPC counts how many requests are not done yet, for a limit that it isn't
            given. To tell it, each thread would wait for the lock of the one that takes requests off the wire.
        """
        if self.elsewhere is not None and not self.admits():
            return self.elsewhere.submit(fn, *args, **kwargs)
        self._accept(functools.partial(fn, *args, **kwargs))
        return DONE

    def accept(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Accept a request, and return the future of its answer; whoever calls has asked whether one is admitted."""
        answer: Future[Any] = Future()
        self._accept(functools.partial(_fulfil, answer, functools.partial(fn, *args, **kwargs)))
        return answer

    def begins(self, handler: Callable[..., Any], refusal: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Return the handler of requests with the mark that they are here when it is called.

        Args:
            handler: Of requests that are admitted.
            refusal: Of the others.
        """

        def begin(*args: Any) -> Any:
            worker: _Worker | None = getattr(self._here, "worker", None)
            if worker is None:
                assert refusal is not None, "a thread of another pool has only what was not admitted"
                return refusal(*args)
            worker.begun = True
            if worker.uncounted:
                with self._lock:
                    self._at_work += 1
                    worker.uncounted = False
            return handler(*args)

        return begin

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no request is in flight; return False if that takes longer."""
        with self._idle:
            return self._idle.wait_for(lambda: self.in_flight == 0, timeout_s)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let threads end that are at rest now, and others when they come to rest."""
        super().shutdown(wait=wait, cancel_futures=cancel_futures)
        with self._lock:
            self._closed = True
            self._crowded.set()
            if cancel_futures:
                self._backlog.clear()
            for worker in self._resting:
                worker.inbox.put(None)

    def _accept(self, call: Callable[[], object]) -> None:
        with self._lock:
            self.in_flight += 1
            self._backlog.append(call)
            self._set_to_work()
            if self._backlog:
                self._look_after_backlog()

    def _set_to_work(self) -> bool:
        """Let a thread take the next request, if there is one and a thread may; return whether one does."""
        if not self._backlog or self._at_work >= self._most_at_work:
            return False
        try:
            worker = self._resting.pop() if self._resting else self._new_worker()
        except RuntimeError as error:  # the system has no thread to give: the request waits for one of those at work
            logger.warning("%s; %d requests wait", error, len(self._backlog))
            return False
        self._at_work += 1
        worker.begun = worker.seen = False
        worker.inbox.put(self._take())
        return True

    def _take(self) -> Callable[[], object]:
        return self._backlog.pop() if self._newest_first else self._backlog.popleft()

    def _look_after_backlog(self) -> None:
        if not self._crowded.is_set():  # setting an event takes 2 us, set or not
            self._crowded.set()
        if self._patrol is None:
            patrol = threading.Thread(target=self._replace_idlers, name="patrol", daemon=True)
            with contextlib.suppress(RuntimeError):
                patrol.start()
                self._patrol = patrol

    def _replace_idlers(self) -> None:
        """While requests wait for a thread, stop counting threads that wait for a body."""
        while self._crowded.wait() and not self._closed:
            time.sleep(BODY_S)
            with self._lock:
                for worker in self._workers:
                    if worker.seen and not worker.begun and not worker.uncounted:
                        worker.uncounted = True
                        self._at_work -= 1
                    worker.seen = True
                while self._set_to_work():
                    pass
                if not self._backlog and not self._closed:
                    self._crowded.clear()

    def _new_worker(self) -> _Worker:
        worker = _Worker()
        threading.Thread(target=self._work, args=(worker,), name="infer", daemon=True).start()
        self._workers.append(worker)
        return worker

    def _work(self, worker: _Worker) -> None:
        if self._settle is not None:
            self._settle()
        self._here.worker = worker
        call = worker.inbox.get()
        while call is not None:
            try:
                call()
            except BaseException:  # gRPC lets none out that it knows of
                logger.exception("A request ended without an answer")
            call = self._next_call(worker)  # a thread at rest must not keep a request in memory
            if call is None:
                call = worker.inbox.get()

    def _next_call(self, worker: _Worker) -> Callable[[], object] | None:
        with self._lock:
            self._at_work += worker.uncounted
            worker.uncounted = False
            self.in_flight -= 1
            if self.in_flight == 0:
                self._idle.notify_all()
            if self._backlog and self._at_work <= self._most_at_work:
                worker.begun = worker.seen = False
                return self._take()
            worker.begun = True
            self._at_work -= 1
            self._resting.append(worker)
            if self._closed:
                worker.inbox.put(None)
        return None

    def _begin_to_wait(self) -> None:
        with self._lock:
            self._at_work -= 1
            self._set_to_work()

    def _end_wait(self) -> None:
        with self._lock:
            self._at_work += 1


class _Worker:
    """One thread.

    Attributes:
        inbox: Takes what it is to do next when it is at rest; None lets it end.
        begun: Whether the body of its request is here; True while it has none.
        seen: Whether the patrol has seen it with this request before.
        uncounted: Whether it isn't counted as one at work.
    """

    __slots__ = ("begun", "inbox", "seen", "uncounted")

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self.begun = self.seen = self.uncounted = False


def _fulfil(answer: Future[Any], call: Callable[[], Any]) -> None:
    try:
        result = call()
    except BaseException as error:
        answer.set_exception(error)
    else:
        answer.set_result(result)


class _Waiting:
    """A ``with`` statement around a wait; any number of threads may be inside."""

    __slots__ = ("_begin", "_end")

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._begin = begin
        self._end = end

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *_exception: object) -> None:
        self._end()
