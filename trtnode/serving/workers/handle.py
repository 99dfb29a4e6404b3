"""A worker process, as the supervisor sees it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trtnode.engines.interpreter import start_interpreter
from trtnode.engines.system_limits import out_of_memory_kills
from trtnode.serving.errors import ServingError
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.workers.channel import Channel

START_S = 120.0
"""The longest time until a new process sends its first message. It reads libraries first, slowly on a busy machine."""
SILENCE_S = 10.0
"""The heartbeat timeout, after which a worker is replaced."""
END_S = 5.0
"""The longest time that a process may take to end once it has closed its end of the channel."""

CHILD = "import sys; from trtnode.serving.workers.worker import main; main(*map(int, sys.argv[1:]))"


class WorkerHandle:
    """One worker process, from its start to its end.

    Attributes:
        number: Its place among the workers.
        pid: Its number in the system.
        channel: To it.
        joins: Whether it has been let open its ports.
        joined: Whether it takes part: its ports are open, and changes are for it as well.
        settled: Whether its models were all loaded, once.
        reasons: Why its models can't answer, one line a reason.
        failure: Why it never can.
    """

    def __init__(
        self,
        number: int,
        config: ServableConfig,
        log_level: int,
        lock_file: int,
        calls: Mapping[str, Callable[..., Any]],
    ) -> None:
        """Start it.

        Args:
            number: Its place among the workers.
            config: What it serves, with the ports that all workers share.
            log_level: The lowest level that it logs.
            lock_file: A file that all workers have open.
            calls: Its questions and notices.
        """
        self.number = number
        self.joins = self.joined = self.settled = False
        self.reasons: Sequence[str] = ["it is starting"]
        self.failure: ServingError | None = None
        self._kills = out_of_memory_kills()
        self._process, connection = start_interpreter(CHILD, files=[lock_file])
        self.pid = self._process.pid
        self.channel = Channel(connection, calls)
        with contextlib.suppress(OSError):  # it is gone already, which will be found
            connection.send((number, config, log_level))

    def not_ready(self) -> Sequence[str]:
        """Return why it can't answer, one line a reason; nothing if it can."""
        return self.reasons or ([] if self.joined else ["it doesn't take requests yet"])

    def follow(self) -> tuple[str, str]:
        """Take its notices and questions until it has ended.

        Returns:
            How it ended: a word for metrics, and a sentence for the log.
        """
        closed = self.channel.follow(START_S, SILENCE_S)
        if closed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
        self.kill()
        self.joined = False
        killed = out_of_memory_kills() != self._kills
        ended = ("died", _how(self._process.returncode, killed)) if closed else _SILENT
        if self.failure is not None:
            ended = "failed", f"can't serve: {self.failure}"
        self.reasons = [f"it {ended[1]}"]
        return ended

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()


_SILENT = "silent", f"sent no heartbeat for {SILENCE_S:g} s"


def _how(code: int, killed: bool) -> str:
    if code == -signal.SIGKILL and killed:
        return "was killed, since there is no memory left: raise the container's limit, or serve less in it"
    if code < 0:
        return f"was ended by signal {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
