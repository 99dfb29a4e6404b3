"""Measures which engines make a model faster here, and leaves the others out.

Candidates are measured whole, as they would be served. Segments that are fast alone can make a model slower, because a
boundary costs calls, copies and fusions.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from engines.artifact.cache import engine_key
from engines.artifact.compiled_model import CompiledModel
from engines.artifact.files import sha256_of_file
from engines.backends.build_environment import measuring_environment
from engines.build.context import CompileContext
from engines.errors import EngineError, InvalidInputError
from engines.onnxruntime.limits import native_version
from engines.tuning import timing
from partitioner import Partition, ReasonCode, Segment, Verdict, segment_hash

logger = logging.getLogger(__name__)

CALL_OVERHEAD_MS = 0.01
"""Cost of an engine's call beside its work. A segment that gains less is not worth its boundary."""

MARGIN = 1.03
"""A candidate with more engines must be so many times as fast."""

CONFIDENCE = 0.98
"""Half of 1.96: it must be faster in so many times the root of the turns beyond half of them. Then the 95 % interval of
the median lies above 1, for any distribution."""

CLOSE = 1.1
"""Candidates that take up to so many times the fastest's time are measured again, longer."""

SEGMENTS_S, CANDIDATES_S, CLOSE_S = 2.0, 2.0, 4.0
"""Seconds that each measurement takes, about, for any number of segments or candidates."""

TIMEOUT_S = 600.0

MOST_ROUNDS = 2
"""Most measurements. Leaving engines out can change the cut of the others, which is then measured once more."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTimes:
    """Times of a segment in its engine and natively."""

    engine_ms: float
    native_ms: float

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


def list_candidates(segments: Sequence[Segment], times: Mapping[str, SegmentTimes]) -> list[Candidate]:
    """List the candidates: no engine, the one that gains most, those that gain anything, and all."""
    best = max(segments, key=lambda s: (times[s.name].gain_ms, len(s.nodes)))
    faster = tuple(s.name for s in segments if times[s.name].gain_ms > CALL_OVERHEAD_MS)
    return [
        Candidate(name="all native", segments=()),
        Candidate(name="one engine", segments=(best.name,)),
        Candidate(name="faster engines", segments=faster),
        Candidate(name="minimum cut", segments=tuple(s.name for s in segments)),
    ]


def choose(candidates: Sequence[Candidate], turns: Mapping[str, Sequence[float]]) -> Candidate:
    """Choose the candidate with the fewest engines that none with more engines clearly beats.

    Args:
        candidates: At least one.
        turns: Time of each turn in ms, by name of the candidate; only those with turns can be chosen.
    """
    contestants = sorted((c for c in candidates if c.name in turns), key=lambda c: len(c.segments))
    chosen = contestants[0]
    for challenger in contestants[1:]:
        if is_faster(turns[challenger.name], turns[chosen.name]):
            chosen = challenger
    return chosen


def close_ones(turns: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the names of the fastest and of those that are nearly as fast."""
    medians = {name: statistics.median(times) for name, times in turns.items()}
    return [name for name, ms in medians.items() if ms <= CLOSE * min(medians.values())]


