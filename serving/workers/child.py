"""A worker process, as the supervisor sees it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from serving.errors import ServingError
from serving.workers.channel import Channel
from serving.workers.worker import Orders

START_S = 120.0
"""How long a new process may take until it speaks. It reads libraries first, which a busy machine makes slow."""
SILENCE_S = 10.0
"""After how long without a sign of life a worker is replaced."""
END_S = 5.0
"""How long a process may take to end once it has closed its end of the channel."""

CHILD = "import sys; from serving.workers.worker import main; main(*map(int, sys.argv[1:]))"


class Child:
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
        orders: Orders,
        turn: int,
        calls: Mapping[str, Callable[..., Any]],
        on_change: Callable[[], None],
    ) -> None:
        """Start it.

        Args:
            orders: What it is to do.
            turn: A file that all workers have open.
            calls: What it may ask.
            on_change: Is called when its state changes. It must not block.
        """
        self.number = orders.number
        self.notes: Sequence[str] = []
        self.failure: ServingError | None = None
        self.joined = False
        self.end: tuple[str, str] | None = None
        self._reasons: Sequence[str] = ["it is starting"]
        self._on_change = on_change
        self._settled = threading.Event()
        self._ended = threading.Event()
        connection = self._start(turn)
        self.channel = Channel(connection, {"beat": self._take_beat, "report": self._take_report}, calls)
        with contextlib.suppress(OSError):  # it is gone already, which the thread will find
            connection.send(orders)
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
        """Say why it can't answer, one line a reason; nothing if it can."""
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

    def _start(self, turn: int) -> Connection:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  (this interpreter, and our own code)
                [sys.executable, "-c", CHILD, str(theirs.fileno()), str(turn)],
                pass_fds=[theirs.fileno(), turn],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(place or "." for place in sys.path)},
            )
        return Connection(ours.detach())

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
