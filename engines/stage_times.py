"""When each stage of a run was at work, for whoever traces it."""

from __future__ import annotations

import time
from typing import NamedTuple

from engines.plan import Stage


class StageTime(NamedTuple):
    """When one stage ran.

    Attributes:
        name: The segment, or the native stage.
        is_engine: Whether an engine computed.
        began_ns: As ``time.perf_counter_ns`` counts.
        ended_ns: As well.
    """

    name: str
    is_engine: bool
    began_ns: int
    ended_ns: int

    @classmethod
    def since(cls, began_ns: int, stage: Stage) -> StageTime:
        """The time of a stage that has just ended."""
        return cls(stage.name, stage.is_engine, began_ns, time.perf_counter_ns())
