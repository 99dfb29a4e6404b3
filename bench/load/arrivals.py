"""Arrival times of the requests of an open loop.

Each process draws its times by itself, because Poisson processes add up to one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK = 1024
"""Number of gaps that are drawn at a time."""


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
