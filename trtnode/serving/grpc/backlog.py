"""The response backlog: bytes of responses that clients haven't read. A client that reads none loses its call."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from typing import Protocol

from trtnode.engines.process_memory import give_back_free_memory
from trtnode.serving.telemetry.logs import OneASecond

logger = logging.getLogger(__name__)
logger.addFilter(OneASecond())

PATIENCE_S, BYTES_A_SECOND = 60.0, 1e6
"""The longest time that a client may read nothing, and the rate at which it gets more for the size of its backlog."""
STALL_S = 0.25
"""A client that has read nothing for so long makes room for others."""
CHECK_S = 1.0
POLL_S = 0.01
TRIMMED_BYTES = 16 << 20
"""The memory of a dropped backlog is given back to the system from this size on."""


class Receiver(Protocol):
    """A call or a stream whose client has responses to read."""

    def drop(self) -> None:
        """End it without a status, since its client reads nothing."""
        ...


@dataclasses.dataclass(slots=True)
class _Unread:
    """The backlog of one client.

    Attributes:
        size: Bytes of its responses.
        since: When it last read one, on the monotonic clock.
    """

    size: int
    since: float


class ResponseBacklog:
    """The responses that are made and not read. Thread-safe.

    Attributes:
        total: Their bytes.
    """

    def __init__(self, most_bytes: int) -> None:
        self.total = self._expected = 0
        self._most = most_bytes
        self._lock = threading.Lock()
        self._unread: dict[Receiver, _Unread] = {}
        self._watches = self._trims = False

    def add(self, receiver: Receiver, size: int) -> None:
        """Count a response; where they are too many, those of clients that read nothing are dropped."""
        with self._lock:
            unread = self._unread.get(receiver)
            if unread is None:
                self._unread[receiver] = _Unread(size, time.monotonic())
            else:
                unread.size += size
            self.total += size
            begins, self._watches = not self._watches, True
        if begins:
            threading.Thread(target=self._watch, name="response-backlog", daemon=True).start()
        if self.total > self._most:
            self._drop_idle()

    def settle(self, receiver: Receiver, size: int) -> None:
        """Note that a response was read."""
        with self._lock:
            unread = self._unread.get(receiver)
            if unread is not None:
                self.total -= size
                unread.size -= size
                unread.since = time.monotonic()
                if not unread.size:
                    del self._unread[receiver]

    def forget(self, receiver: Receiver) -> None:
        """Note that a client has left."""
        with self._lock:
            unread = self._unread.pop(receiver, None)
            self.total -= unread.size if unread is not None else 0
            self._trims |= unread is not None and unread.size > TRIMMED_BYTES

    def expect(self, size: int) -> None:
        """Keep room for so many bytes of responses that are being made, or for fewer where it is negative."""
        with self._lock:
            self._expected += size

    def has_room(self, size: int) -> bool:
        """Return whether there is room for so many bytes more."""
        return self.total + self._expected + size <= self._most

    def wait_read(self, patience_s: float, timeout_s: float) -> bool:
        """Wait until clients have read everything; return False where they read nothing for too long.

        Args:
            patience_s: The longest time without anything that is read.
            timeout_s: The longest time in all.
        """
        began = moved = time.monotonic()
        left = self.total
        while left:
            now = time.monotonic()
            if now - moved > patience_s or now - began > timeout_s:
                return False
            time.sleep(POLL_S)
            if self.total < left:
                moved = now
            left = self.total
        return True

    def _watch(self) -> None:
        """Drop what clients don't read, as long as there is a backlog."""
        while True:
            time.sleep(CHECK_S)
            with self._lock:
                trims, self._trims = self._trims, False
                self._watches = watches = bool(self._unread)
            if trims:
                give_back_free_memory()
            if not watches:
                return
            self._drop_idle()

    def _drop_idle(self) -> None:
        now = time.monotonic()
        dropped: list[Receiver] = []
        with self._lock:
            left = self.total
            for receiver, unread in sorted(self._unread.items(), key=lambda one: one[1].since):
                idle = now - unread.since
                if idle > PATIENCE_S + unread.size / BYTES_A_SECOND or (idle > STALL_S and left > self._most):
                    left -= unread.size
                    dropped.append(receiver)
        for one in dropped:
            self.forget(one)
            one.drop()
        if dropped:
            logger.warning(
                "Cancelled %d calls: clients stopped reading responses (server.limits.stream_buffer_mb)", len(dropped)
            )
