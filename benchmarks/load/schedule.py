"""When the requests of an open loop start."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK = 1024
"""Gaps that are drawn at a time."""


def poisson_arrivals(rate: float, seed: int) -> Iterator[float]:
    """Arrival times of a Poisson process: what many users who don't know of each other send.

    Gaps are independent and exponential with mean 1/rate. Processes of rates a and b that run at the same time are
    together one of rate a + b, so that each of n clients may draw its own times at a rate of 1/n.

    Args:
        rate: Mean number of arrivals a second.
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
