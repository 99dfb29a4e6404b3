"""Answers that clients haven't taken: counted in bytes over all of them, and given up where a client takes none."""

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
"""The longest time that a client may take nothing, and the rate at which it gets more for what it is owed."""
STALL_S = 0.25
"""A client that has taken nothing for so long makes room for others."""
CHECK_S = 1.0
POLL_S = 0.01
TRIMMED_BYTES = 16 << 20
"""What a client has left unread is given back to the system from this size on."""


class Debtor(Protocol):
    """A call or a stream whose client has answers to take."""

    def drop(self) -> None:
        """End it without a word, since its client reads nothing."""
        ...


@dataclasses.dataclass(slots=True)
class _Debt:
    """What is owed to one client.

    Attributes:
        size: Bytes of its answers.
        since: When it last took one, on the monotonic clock.
    """

    size: int
    since: float


class Owed:
    """The answers that are made and not taken. Thread-safe.

    Attributes:
        total: Their bytes.
    """

    def __init__(self, most_bytes: int) -> None:
        self.total = 0
        self._most = most_bytes
        self._lock = threading.Lock()
        self._debts: dict[Debtor, _Debt] = {}
        self._watches = self._trims = False

    def add(self, debtor: Debtor, size: int) -> None:
        """Count an answer; where they are too many, those end whose clients stand still."""
        with self._lock:
            debt = self._debts.get(debtor)
            if debt is None:
                self._debts[debtor] = _Debt(size, time.monotonic())
            else:
                debt.size += size
            self.total += size
            begins, self._watches = not self._watches, True
        if begins:
            threading.Thread(target=self._watch, name="unread-answers", daemon=True).start()
        if self.total > self._most:
            self._drop_idle()

    def settle(self, debtor: Debtor, size: int) -> None:
        """Note that an answer was taken."""
        with self._lock:
            debt = self._debts.get(debtor)
            if debt is not None:
                self.total -= size
                debt.size -= size
                debt.since = time.monotonic()
                if not debt.size:
                    del self._debts[debtor]

    def forget(self, debtor: Debtor) -> None:
        """Note that a client has left."""
        with self._lock:
            debt = self._debts.pop(debtor, None)
            self.total -= debt.size if debt is not None else 0
            self._trims |= debt is not None and debt.size > TRIMMED_BYTES

    def has_room(self, size: int) -> bool:
        """Return whether so many bytes more may be owed."""
        return self.total + size <= self._most

    def wait_taken(self, patience_s: float, timeout_s: float) -> bool:
        """Wait until clients have taken everything; return False where they take nothing for too long.

        Args:
            patience_s: The longest time without anything that is taken.
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
        """Look after clients that take nothing, as long as anything is owed."""
        while True:
            time.sleep(CHECK_S)
            with self._lock:
                trims, self._trims = self._trims, False
                self._watches = watches = bool(self._debts)
            if trims:
                give_back_free_memory()
            if not watches:
                return
            self._drop_idle()

    def _drop_idle(self) -> None:
        now = time.monotonic()
        dropped: list[Debtor] = []
        with self._lock:
            left = self.total
            for debtor, debt in sorted(self._debts.items(), key=lambda one: one[1].since):
                idle = now - debt.since
                if idle > PATIENCE_S + debt.size / BYTES_A_SECOND or (idle > STALL_S and left > self._most):
                    left -= debt.size
                    dropped.append(debtor)
        for one in dropped:
            self.forget(one)
            one.drop()
        if dropped:
            logger.warning(
                "Calls ended whose clients don't take their answers: %d (server.limits.stream_buffer_mb)", len(dropped)
            )
