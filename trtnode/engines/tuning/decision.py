"""Decides between two calls by their turns, while they are measured and afterwards.

Turns of the same index were next to each other, so their ratio leaves out the drift of the machine; and the fastest
turns are those that other programs disturbed least. A decision is clear where both say the same.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

MARGIN, MARGIN_OF_FEW = 1.03, 1.1
"""A challenger must be so many times as fast; the second one counts for fewer than ``FEW`` turns."""

FEW = 5

LEAD = 7
"""A side is clearly ahead with so many turns more than the other. If each turn is right in 3 of 4 cases, the wrong side
gets there once in 2188 measurements (the gambler's ruin: a sequential sign test by Wald)."""

FAR, FEWEST = 2.0, 3
"""So few turns are enough where one side takes so many times as long in each of them, and nothing else computes."""

CONFIDENCE = 0.98
"""Half of 1.96: the 95 % interval of a median ends so many times the root of the turns away from the middle one."""

NARROW = 1.1
"""An interval whose ends are no further apart holds no mistake that matters."""


class Confidence(enum.StrEnum):
    """Grounds of a decision.

    Attributes:
        CLEAR: One side is ahead by ``LEAD`` turns, and its fastest turns are ahead as well; or all of few turns agree.
        CLOSE: Nobody is, and the two differ by little: the fastest turns decide.
        LIKELY: The turns are scattered, but the interval of their gain lies on the side of the fastest turns.
        UNKNOWN: It doesn't; or of few turns some disagree, or other programs had the processor meanwhile.
        PARTIAL: It was measured on some of the cores, beside requests.
    """

    CLEAR = "clear"
    CLOSE = "close"
    LIKELY = "likely"
    UNKNOWN = "unknown"
    PARTIAL = "partial"


PROVISIONAL = (Confidence.LIKELY, Confidence.UNKNOWN, Confidence.PARTIAL)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The comparison of a challenger with the one that is there.

    Attributes:
        faster: True if it is faster by the margin, as far as the turns tell.
        confidence: The grounds for that.
        gain: How many times as fast it is: the median of the turns' ratios, between the ends of its 95 % interval.
    """

    faster: bool
    confidence: Confidence
    gain: tuple[float, float, float]

    @property
    def is_gain(self) -> bool:
        """True if it is faster, and not perhaps slower."""
        return self.faster and self.confidence is not Confidence.UNKNOWN

    @property
    def middle(self) -> float:
        """The gain in the middle of its interval."""
        return self.gain[1]

    def as_json(self) -> dict[str, Any]:
        """Return the gain and its confidence for the report."""
        return {"gain": [round(ratio, 3) for ratio in self.gain], "confidence": str(self.confidence)}


def is_provisional(tuning: Mapping[str, Any] | None) -> bool:
    """Return whether the figures of a report are of a choice that a measurement at a quieter time may change."""
    return tuning is not None and tuning.get("confidence") in PROVISIONAL


def is_clear(challenger: Sequence[float], holder: Sequence[float]) -> bool:
    """Return whether more turns would hardly change the decision."""
    ratios = _ratios(challenger, holder)
    ahead = sum(1 if ratio >= MARGIN else -1 for ratio in ratios)
    return abs(ahead) >= LEAD and (ahead > 0) == (_gain_of_fastest(challenger, holder) >= MARGIN)


def is_far(challenger: Sequence[float], holder: Sequence[float]) -> bool:
    """Return whether one of the two took twice as long in each of several turns."""
    ratios = _ratios(challenger, holder)
    return len(ratios) >= FEWEST and (ratios[0] >= FAR or ratios[-1] <= 1 / FAR)


def decide(challenger: Sequence[float], holder: Sequence[float], *, disturbed: bool = False) -> Decision:
    """Decide whether a challenger is faster than the one that is there.

    Args:
        challenger: Its turns in ms, at least one.
        holder: Turns of the other one, as many.
        disturbed: True if this process had little of the processor meanwhile; it counts for few turns alone.
    """
    ratios = _ratios(challenger, holder)
    outside = max(0, math.floor(len(ratios) / 2 - CONFIDENCE * math.sqrt(len(ratios))) - 1)
    low, middle, high = gain = ratios[outside], statistics.median(ratios), ratios[-1 - outside]
    if len(ratios) < FEW:
        agree = low > 1 or high < MARGIN_OF_FEW
        confidence = Confidence.CLEAR if agree and not disturbed else Confidence.UNKNOWN
        return Decision(faster=low > 1 and middle >= MARGIN_OF_FEW, confidence=confidence, gain=gain)
    faster = _gain_of_fastest(challenger, holder) >= MARGIN
    if is_clear(challenger, holder):
        confidence = Confidence.CLEAR
    elif high <= NARROW * low:
        confidence = Confidence.CLOSE
    else:
        confidence = Confidence.LIKELY if (low > 1 if faster else high < MARGIN) else Confidence.UNKNOWN
    return Decision(faster=faster, confidence=confidence, gain=gain)


def _ratios(challenger: Sequence[float], holder: Sequence[float]) -> list[float]:
    """Return how many times as fast each turn was, in rising order."""
    return sorted(theirs / ours for ours, theirs in zip(challenger, holder, strict=True))


def _gain_of_fastest(challenger: Sequence[float], holder: Sequence[float]) -> float:
    """Return how many times as fast the fastest tenth of the turns is."""
    return sorted(holder)[len(holder) // 10] / sorted(challenger)[len(challenger) // 10]
