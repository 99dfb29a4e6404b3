"""Latencies as counts by step, which is what is kept of them."""

from __future__ import annotations

import math
from collections.abc import Mapping

STEPS_PER_OCTAVE = 8
"""The resolution of latencies: each step is 9 % above the one before."""


def latency_bound_us(step: int) -> float:
    """Return the latency at which a step ends, in microseconds."""
    return float(2 ** ((step + 1) / STEPS_PER_OCTAVE) / 1000)


def latency_step(spent_ns: int) -> int:
    """Return the step of a latency."""
    return int(STEPS_PER_OCTAVE * math.log2(spent_ns or 1))


def added(latencies: Mapping[int, int], before: Mapping[int, int]) -> dict[int, int]:
    """Return the counts by step, in order, that have come since those before."""
    steps = {step: count - before.get(step, 0) for step, count in sorted(latencies.items())}
    return {step: count for step, count in steps.items() if count}


def quantile_us(latencies: Mapping[int, int], part: float) -> float:
    """Return the latency below which a part of them lies, linear within a step, in microseconds; 0 without any.

    Args:
        latencies: Counts by step, in order.
        part: Between 0 and 1.
    """
    left = part * sum(latencies.values())
    for step, count in latencies.items():
        if left <= count:
            begin = latency_bound_us(step - 1)
            return begin + (latency_bound_us(step) - begin) * left / count
        left -= count
    return 0.0
