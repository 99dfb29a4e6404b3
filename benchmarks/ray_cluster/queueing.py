"""Waiting times of requests that arrive by chance, by queueing theory."""

from __future__ import annotations

import math


def waiting_s(*, servers: int, service_s: float, load: float) -> float:
    """Return the mean wait in one queue before servers that each take the same time for every request.

    Half of that with exponential times, which Erlang's C gives (an approximation: Lee and Longton, 1959).

    Args:
        servers: Their number.
        service_s: Of each.
        load: Part of the time in which each is busy, below 1.
    """
    offered = servers * load
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    full = offered**servers / math.factorial(servers) / (1 - load)
    return full / (sum(terms) + full) * service_s / (servers * (1 - load)) / 2
