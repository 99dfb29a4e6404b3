"""A worker process, as the supervisor sees it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from trtnode.engines.build.interpreter import start_interpreter
from trtnode.serving.errors import ServingError, WorkerGoneError
from trtnode.serving.workers.channel import Channel
from trtnode.serving.workers.worker import WorkerConfig

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
        joined: Whether it takes part: its ports are open, and changes are for it as well.
        settled: Done when it can answer; fails if it never will.
        ended: How it ended: a word for metrics, and a sentence for the log.
    """

    def __init__(
        self,
        worker_config: WorkerConfig,
        lock_file: int,
        calls: Mapping[str, Callable[..., Any]],
        on_change: Callable[[], None],
    ) -> None:
        """Start it.

        Args:
            worker_config: Its settings.
            lock_file: A file that all workers have open.
            calls: What it may ask.
            on_change: Is called when its state changes. It must not block.
        """
        self.number = worker_config.number
        self.joined = False
        self.settled: Future[None] = Future()
        self.ended: Future[tuple[str, str]] = Future()
        self._reasons: Sequence[str] = ["it is starting"]
        self._on_change = on_change
        self._process, connection = start_interpreter(CHILD, files=[lock_file])
        self.pid = self._process.pid
        self.channel = Channel(connection, {"beat": self._take_beat, **calls})
        with contextlib.suppress(OSError):  # it is gone already, which the thread will find
            connection.send(worker_config)
        threading.Thread(target=self._follow, name=f"worker-{self.number}", daemon=True).start()

    def not_ready(self) -> Sequence[str]:
        """Return why it can't answer, one line a reason; nothing if it can."""
        if self.ended.done():
            return [f"it {self.ended.result()[1]}"]
        return self._reasons or ([] if self.joined else ["it doesn't take requests yet"])

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()

    def _follow(self) -> None:
        closed = self.channel.follow(START_S, SILENCE_S)
        if closed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
        self.kill()
        self.joined = False
        code = self._process.returncode
        self.ended.set_result(
            ("died", _how(code)) if closed else ("silent", f"gave no sign of life for {SILENCE_S:g} s")
        )
        if not self.settled.done():
            self.settled.set_exception(WorkerGoneError("the worker process ended before it could answer"))
        self._on_change()

    def _take_beat(self, reasons: Sequence[str], loads: bool, failure: ServingError | None) -> None:
        if not self.settled.done():
            if failure is not None:
                self.settled.set_exception(failure)
            elif not (reasons or loads):
                self.settled.set_result(None)
        if reasons != self._reasons:
            self._reasons = reasons
            self._on_change()


def _how(code: int) -> str:
    if code < 0:
        return f"was ended by signal {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
