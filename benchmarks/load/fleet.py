"""Client processes that work in step.

One process of Python sends from one core at most. Where that is less than the server can take, several are needed.
They are spawned, never forked: gRPC's threads don't survive a fork. The process that draws the progress bar sends
nothing, so drawing costs the measurement nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import signal
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

from benchmarks.load.caller import Shot, serve
from benchmarks.load.errors import ClientError
from benchmarks.load.level import Level
from benchmarks.load.samples import Samples
from serving.polling import read_directly_by_children

SPAWN = multiprocessing.get_context("spawn")

LOOK_S = 0.1
"""How often to look how far the processes are."""

STOP_S = 5.0


class Fleet:
    """Client processes that repeat one request.

    Attributes:
        interrupted: Whether Ctrl-C ended a level early.
    """

    def __init__(self, shot: Shot, processes: int) -> None:
        self.interrupted = False
        self._stop = SPAWN.RawValue(ctypes.c_bool, False)
        with read_directly_by_children(), _interrupts_ignored():  # children inherit both; they are told when to stop
            self._clients = [_Client(shot, self._stop) for _ in range(processes)]
        for client in self._clients:
            client.receive()

    def __enter__(self) -> Fleet:
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
            level: Is shared among the processes.
            progress: Is called several times a second with the number of answers so far.

        Returns:
            What happened until the level was over, or until Ctrl-C; then ``interrupted`` is True.

        Raises:
            ClientError: A client process died.
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
    """One process, and the connection to it.

    Attributes:
        connection: Becomes readable when the process has something to say.
        busy: Whether it owes an answer.
    """

    def __init__(self, shot: Shot, stop: ctypes.c_bool) -> None:
        self.connection, theirs = SPAWN.Pipe()
        self.busy = True
        self._answered = SPAWN.RawValue(ctypes.c_int64, 0)
        self._process = SPAWN.Process(target=serve, args=(theirs, shot, stop, self._answered), daemon=True)
        self._process.start()
        theirs.close()  # so that its end is seen here when the process ends

    @property
    def answers(self) -> int:
        """How many requests of its level are answered."""
        return self._answered.value

    def send(self, level: Level) -> None:
        """Give it something to do.

        Raises:
            ClientError: It died.
        """
        try:
            self.connection.send(level)
        except OSError:
            raise ClientError from None
        self.busy = True

    def receive(self) -> Samples:
        """Wait for what it says.

        Raises:
            ClientError: It died.
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
    """Add the samples of all clients that are still busy."""
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
