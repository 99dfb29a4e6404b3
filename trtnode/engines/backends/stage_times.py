"""Start and end of the stages of a run, for traces."""

from __future__ import annotations

import time
from typing import NamedTuple


class StageTime(NamedTuple):
    """Start and end of one stage.

    Attributes:
        name: The segment, or the native stage.
        is_engine: True if an engine ran it.
        began_ns: By ``time.perf_counter_ns``.
        ended_ns: By the same clock.
    """

    name: str
    is_engine: bool
    began_ns: int
    ended_ns: int

    @classmethod
    def since(cls, began_ns: int, name: str, *, is_engine: bool) -> StageTime:
        """Return the time of a stage that has just ended."""
        return cls(name, is_engine, began_ns, time.perf_counter_ns())
