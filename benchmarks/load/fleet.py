"""Client processes that work in step.

One process of Python sends from one core at most. Where that is less than the server can take, several are needed.
They are spawned, never forked: gRPC's threads don't survive a fork. The process that draws the progress bar sends
nothing, so drawing costs the measurement nothing.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import multiprocessing.connection
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType

from benchmarks.load.caller import Shot, serve
from benchmarks.load.errors import ClientError
from benchmarks.load.level import Level
from benchmarks.load.samples import Samples

LOOK_S = 0.1
"""How often to look how far the processes are."""

STOP_S = 5.0


class Fleet:
    """Client processes that repeat one request.

    Attributes:
        interrupted: Whether Ctrl-C ended a level early.
    """

    def __init__(self, shot: Shot, processes: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.interrupted = False
        self._stop = spawn.RawValue(ctypes.c_bool, False)
        self._answered = [spawn.RawValue(ctypes.c_int64, 0) for _ in range(processes)]
        pipes = [spawn.Pipe() for _ in range(processes)]
        self._connections = [ours for ours, _ in pipes]
        self._processes = [
            spawn.Process(target=serve, args=(theirs, shot, self._stop, answered), daemon=True)
            for (_, theirs), answered in zip(pipes, self._answered, strict=True)
        ]
        for process, (_, theirs) in zip(self._processes, pipes, strict=True):
            process.start()
            theirs.close()  # so that its end is seen here when the process ends
        for connection in self._connections:
            _receive(connection)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.value = True
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join(STOP_S)
            process.kill()

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
        parts = level.split(len(self._connections))
        busy = self._connections[: len(parts)]
        for connection, part in zip(busy, parts, strict=True):
            connection.send(part)
        samples: dict[Connection, Samples] = {}
        try:
            self._gather(busy, samples, progress)
        except KeyboardInterrupt:
            self.interrupted = self._stop.value = True
            self._gather(busy, samples, progress)
        return Samples.joined(list(samples.values()))

    def _gather(
        self, busy: Sequence[Connection], samples: dict[Connection, Samples], progress: Callable[[int], None]
    ) -> None:
        while waiting := [connection for connection in busy if connection not in samples]:
            for ready in multiprocessing.connection.wait(waiting, LOOK_S):
                assert isinstance(ready, Connection)
                samples[ready] = _receive(ready)
            progress(sum(answered.value for answered in self._answered))


def _receive(connection: Connection) -> Samples:
    try:
        samples: Samples = connection.recv()
    except EOFError:
        raise ClientError from None
    return samples
