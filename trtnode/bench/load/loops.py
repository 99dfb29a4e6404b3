"""Closed and open loops, the two ways to put load on a server.

A closed loop has a number of callers, each of which waits for its answer before it sends again. It shows the throughput
of a server. While the server stalls nobody sends, so the stall counts once per caller.

An open loop sends at times that are fixed beforehand, as independent users do. Latency counts from the intended start
of a request, so a stall is in the latency of every request that was due meanwhile. The alternative is coordinated
omission (Tene, "How NOT to Measure Latency").
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

OK = "OK"
NAP_S = 0.1
"""Interval of the checks for a stop."""

Done = Callable[[str, str], None]
"""Takes the name of a gRPC status, such as ``OK``, and the server's message."""

Send = Callable[[Done], None]
"""Sends a request and returns; calls back from any thread with the answer."""


class Record(NamedTuple):
    """One answered request; times in seconds on the clock of its run."""

    intended: float
    sent: float
    answered: float
    status: str
    message: str


class Clock(Protocol):
    """Time of a run, which may be stopped."""

    def now(self) -> float:
        """Seconds since an arbitrary moment."""
        ...

    def sleep_until(self, moment: float) -> bool:
        """Sleep until a moment; return False if the run is to stop."""
        ...


class MonotonicClock:
    """The machine's monotonic clock, which all its processes share."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped

    def now(self) -> float:
        """Seconds since an arbitrary moment."""
        return time.monotonic()

    def sleep_until(self, moment: float) -> bool:
        """Sleep until a moment; return False if the run is to stop."""
        while not self._stopped():
            left = moment - time.monotonic()
            if left <= 0:
                return True
            time.sleep(min(left, NAP_S))
        return False


class Traffic:
    """The requests of one run: sends them, and records each answer.

    Attributes:
        records: The answered requests, in the order of their answers.
        unanswered: Number of requests without an answer.
    """

    def __init__(self, send: Send, clock: Clock) -> None:
        self.records: list[Record] = []
        self.unanswered = 0
        self._send = send
        self._clock = clock
        self._lock = threading.Lock()

    def launch(self, intended: float, then: Callable[[], None] | None = None) -> None:
        """Send a request that was due at ``intended``; call ``then`` after its answer is recorded."""
        sent = self._clock.now()
        with self._lock:
            self.unanswered += 1

        def finish(status: str, message: str) -> None:
            self.records.append(Record(intended, sent, self._clock.now(), status, message))
            if then is not None:
                then()
            with self._lock:  # after `then`, so that a caller between two requests doesn't look idle
                self.unanswered -= 1

        self._send(finish)

    def wait(self) -> None:
        """Wait until every request is answered or the run is to stop."""
        while self.unanswered and self._clock.sleep_until(self._clock.now() + NAP_S):
            pass


def closed_loop(traffic: Traffic, clock: Clock, callers: int, may_send: Callable[[], bool]) -> None:
    """Let each caller send and wait for the answer, again and again while ``may_send`` returns True."""

    def call() -> None:
        if may_send():
            traffic.launch(clock.now(), then=call)

    for _ in range(callers):
        call()
    traffic.wait()


def open_loop(traffic: Traffic, clock: Clock, arrivals: Iterable[float]) -> None:
    """Send a request at each arrival time on the run's clock, even if earlier ones are unanswered."""
    for moment in arrivals:
        if not clock.sleep_until(moment):
            break
        traffic.launch(moment)
    traffic.wait()
