"""The open connections of the HTTP port, and which is closed first when there are too many."""

from __future__ import annotations

import enum
import time
from typing import Protocol

FRESH_S = 1.0
"""A header that has been incomplete for less may be on its way: other connections are closed before it."""


class Phase(enum.IntEnum):
    """The event that a connection waits for. They are closed in this order; those of the last phase never are."""

    HEADER = 0
    """For the rest of a header, or the client has its answer and sends on."""
    NEXT_REQUEST = 1
    BODY = 2
    ANSWER = 3
    """For the server."""


class Closable(Protocol):
    """A connection."""

    def abort(self) -> None:
        """Close it at once."""

    def end_after_answer(self) -> None:
        """Tell its client, with the answer that it waits for, that no further one follows (``Connection: close``)."""


class ConnectionTable:
    """The connections by phase, each phase in the order in which they came to it. Only the event loop uses it."""

    def __init__(self) -> None:
        self.is_closing = False
        """True if the next answer on each connection is the last one."""
        self._phases: dict[Closable, Phase] = {}
        self._since: dict[Phase, dict[Closable, float]] = {phase: {} for phase in Phase}

    def __len__(self) -> int:
        return len(self._phases)

    def put(self, connection: Closable, phase: Phase) -> None:
        """Add a connection, or move it to the end of another phase; in the phase where it is, it keeps its place."""
        before = self._phases.get(connection)
        if before is phase:
            return
        if before is not None:
            del self._since[before][connection]
        self._phases[connection] = phase
        self._since[phase][connection] = time.monotonic()

    def remove(self, connection: Closable) -> None:
        """Forget a connection that is closed; again does no harm."""
        phase = self._phases.pop(connection, None)
        if phase is not None:
            del self._since[phase][connection]

    def turn_away(self) -> None:
        """Let each connection end after its next answer."""
        self.is_closing = True
        for connection in self._phases:
            connection.end_after_answer()

    def make_room(self) -> bool:
        """Close the connection that has let the server wait longest; return False if none lets it wait."""
        header, *others = (next(iter(self._since[phase]), None) for phase in list(Phase)[: Phase.ANSWER])
        is_fresh = header is not None and self._since[Phase.HEADER][header] > time.monotonic() - FRESH_S
        order = (*others, header) if is_fresh else (header, *others)
        connection = next(filter(None, order), None)
        if connection is None:
            return False
        self.remove(connection)
        connection.abort()
        return True
