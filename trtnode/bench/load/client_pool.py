"""A pool of client processes that share each level of load.

One Python process sends from one core at most, so a fast server needs several. A second process gains nothing on two
cores; with more cores, there is one client process for four. Processes are spawned, never forked: gRPC's threads don't
survive a fork. The process that draws the progress bar sends nothing, so drawing doesn't disturb the measurement.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import signal
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

from trtnode.bench.load.client_process import RepeatedRequest, serve
from trtnode.bench.load.errors import ClientError
from trtnode.bench.load.load_level import Level
from trtnode.bench.load.samples import Samples
from trtnode.serving.threads.grpc_event_engine import read_directly_by_children

SPAWN = multiprocessing.get_context("spawn")

LOOK_S = 0.1
"""Interval of progress reports."""

STOP_S = 5.0


class ClientProcessPool:
    """Client processes that repeat one request.

    Attributes:
        interrupted: True if Ctrl-C ended a level early.
    """

    def __init__(self, repeated: RepeatedRequest, processes: int) -> None:
        self.interrupted = False
        self._stop = SPAWN.RawValue(ctypes.c_bool, False)
        with read_directly_by_children(), _interrupts_ignored():  # children inherit both; the pool stops them
            self._clients = [_Client(repeated, self._stop) for _ in range(processes)]
        for client in self._clients:
            client.receive()

    def __enter__(self) -> ClientProcessPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.value = True
        for client in self._clients:
            client.close()

    def run(self, level: Level, progress: Callable[[int], None]) -> Samples:
        """Put one level of load on the server.

        Args:
            level: The load, which the processes share.
            progress: Called several times per second with the number of answers so far.

        Returns:
            The samples of the level. Ctrl-C ends it early and sets ``interrupted``.

        Raises:
            ClientError: A client process ended.
        """
        parts = level.split(len(self._clients))
        busy = self._clients[: len(parts)]
        for client, part in zip(busy, parts, strict=True):
            client.send(part)
        samples: list[Samples] = []
        try:
            _gather(busy, samples, progress)
        except KeyboardInterrupt:
            self.interrupted = self._stop.value = True
            _gather(busy, samples, progress)
        return Samples.joined(samples)


class _Client:
    """A client process and the connection to it.

    Attributes:
        connection: Readable when the process has sent samples.
        busy: True while the process owes samples.
    """

    def __init__(self, repeated: RepeatedRequest, stop: ctypes.c_bool) -> None:
        self.connection, theirs = SPAWN.Pipe()
        self.busy = True
        self._answered = SPAWN.RawValue(ctypes.c_int64, 0)
        self._process = SPAWN.Process(target=serve, args=(theirs, repeated, stop, self._answered), daemon=True)
        self._process.start()
        theirs.close()  # then the connection ends when the process ends

    @property
    def answers(self) -> int:
        """Number of answered requests of its level."""
        return self._answered.value

    def send(self, level: Level) -> None:
        """Send a level of load to the process.

        Raises:
            ClientError: The process ended.
        """
        try:
            self.connection.send(level)
        except OSError:
            raise ClientError from None
        self.busy = True

    def receive(self) -> Samples:
        """Wait for the samples of its level.

        Raises:
            ClientError: The process ended.
        """
        try:
            samples: Samples = self.connection.recv()
        except (EOFError, OSError):
            raise ClientError from None
        self.busy = False
        return samples

    def close(self) -> None:
        """End the process."""
        self.connection.close()
        self._process.join(STOP_S)
        self._process.kill()


def _gather(clients: Sequence[_Client], samples: list[Samples], progress: Callable[[int], None]) -> None:
    """Add the samples of all clients that are busy."""
    while waiting := [client for client in clients if client.busy]:
        ready = multiprocessing.connection.wait([client.connection for client in waiting], LOOK_S)
        samples.extend(client.receive() for client in waiting if client.connection in ready)
        progress(sum(client.answers for client in clients))


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
