"""Load levels: amount and length of load."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

BLOCK = 1024
"""Number of gaps that are drawn at a time."""


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


def poisson_arrivals(rate: float, seed: int) -> Iterator[float]:
    """Draw arrival times of a Poisson process, the sum of many independent users.

    Gaps are independent and exponential with mean 1/rate. Two processes of rates a and b are together one of rate
    a + b. So each of n clients draws its own times at 1/n of the rate.

    Args:
        rate: Mean number of arrivals per second.
        seed: The same seed gives the same times.

    Yields:
        Seconds from the start, rising, without end.
    """
    rng = np.random.default_rng(seed)
    now = 0.0
    while True:
        for gap in rng.exponential(1 / rate, BLOCK):
            now += float(gap)
            yield now


def _share(whole: int, part: int, parts: int) -> int:
    return whole // parts + (part < whole % parts)
