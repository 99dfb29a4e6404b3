"""A worker process, as the supervisor sees it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trtnode.engines.build.interpreter import start_interpreter
from trtnode.serving.errors import ServingError
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
        channel: To it.
        notes: What an operator should mend though it can work.
        failure: Why it never will; None while it may.
        joined: Whether it takes part: its port is open, and changes are for it as well.
        end: How it ended, a word for metrics and a sentence for the log; None while it runs.
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
        self.notes: Sequence[str] = []
        self.failure: ServingError | None = None
        self.joined = False
        self.end: tuple[str, str] | None = None
        self._reasons: Sequence[str] = ["it is starting"]
        self._on_change = on_change
        self._settled = threading.Event()
        self._ended = threading.Event()
        self._process, connection = start_interpreter(CHILD, files=[lock_file])
        self.channel = Channel(connection, {"beat": self._take_beat, "report": self._take_report}, calls)
        with contextlib.suppress(OSError):  # it is gone already, which the thread will find
            connection.send(worker_config)
        threading.Thread(target=self._follow, name=f"worker-{self.number}", daemon=True).start()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def wait_settled(self) -> bool:
        """Wait until it can answer, or never will; return whether it can."""
        self._settled.wait()
        return self.end is None and self.failure is None

    def wait_ended(self) -> tuple[str, str]:
        """Wait until the process has ended, and return how."""
        self._ended.wait()
        assert self.end is not None
        return self.end

    def not_ready(self) -> Sequence[str]:
        """Return why it can't answer, one line a reason; nothing if it can."""
        if self.end is not None:
            return [f"it {self.end[1]}"]
        return self._reasons or ([] if self.joined else ["it doesn't take requests yet"])

    def finish(self) -> None:
        """End the process, in order if it has joined."""
        if self.joined:
            self.channel.tell("end")
            self._ended.wait(END_S)
        self.kill()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def _follow(self) -> None:
        closed = self.channel.follow(START_S, SILENCE_S)
        if closed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
        self._process.kill()
        code = self._process.wait()
        self.end = ("died", _how(code)) if closed else ("silent", f"gave no sign of life for {SILENCE_S:g} s")
        self.joined = False
        self._settled.set()
        self._ended.set()
        self._on_change()

    def _take_beat(self, notes: Sequence[str]) -> None:
        self.notes = notes

    def _take_report(self, reasons: Sequence[str], loads: bool, failure: ServingError | None) -> None:
        self._reasons = reasons
        if not self._settled.is_set():
            self.failure = failure
            if failure is not None or not (reasons or loads):
                self._settled.set()
        self._on_change()


def _how(code: int) -> str:
    if code < 0:
        return f"was ended by signal {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
