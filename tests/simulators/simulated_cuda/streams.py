"""Queues of work that runs late: only when somebody synchronizes with it."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING

from simulated_cuda.errors import CudaError

if TYPE_CHECKING:
    from simulated_cuda.gpu import SimulatedGpu


class Work:
    """One piece of work on a stream.

    Attributes:
        stream: Where it is.
        number: Grows along a stream.
        done: True once it has run.
        waits_for: Work of another stream that comes first, if any.
    """

    def __init__(self, stream: StreamQueue, number: int, run: Callable[[], None], waits_for: Work | None) -> None:
        self.stream = stream
        self.number = number
        self.run = run
        self.done = False
        self.waits_for = waits_for


class StreamQueue:
    """Work in order. The thread that synchronizes does it, one thread at a time for the whole GPU."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu
        self._waiting: collections.deque[Work] = collections.deque()
        self._numbers = 0

    @property
    def is_idle(self) -> bool:
        """Return whether all work has run."""
        return not self._waiting

    def add(self, run: Callable[[], None], *, waits_for: Work | None = None) -> Work:
        """Queue work.

        Args:
            run: Its function, which raises ``CudaError`` for an error that stays.
            waits_for: Work of a stream that runs first.
        """
        with self._gpu.lock:
            self._numbers += 1
            work = Work(self, self._numbers, run, waits_for)
            self._waiting.append(work)
            return work

    def comes_after(self, work: Work) -> bool:
        """Return whether work that is added now runs after other work: it ran, is on this stream, or is awaited."""
        with self._gpu.lock:
            if work.done or work.stream is self:
                return True
            awaited = [w.waits_for for w in self._waiting if w.waits_for is not None]
            return any(w.stream is work.stream and w.number > work.number for w in awaited)

    def take(self) -> list[Work]:
        """Take off what waits, as the end of a recording does."""
        with self._gpu.lock:
            taken = list(self._waiting)
            self._waiting.clear()
            return taken

    def step(self) -> None:
        """Do the next piece of work, if there is one. After an error nothing is done."""
        with self._gpu.lock:
            if not self._waiting:
                return
            work = self._waiting[0]
            if work.waits_for is not None:
                work.waits_for.stream.finish(work.waits_for)
            try:
                work.run()
            except CudaError as error:
                self._gpu.fail(error.code)
            finally:
                work.done = True
                self._waiting.popleft()

    def finish(self, last: Work | None = None) -> None:
        """Do all work, or all up to a piece."""
        with self._gpu.lock:
            while self._waiting and not (last is not None and last.done):
                self.step()
