"""Load levels: amount and length of load."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator

from trtnode.bench.load.arrivals import poisson_arrivals


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The load of one row: a closed loop, or an open one.

    Attributes:
        callers: Callers of the closed loop; 0 in an open loop.
        rate: Requests per second of the open loop; 0 in a closed loop.
        requests: Number of requests; infinity for no limit.
        seconds: Length; infinity for no limit.
        seed: Of the open loop's arrival times.
    """

    callers: int = 0
    rate: float = 0.0
    requests: float = math.inf
    seconds: float = math.inf
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.rate:g} requests a second" if self.rate else f"{self.callers} callers"

    def split(self, parts: int) -> list[Level]:
        """Share the load among client processes; a closed loop uses at most one per caller."""
        parts = min(parts, self.callers) if self.callers else parts
        return [
            Level(
                callers=_share(self.callers, part, parts),
                rate=self.rate / parts,
                requests=_share(int(self.requests), part, parts) if math.isfinite(self.requests) else math.inf,
                seconds=self.seconds,
                seed=self.seed + part,
            )
            for part in range(parts)
        ]

    def arrivals(self, start: float) -> Iterator[float]:
        """Return the start times of the open loop's requests, on a clock that begins at ``start``."""
        times = itertools.takewhile(lambda time: time < self.seconds, poisson_arrivals(self.rate, self.seed))
        count = int(self.requests) if math.isfinite(self.requests) else None
        return (start + time for time in itertools.islice(times, count))

    def allowance(self, start: float, now: Callable[[], float]) -> Callable[[], bool]:
        """Return a predicate: True if the closed loop may send one more request. The first is always allowed."""
        tickets = itertools.count()

        def allowed() -> bool:
            ticket = next(tickets)
            return ticket < self.requests and (ticket == 0 or now() - start < self.seconds)

        return allowed


def _share(whole: int, part: int, parts: int) -> int:
    return whole // parts + (part < whole % parts)
