"""Candidates of a measurement, which are the model with some of its engines, and the choice among them."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from trtnode.engines.inputs.samples import Feeds
from trtnode.engines.tuning.decision import Confidence, Decision, decide
from trtnode.engines.tuning.timing_inputs import elements_of
from trtnode.partitioner.cut.labels import ReasonCode, Verdict
from trtnode.partitioner.cut.segments import Segment

CALL_OVERHEAD_MS = 0.01
"""Cost of an engine's call beside its work. A segment that gains less is not worth its boundary."""

NO_ENGINE, GAINING, ALL_ENGINES = "all native", "faster engines", "minimum cut"
"""Names of candidates in the report: without engines, with those that are faster alone, with all."""


DIFFERS = 1.05
"""Both forms must be so many times as fast as the other one, each at its size."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTimes:
    """Times of a segment in its engine and natively."""

    engine_ms: float
    native_ms: float

    @classmethod
    def of(cls, turns: Mapping[str, Sequence[float]]) -> SegmentTimes:
        """Return the medians of turns under ``engine`` and ``native``."""
        return cls(engine_ms=statistics.median(turns["engine"]), native_ms=statistics.median(turns["native"]))

    @property
    def gain_ms(self) -> float:
        """Time that the engine saves."""
        return self.native_ms - self.engine_ms


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The model with some of its engines.

    Attributes:
        name: Name in the report.
        segments: Names of the segments that run in their engines.
    """

    name: str
    segments: tuple[str, ...]


def gaining(segments: Sequence[Segment], times: Mapping[str, SegmentTimes]) -> Candidate:
    """Return the candidate of the segments that are faster in their engines alone, among those that were measured."""
    faster = (s.name for s in segments if s.name in times and times[s.name].gain_ms > CALL_OVERHEAD_MS)
    return Candidate(name=GAINING, segments=tuple(faster))


def choose(candidates: Sequence[Candidate], turns: Mapping[str, Sequence[float]]) -> Candidate:
    """Choose the candidate with the fewest engines that none with more engines beats.

    Args:
        candidates: At least one.
        turns: Time of each turn in ms, by name of the candidate; only those with turns can be chosen.
    """
    contestants = sorted((c for c in candidates if c.name in turns), key=lambda c: len(c.segments))
    chosen = contestants[0]
    for challenger in contestants[1:]:
        if decide(turns[challenger.name], turns[chosen.name]).is_gain:
            chosen = challenger
    return chosen


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """The size below which requests run natively.

    Attributes:
        elements: Of all inputs together; requests that have fewer are small.
        shapes: Of the inputs of the small request that was measured.
        gain: How many times as fast engines answered it: less than 1.
    """

    elements: int
    shapes: Mapping[str, Sequence[int]]
    gain: float

    def as_json(self) -> dict[str, Any]:
        """Return it for the report."""
        shapes = {name: list(shape) for name, shape in self.shapes.items()}
        return {"elements": self.elements, "shapes": shapes, "gain": round(self.gain, 3)}


def border_between(small: Feeds, usual: Feeds, loss: float, gain: float) -> Border | None:
    """Return the border between a small request and a usual one.

    The gain of engines is taken as a power of the size between the two, and is 1 at the border.

    Args:
        small: Inputs of the small one.
        usual: Those of the usual one, which have more elements.
        loss: How many times as fast engines answer the small one.
        gain: The same for the usual one.

    Returns:
        None unless they lose clearly at the small one, and gain clearly at the usual one.
    """
    if loss > 1 / DIFFERS or gain < DIFFERS:
        return None
    few, share = elements_of(small), math.log(1 / loss) / math.log(gain / loss)
    elements = math.ceil(few * (elements_of(usual) / few) ** share)
    return Border(elements=elements, shapes={name: array.shape for name, array in small.items()}, gain=loss)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredChoice:
    """A measurement and the choice that follows.

    Attributes:
        times: Of segments that were measured alone.
        candidates: In order of their engines.
        p50_ms: Median time of the model, by name of the candidate.
        chosen: One of the candidates.
        decision: About all engines in place of none; None where others were compared.
        sizes: Number of unlike sizes that took turns; times are their mean.
        border: Between requests that run natively and those for all engines, should these be chosen.
    """

    times: Mapping[str, SegmentTimes]
    candidates: Sequence[Candidate]
    p50_ms: Mapping[str, float]
    chosen: Candidate
    decision: Decision | None = None
    sizes: int = 1
    border: Border | None = None

    def __str__(self) -> str:
        """Tell all figures and the choice."""
        figures = ", ".join(f"{c.name} {self.p50_ms[c.name]:.3g} ms" for c in self.candidates)
        turns = f" (mean of {self.sizes} sizes in turn)" if self.sizes > 1 else ""
        return f"{figures}{turns}; {self.chosen.name} is kept"

    def as_json(self) -> dict[str, Any]:
        """Return the figures for the report."""
        return {
            "candidates": [
                {"name": c.name, "p50_ms": round(self.p50_ms[c.name], 5), "segments": list(c.segments)}
                for c in self.candidates
            ],
            "chosen": self.chosen.name,
            "sizes": self.sizes,
            **({"border": self.border.as_json()} if self.border and self.chosen.name == ALL_ENGINES else {}),
            **({} if self.decision is None else self.decision.as_json()),
            "segments": [
                {
                    "name": name,
                    "engine_ms": round(times.engine_ms, 5),
                    "native_ms": round(times.native_ms, 5),
                    "kept": name in self.chosen.segments,
                }
                for name, times in self.times.items()
            ],
        }

    def verdict(self, segment: Segment) -> Verdict:
        """Return the verdict on a segment that is left out."""
        times = self.times.get(segment.name)
        chosen, full = self.p50_ms[self.chosen.name], self.p50_ms[ALL_ENGINES]
        model = f"the model: {full:.3g} ms with all engines, {chosen:.3g} ms with {self.chosen.name}"
        if self.sizes > 1:
            model += f", on samples of {self.sizes} sizes in turn (`lengths` of a server pads texts to few)"
        if self.decision is not None and self.decision.confidence is Confidence.UNKNOWN:
            return Verdict(ReasonCode.NOT_FASTER, f"T{model[1:]}: a noisy measurement, so the estimate decides.")
        if times is None:
            return Verdict(ReasonCode.NOT_FASTER, f"T{model[1:]}.")
        alone = f"The segment takes {times.engine_ms:.3g} ms in an engine, {times.native_ms:.3g} ms natively"
        return Verdict(ReasonCode.NOT_FASTER, f"{alone}; {model}." if times.gain_ms > 0 else f"{alone}.")
