"""The requests of a model that take less time than handing them to another thread would."""

from __future__ import annotations

BRIEF_NS = 200_000
"""The longest time that a request may hold the thread that all others come through, reading and writing included."""
MAX_BYTES = 64 << 10
"""A longer message takes too long to read, whatever the model does with it."""
LONG_SCORE, MAX_SCORE = 2, 12
"""Points of a long request, and those at which requests count as long: six in a row, or more than a third."""


class Brevity:
    """Tells from the size of a message whether its model answers within ``BRIEF_NS``, as it did for such sizes before.

    Threads may note runs at the same time: a note that is lost makes no difference.
    """

    __slots__ = ("_most_bytes", "_score")

    def __init__(self) -> None:
        self._most_bytes = 0
        self._score = 0

    def covers(self, size: int) -> bool:
        """Return whether the model answers a message of so many bytes in a moment."""
        return size <= self._most_bytes

    def note(self, size: int, spent_ns: int) -> None:
        """Learn from a request that was answered, with the time that it held a thread."""
        if spent_ns > BRIEF_NS:
            if size <= self._most_bytes:
                self._score += LONG_SCORE
                if self._score >= MAX_SCORE:
                    self._most_bytes = size - 1
        elif self._score:
            self._score -= 1
        elif self._most_bytes < size <= MAX_BYTES:
            self._most_bytes = size
