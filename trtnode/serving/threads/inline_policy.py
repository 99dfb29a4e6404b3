"""The requests of a model that take less time than handing them to another thread would."""

from __future__ import annotations

INLINE_NS = 200_000
"""The longest time that a request may hold the thread that all others come through, reading and writing included."""
MAX_BYTES = 64 << 10
"""A longer message takes too long to read, whatever the model does with it."""
BUSY, SLOW, BRIEF, MOST = 24, 3, 9, 72
"""Points of a request: for each ``INLINE_NS`` that its thread was busy, or if only the clock on the wall says that it
took long, as on a crowded machine; those that a brief one takes back; and those at which requests count as long."""


class InlinePolicy:
    """Tells from the size of a message whether its model answers within ``INLINE_NS``, as it did for such sizes before.

    Threads may note runs at the same time: a note that is lost makes no difference.
    """

    __slots__ = ("_most_bytes", "_score")

    def __init__(self) -> None:
        self._most_bytes = 0
        self._score = 0

    def covers(self, size: int) -> bool:
        """Return whether the model answers a message of so many bytes in a moment; 0 bytes are those of none."""
        return 0 < size <= self._most_bytes

    @property
    def is_doubtful(self) -> bool:
        """True if the next note needs the time that the thread was busy, which takes longer to ask than the clock."""
        return self._score > 0

    def note(self, size: int, wall_ns: int, cpu_ns: int) -> None:
        """Learn from a request that was answered without a wait.

        Args:
            size: Of its message, in bytes.
            wall_ns: The time that it took.
            cpu_ns: The time that its thread was busy; 0 if nobody asked for it.
        """
        if wall_ns <= INLINE_NS:
            if not self._score and self._most_bytes < size <= MAX_BYTES:
                self._most_bytes = size
            self._score = max(0, self._score - BRIEF)
        elif size <= self._most_bytes:
            self._score = min(MOST, self._score + (BUSY * (cpu_ns // INLINE_NS) or SLOW))
            if self._score == MOST:
                self._most_bytes = size - 1
