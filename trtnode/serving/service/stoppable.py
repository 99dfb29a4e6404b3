"""A server as whoever runs it sees it, whether it is of one process, of several, or a cluster."""

from __future__ import annotations

import abc
import threading

from trtnode.serving.errors import ServingError


class Stoppable(abc.ABC):
    """One server, from its start to its end. Starts and stops once.

    Attributes:
        failure: Why it can't go on; None while it can.
        at_rest: Whether it has stopped and no thread of it is at work.
    """

    def __init__(self) -> None:
        self.failure: ServingError | None = None
        self.at_rest = False
        self._stop_wanted = threading.Event()

    @abc.abstractmethod
    def start(self) -> None:
        """Open the ports and begin to load."""

    @abc.abstractmethod
    def stop(self, grace_s: float) -> bool:
        """Stop; return whether every accepted request was answered within ``grace_s``."""

    def ask_to_stop(self) -> None:
        """Let ``wait_for_stop`` return."""
        self._stop_wanted.set()

    def wait_for_stop(self) -> None:
        """Wait until somebody asks the server to stop, or it can't go on."""
        self._stop_wanted.wait()

    def _give_up(self, failure: ServingError) -> None:
        """Note that the server can't go on."""
        self.failure = failure
        self._stop_wanted.set()
