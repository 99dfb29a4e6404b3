"""Measures which engines make a model faster here, and leaves the others out.

Candidates are measured whole, as they would be served: segments that are fast by themselves can make a model slower,
because a boundary costs calls, copies and fusions.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import logging
import math
import os
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from engines import measuring
from engines.cache import EngineCache, engine_key
from engines.compiled_model import CompiledModel
from engines.envelope import current_platform
from engines.errors import EngineError, InvalidInputError
from engines.files import sha256_of_file
from engines.onnxruntime_backend import native_version
from engines.options import CompileOptions
from engines.plan import specs
from engines.profiles import sampled
from engines.registry import get_backend
from engines.worker import Worker
from partitioner import Partition, ReasonCode, Segment, Verdict, segment_hash

logger = logging.getLogger(__name__)

CALL_OVERHEAD_MS = 0.01
"""What a call of an engine costs beside its work; a segment that gains less is not worth its boundary."""

MARGIN = 1.03
"""How many times faster a candidate with more engines must be."""

CONFIDENCE = 0.98
"""Half of 1.96: it must be faster in so many times the root of the turns beyond half of them. Then the 95 % interval of
the median lies above 1, whatever the distribution is."""

CLOSE = 1.1
"""Candidates that take up to so many times the fastest's time are measured again, longer."""

SEGMENTS_S, CANDIDATES_S, CLOSE_S = 2.0, 2.0, 4.0
"""About how long each measurement takes, whatever the number of segments or candidates."""

TIMEOUT_S = 600.0

MOST_ROUNDS = 2
"""Engines that are left out can change the cut of the others, which is then measured once more."""


NOTHING_MEASURED: Mapping[str, Any] = {"candidates": [], "chosen": "all native", "segments": []}
"""Figures of a model that has engines in bodies only."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTimes:
    """What a segment takes in its engine and natively."""

    engine_ms: float
    native_ms: float

    @property
    def gain_ms(self) -> float:
        """What the engine saves."""
        return self.native_ms - self.engine_ms


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The model with some of its engines.

    Attributes:
        name: For people.
        segments: Names of the segments that run in their engines.
    """

    name: str
    segments: tuple[str, ...]


def list_candidates(segments: Sequence[Segment], times: Mapping[str, SegmentTimes]) -> list[Candidate]:
    """What to measure: no engine, the one that gains most, those that gain anything, and all."""
    best = max(segments, key=lambda s: (times[s.name].gain_ms, len(s.nodes)))
    faster = tuple(s.name for s in segments if times[s.name].gain_ms > CALL_OVERHEAD_MS)
    return [
        Candidate(name="all native", segments=()),
        Candidate(name="one engine", segments=(best.name,)),
        Candidate(name="faster engines", segments=faster),
        Candidate(name="minimum cut", segments=tuple(s.name for s in segments)),
    ]


def choose(candidates: Sequence[Candidate], turns: Mapping[str, Sequence[float]]) -> Candidate:
    """The candidate with the fewest engines that none with more engines clearly beats.

    Args:
        candidates: At least one.
        turns: What each took in ms, turn by turn, by name; only those that are here can be chosen.
    """
    contestants = sorted((c for c in candidates if c.name in turns), key=lambda c: len(c.segments))
    chosen = contestants[0]
    for challenger in contestants[1:]:
        if is_faster(turns[challenger.name], turns[chosen.name]):
            chosen = challenger
    return chosen


def close_ones(turns: Mapping[str, Sequence[float]]) -> list[str]:
    """Names of the fastest and of those that are nearly as fast."""
    medians = {name: statistics.median(times) for name, times in turns.items()}
    return [name for name, ms in medians.items() if ms <= CLOSE * min(medians.values())]