def is_faster(challenger: Sequence[float], holder: Sequence[float]) -> bool:
    """Return whether turns are shorter than those of the same index, by more than ``MARGIN`` and beyond chance.

    The shortest turn must be shorter, too. Neighbours may take a core away for a while; then a run on two threads
    waits for one of them. A run that hardly needs a second thread seems faster, but isn't once the core is back.
    """
    ratios = [theirs / ours for ours, theirs in zip(challenger, holder, strict=True)]
    agreeing = sum(ratio > 1 for ratio in ratios)
    needed = min(len(ratios), len(ratios) / 2 + CONFIDENCE * math.sqrt(len(ratios)))
    return statistics.median(ratios) >= MARGIN and agreeing >= needed and min(challenger) < min(holder)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    times: Mapping[str, SegmentTimes]
    candidates: Sequence[Candidate]
    p50_ms: Mapping[str, float]
    chosen: Candidate

    def as_json(self) -> dict[str, Any]:
        return {
            "candidates": [
                {"name": c.name, "p50_ms": round(self.p50_ms[c.name], 5), "segments": list(c.segments)}
                for c in self.candidates
            ],
            "chosen": self.chosen.name,
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
        times = self.times[segment.name]
        detail = f"Its segment: engine {times.engine_ms:.3g} ms, native {times.native_ms:.3g} ms"
        if times.gain_ms > 0:
            chosen, full = self.p50_ms[self.chosen.name], self.p50_ms["minimum cut"]
            detail += f"; the model: {full:.3g} ms with all engines, {chosen:.3g} ms with {self.chosen.name}"
        return Verdict(ReasonCode.NOT_FASTER, f"{detail}.")


class Tuner:
    """Tunes one compilation.

    Attributes:
        figures: Measurements and choice, for the report; None if nothing was measured.
    """

    def __init__(self, context: CompileContext) -> None:
        self.figures: Mapping[str, Any] | None = None
        self._context = context
        self._rounds_left = MOST_ROUNDS if context.options.tune else 0
        self._expected: set[frozenset[str]] | None = None
        self._key = ""

    def recall(self, partition: Partition) -> Partition:
        """Demote the nodes that an earlier compilation of the same model on this machine has demoted."""
        if not self._rounds_left or self._context.cache is None:
            return partition
        self._key = self._verdict_key(partition)
        record = self._context.cache.get_record(self._key)
        if record is None:
            return partition
        try:
            verdicts = {name: Verdict(ReasonCode(c), str(d)) for name, (c, d) in record["demoted"].items()}
            figures = {**record["tuning"]}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("Ignoring a damaged tuning verdict: %s", error)
            return partition
        if not verdicts.keys() <= {node.name for node in partition.graph.nodes}:
            return partition
        self.figures, self._rounds_left, self._key = figures, 0, ""
        return partition.demote(verdicts) if verdicts else partition

    def find_slow_nodes(self, partition: Partition, compiled: CompiledModel) -> dict[str, Verdict]:
        """Measure a compiled model, and list the nodes whose engines don't make it faster.

        Returns:
            The reason for each node that is to run natively; none once the cut stays the same.

        Raises:
            InvalidInputError: The model does not run on the given inputs.
        """
        if not self._rounds_left or not partition.segments or _node_sets(partition.segments) == self._expected:
            return {}
        self._rounds_left -= 1
        try:
            outcome = self._measure(partition, compiled)
        except InvalidInputError:
            raise
        except EngineError as error:
            logger.warning("%s is not tuned, so all its engines stay: %s", self._context.source.origin, error)
            self._rounds_left = 0
            return {}
        if outcome is None:
            logger.warning(
                "%s is not tuned, so all its engines stay: it runs on no generated input. Give inputs that it runs on.",
                self._context.source.origin,
            )
            self._rounds_left = 0
            return {}
        self.figures = outcome.as_json()
        kept = outcome.chosen.segments
        logger.info("Tuning chose %s: %d of %d engines", outcome.chosen.name, len(kept), len(partition.segments))
        self._expected = _node_sets([s for s in partition.segments if s.name in kept])
        return {n.name: outcome.verdict(s) for s in partition.segments if s.name not in kept for n in s.nodes}

    def remember(self, demoted: Mapping[str, Verdict]) -> None:
        """Record the outcome for the next compilation.

        Args:
            demoted: Every node that this compilation has taken out of engines, for any reason.
        """
        if self._context.cache is not None and self._key and self.figures is not None:
            reasons = {name: [verdict.code, verdict.detail] for name, verdict in demoted.items()}
            self._context.cache.put_record(self._key, {"demoted": reasons, "tuning": self.figures})

    def _subject(self, partition: Partition, compiled: CompiledModel) -> timing.Subject:
        options, path = self._context.options, self._context.folder / "measured.onnx"
        compiled.save(path)
        return timing.Subject(
            compiled=path,
            source=self._context.source.path,
            inputs=self._context.sampled_inputs(partition.graph),
            given=options.samples,
            threads=options.threads,
            shares_cores=options.shares_cores,
        )

    def _measure(self, partition: Partition, compiled: CompiledModel) -> _Outcome | None:
        subject = self._subject(partition, compiled)
        measured = self._context.worker.call(timing.measure_segments, TIMEOUT_S, subject, SEGMENTS_S)
        if measured is None:
            return None
        times = {name: _segment_times(turns) for name, turns in measured.items()}
        candidates = list_candidates(partition.segments, times)
        distinct = {c.name: c.segments for c in {c.segments: c for c in reversed(candidates)}.values()}
        turns = self._time(subject, distinct, CANDIDATES_S)
        close = close_ones(turns)
        if len(close) > 1:
            turns = {**turns, **self._time(subject, {name: distinct[name] for name in close}, CLOSE_S)}
        p50 = {name: statistics.median(t) for name, t in turns.items()}
        same = {segments: p50[name] for name, segments in distinct.items()}
        chosen = choose(candidates, {name: turns[name] for name in close})
        return _Outcome(
            times=times, candidates=candidates, p50_ms={c.name: same[c.segments] for c in candidates}, chosen=chosen
        )

    def _time(
        self, subject: timing.Subject, kept: Mapping[str, Sequence[str]], seconds: float
    ) -> Mapping[str, Sequence[float]]:
        turns = self._context.worker.call(timing.measure_candidates, TIMEOUT_S, subject, kept, seconds)
        assert turns is not None  # the segments have just been measured on the same inputs
        return turns

    def _verdict_key(self, partition: Partition) -> str:
        options = dataclasses.replace(self._context.options, samples=None)
        samples = self._context.options.samples
        return engine_key(
            purpose="tuning",
            source=sha256_of_file(self._context.source.path),
            segments=json.dumps([segment_hash(partition.graph, s) for s in partition.segments]),
            samples=sha256_of_file(samples) if samples else "",
            options=json.dumps(dataclasses.asdict(options), sort_keys=True, default=str),
            **measuring_environment(self._context.backend, native_version()),
        )


def _segment_times(turns: Mapping[str, Sequence[float]]) -> SegmentTimes:
    return SegmentTimes(engine_ms=statistics.median(turns["engine"]), native_ms=statistics.median(turns["native"]))


def _node_sets(segments: Sequence[Segment]) -> set[frozenset[str]]:
    return {frozenset(node.name for node in segment.nodes) for segment in segments}