def is_faster(challenger: Sequence[float], holder: Sequence[float]) -> bool:
    """Whether turns are shorter than those of the same index, by more than ``MARGIN`` and beyond chance.

    The shortest one must be, too: where neighbours take a core away for a while, a run on two threads waits for the
    thread that has none, and one that hardly needs a second thread seems faster, but isn't when the core is back.
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
        """Why a segment is left out."""
        times = self.times[segment.name]
        detail = f"Its segment: engine {times.engine_ms:.3g} ms, native {times.native_ms:.3g} ms"
        if times.gain_ms > 0:
            chosen, full = self.p50_ms[self.chosen.name], self.p50_ms["minimum cut"]
            detail += f"; the model: {full:.3g} ms with all engines, {chosen:.3g} ms with {self.chosen.name}"
        return Verdict(ReasonCode.NOT_FASTER, f"{detail}.")


class Tuner:
    """Tunes one compilation.

    Attributes:
        figures: What was measured and chosen, for the report; None if nothing was.
        drops_bodies: Whether an earlier compilation has found that engines in bodies don't make the model faster.
    """

    def __init__(
        self,
        source: pathlib.Path,
        options: CompileOptions,
        *,
        engine: str,
        cache: EngineCache | None,
        worker: Worker,
        folder: pathlib.Path,
    ) -> None:
        self.figures: Mapping[str, Any] | None = None
        self.drops_bodies = False
        self._source = source
        self._options = options
        self._engine = engine
        self._cache = cache
        self._worker = worker
        self._folder = folder
        self._rounds_left = MOST_ROUNDS if options.tune else 0
        self._expected: set[frozenset[str]] | None = None
        self._key = ""

    def recall(self, partition: Partition) -> Partition:
        """Leave out what an earlier compilation of the same model on this machine has left out, without measuring."""
        if not self._rounds_left or self._cache is None:
            return partition
        self._key = self._verdict_key(partition)
        record = self._cache.get_record(self._key)
        if record is None:
            return partition
        try:
            verdicts = {name: Verdict(ReasonCode(c), str(d)) for name, (c, d) in record["demoted"].items()}
            figures = {**record["tuning"]}
            drops_bodies = not figures.get("bodies", {"kept": True})["kept"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("Ignoring a damaged tuning verdict: %s", error)
            return partition
        if not verdicts.keys() <= {node.name for node in partition.graph.nodes}:
            return partition
        self.figures, self.drops_bodies, self._rounds_left, self._key = figures, drops_bodies, 0, ""
        return partition.demote(verdicts) if verdicts else partition

    def judge(self, partition: Partition, compiled: CompiledModel) -> dict[str, Verdict]:
        """Measure a compiled model, and say which nodes are to run natively; none if nothing changes any more.

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
            logger.warning("%s is not tuned, so all its engines stay: %s", self._source, error)
            self._rounds_left = 0
            return {}
        if outcome is None:
            logger.warning(
                "%s is not tuned, so all its engines stay: it runs on no generated input. Give inputs that it runs on.",
                self._source,
            )
            self._rounds_left = 0
            return {}
        self.figures = outcome.as_json()
        kept = outcome.chosen.segments
        logger.info("Tuning chose %s: %d of %d engines", outcome.chosen.name, len(kept), len(partition.segments))
        self._expected = _node_sets([s for s in partition.segments if s.name in kept])
        return {n.name: outcome.verdict(s) for s in partition.segments if s.name not in kept for n in s.nodes}

    def keeps_bodies(self, partition: Partition, compiled: CompiledModel, names: Sequence[str]) -> bool:
        """Whether engines in bodies make a model faster; it is measured once.

        Args:
            partition: Of the model's own graph. Its segments are settled.
            compiled: With engines in bodies.
            names: Names of their segments.

        Raises:
            InvalidInputError: The model does not run on the given inputs.
        """
        if not self._options.tune or not names:
            return True
        if self.figures is None or "bodies" not in self.figures:
            figures = self._measure_bodies(self._subject(partition, compiled), partition, names)
            if figures is None:
                logger.warning("%s: engines in its bodies are not tuned, so all of them stay", self._source)
                return True
            self.figures = {**(self.figures or NOTHING_MEASURED), "bodies": figures}
        return bool(self.figures["bodies"]["kept"])

    def _measure_bodies(
        self, subject: measuring.Subject, partition: Partition, names: Sequence[str]
    ) -> dict[str, Any] | None:
        own = [s.name for s in partition.segments]
        kept = {"native": own, "engines": [*own, *names]}
        try:
            turns = self._worker.call(measuring.measure_candidates, TIMEOUT_S, subject, kept, CLOSE_S)
        except InvalidInputError:
            raise
        except EngineError as error:
            logger.warning("%s", error)
            return None
        if turns is None:
            return None
        p50 = {f"{name}_ms": round(statistics.median(times), 5) for name, times in turns.items()}
        return {**p50, "kept": is_faster(turns["engines"], turns["native"])}

    def remember(self, demoted: Mapping[str, Verdict]) -> None:
        """Keep the outcome for the next compilation.

        Args:
            demoted: Every node that this compilation has taken out of engines, whatever the reason.
        """
        if self._cache is not None and self._key and self.figures is not None:
            reasons = {name: [verdict.code, verdict.detail] for name, verdict in demoted.items()}
            self._cache.put_record(self._key, {"demoted": reasons, "tuning": self.figures})

    def _subject(self, partition: Partition, compiled: CompiledModel) -> measuring.Subject:
        path = self._folder / "measured.onnx"
        compiled.save(path)
        return measuring.Subject(
            compiled=path,
            source=self._source,
            inputs=sampled(specs(partition.graph.inputs), self._options.shapes),
            given=self._options.samples,
            threads=self._options.threads,
            shares_cores=self._options.shares_cores,
        )

    def _measure(self, partition: Partition, compiled: CompiledModel) -> _Outcome | None:
        subject = self._subject(partition, compiled)
        measured = self._worker.call(measuring.measure_segments, TIMEOUT_S, subject, SEGMENTS_S)
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
        self, subject: measuring.Subject, kept: Mapping[str, Sequence[str]], seconds: float
    ) -> Mapping[str, Sequence[float]]:
        turns = self._worker.call(measuring.measure_candidates, TIMEOUT_S, subject, kept, seconds)
        assert turns is not None  # the segments have just been measured on the same inputs
        return turns

    def _verdict_key(self, partition: Partition) -> str:
        backend = get_backend(self._engine)
        options = dataclasses.replace(self._options, samples=None)
        samples = self._options.samples
        return engine_key(
            purpose="tuning",
            source=sha256_of_file(self._source),
            segments=json.dumps([segment_hash(partition.graph, s) for s in partition.segments]),
            samples=sha256_of_file(samples) if samples else "",
            options=json.dumps(dataclasses.asdict(options), sort_keys=True, default=str),
            backend=f"{backend.name} {backend.version()}",
            native=f"onnxruntime {native_version()}",
            platform=current_platform(),
            builder=importlib.metadata.version("trtnode"),
            device=f"{backend.device().features} {backend.device().name} {os.cpu_count()}",
        )


def _segment_times(turns: Mapping[str, Sequence[float]]) -> SegmentTimes:
    return SegmentTimes(engine_ms=statistics.median(turns["engine"]), native_ms=statistics.median(turns["native"]))


def _node_sets(segments: Sequence[Segment]) -> set[frozenset[str]]:
    return {frozenset(node.name for node in segment.nodes) for segment in segments}
