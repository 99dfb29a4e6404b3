"""Measures which engines make a model faster here, and leaves the others out.

Candidates are measured whole, as they would be served. Segments that are fast alone can make a model slower, because a
boundary costs calls, copies and fusions. A difference below the margin leaves the engines out: without them a model
takes less memory and loads faster. Where nothing can be measured, or so noisily that not even
the sign of the difference is known, the estimate decides. So it does about a model that needs onnx.reference, which may
take minutes for one run. A choice made among scattered times is provisional, and not remembered.
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from trtnode.engines.build.context import CompileContext
from trtnode.engines.build.options import Choice
from trtnode.engines.errors import EngineError, InvalidInputError
from trtnode.engines.runtime.options import RunOptions
from trtnode.engines.runtime.plan import first_result
from trtnode.engines.tuning import timing
from trtnode.engines.tuning.candidates import (
    ALL_ENGINES,
    NO_ENGINE,
    Candidate,
    MeasuredChoice,
    SegmentTimes,
    choose,
    gaining,
)
from trtnode.engines.tuning.compilation_record import (
    CompilationRecord,
    Demoted,
    EngineChoice,
    conditions,
    recall_record,
    with_latest,
)
from trtnode.engines.tuning.decision import Confidence, decide, is_provisional
from trtnode.engines.tuning.measuring_turn import measuring
from trtnode.engines.tuning.memory_plan import gains_from_pattern, weight_bytes
from trtnode.engines.tuning.native_form import native_form
from trtnode.engines.tuning.timing_inputs import MOST_WEIGHT_BYTES, Subject, small_inputs
from trtnode.partitioner.cut.labels import Verdict
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.cut.segments import Segment
from trtnode.partitioner.model.mapped_weights import release_pages

logger = logging.getLogger(__name__)

R = TypeVar("R")

WHOLE_S, PARTS_S, SUBSET_S = 4.5, 2.0, 3.0
"""Seconds that each measurement takes at most, loading included: of the model with all engines and with none, of
its segments, and of the model with the engines that gain. A model that runs for seconds takes longer."""

ALMOST_ALL = 0.99
"""Share of one segment from which the others aren't measured alone: all that they take is less than the margin."""

TIMEOUT_S = 120.0

MOST_ROUNDS = 2
"""Most measurements. Leaving engines out can change the cut of the others, which is then measured once more."""


class Tuner:
    """Chooses the engines of one compilation. Those that can't run here all stay, and so do those without a fallback.

    Attributes:
        figures: Measurements and choice, for the report; None if nothing was measured.
    """

    def __init__(self, context: CompileContext, record: CompilationRecord) -> None:
        self.figures: Mapping[str, Any] | None = None
        self._context = context
        self._record = record
        choice = Choice.ALL if context.unchecked else context.options.choice
        if choice is not Choice.ALL and not context.source.runs_natively:
            choice = Choice.ESTIMATED
        self._rounds_left = MOST_ROUNDS if choice is Choice.MEASURED else 0
        self._estimates = choice is Choice.ESTIMATED and context.backend.on_cpu
        self._left_s = WHOLE_S + PARTS_S + SUBSET_S
        self._expected: set[frozenset[str]] | None = None
        self._conditions = ""

    def recall(self, partition: Partition) -> Partition:
        """Demote the nodes that an earlier compilation of the same model on this machine has demoted.

        Where nothing is to be measured, demote those that the estimate calls slower in engines. If that leaves all
        segments, their figures are those of a compilation that has measured them, if there was one.
        """
        whole = partition
        while self._estimates and (slower := self._slower_by_estimate(partition)):
            partition = partition.demote(slower)
        if not self._rounds_left and partition.segments == whole.segments and not self._context.unchecked:
            self.figures = self._measured_otherwise(partition)
        if not self._rounds_left:
            return partition
        self._conditions = conditions(self._context, shares_cores=str(self._context.options.shares_cores))
        known = None if self._context.options.measure_again else self._record.choices.get(self._conditions)
        if known is None or not known.demoted.keys() <= {node.name for node in partition.graph.nodes}:
            return partition
        self.figures, self._rounds_left, self._conditions = known.figures, 0, ""
        return partition.demote(known.demoted) if known.demoted else partition

    def _measured_otherwise(self, partition: Partition) -> Mapping[str, Any] | None:
        """Return the figures of an earlier compilation that has measured all these engines and was to choose."""
        options = dataclasses.replace(self._context.options, all_engines=False, measure=True)
        here = conditions(self._context, shares_cores=str(options.shares_cores))
        known = recall_record(self._context, options).choices.get(here)
        same = () if known is None else (c for c in known.figures["candidates"] if c["name"] == ALL_ENGINES)
        if known is None or not any(len(c["segments"]) == len(partition.segments) for c in same):
            return None
        figures = {name: figure for name, figure in known.figures.items() if name != "border"}
        return {**figures, "chosen": ALL_ENGINES}

    def find_slow_nodes(self, partition: Partition, write: Callable[[], pathlib.Path]) -> dict[str, Verdict]:
        """Measure a compiled model, or estimate it, and list the nodes whose engines don't make it faster.

        Args:
            partition: Of the model.
            write: Writes the compiled model, unless it is written, and returns the file.

        Returns:
            The reason for each node that is to run natively; none once the cut stays the same.

        Raises:
            InvalidInputError: The model does not run on the given inputs.
        """
        if self._estimates:
            return self._slower_by_estimate(partition)
        if self.options_to_measure(partition) is None:
            return {}
        self._rounds_left -= 1
        try:
            outcome = self._measure(partition, write())
        except InvalidInputError:
            raise
        except EngineError as error:
            return self._estimate(partition, str(error))
        if outcome is None:
            return self._estimate(partition, "it runs on no generated input. Give inputs that it runs on.")
        if is_provisional(outcome.as_json()):
            outcome = self._provisional(partition, outcome)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.figures = {**outcome.as_json(), "measured_at": now, "load": round(os.getloadavg()[0], 2)}
        kept = outcome.chosen.segments
        name = self._context.source.origin.name
        logger.info("%s: measured %s, with %d of %d engines", name, outcome, len(kept), len(partition.segments))
        self._expected = _node_sets([s for s in partition.segments if s.name in kept])
        return {n.name: outcome.verdict(s) for s in partition.segments if s.name not in kept for n in s.nodes}

    def options_to_measure(self, partition: Partition) -> RunOptions | None:
        """Return how the compiled model of a partition will be opened to measure it; None if it won't be."""
        measures = self._rounds_left and partition.segments and _node_sets(partition.segments) != self._expected
        return self._run_options(partition) if measures else None

    def _provisional(self, partition: Partition, outcome: MeasuredChoice) -> MeasuredChoice:
        """Return what is kept for now, and let the next compilation measure again."""
        assert outcome.decision is not None
        self._rounds_left, self._conditions = 0, ""
        low, _, high = outcome.decision.gain
        if outcome.decision.confidence is Confidence.UNKNOWN and self._context.backend.on_cpu:
            chosen = outcome.candidates[-1 if partition.gain_by_estimate() > 1 else 0]
            outcome = dataclasses.replace(outcome, chosen=chosen)
        logger.warning(
            "%s: noisy measurement (with engines %.2g to %.2g times as fast, 95 %% CI); %s is kept until the next one",
            *(self._context.source.origin, low, high, outcome.chosen.name),
        )
        return outcome

    def added_to(self, record: CompilationRecord, demoted: Demoted) -> CompilationRecord:
        """Return a record with what was measured, unless that is provisional.

        Args:
            record: Of the compilation.
            demoted: Every node that the compilation has taken out of engines, for any reason.
        """
        if not self._conditions or self.figures is None:
            return record
        choice = EngineChoice(demoted=demoted, figures=self.figures)
        return dataclasses.replace(record, choices=with_latest(record.choices, self._conditions, choice))

    def _subject(self, partition: Partition, compiled: pathlib.Path) -> Subject:
        options, inputs = self._context.options, self._context.sampled_inputs(partition.graph)
        data = self._context.data_to_time_on
        own_sizes = options.check_inputs is not None or data is not None or options.padded
        may_divide = not own_sizes and weight_bytes(partition.graph) <= MOST_WEIGHT_BYTES
        return Subject(
            compiled=compiled,
            source=self._context.source.path,
            native=native_form(self._context, partition.graph).path,
            inputs=inputs,
            small=small_inputs(inputs, options.shapes) if may_divide else None,
            given=options.check_inputs,
            data=data,
            run=self._run_options(partition),
        )

    def _run_options(self, partition: Partition) -> RunOptions:
        options, pattern = self._context.options, gains_from_pattern(partition.graph)
        return RunOptions(threads=options.threads, shares_cores=options.shares_cores, memory_pattern=pattern)

    def _estimate(self, partition: Partition, problem: str) -> dict[str, Verdict]:
        """Choose without measuring, from now on."""
        self._rounds_left, self._estimates = 0, self._context.backend.on_cpu
        instead = "the estimate chooses its engines" if self._estimates else "all its engines stay"
        logger.warning("%s is not measured, so %s: %s", self._context.source.origin, instead, problem)
        return self._slower_by_estimate(partition) if self._estimates else {}

    def _slower_by_estimate(self, partition: Partition) -> dict[str, Verdict]:
        """List the nodes that the estimate calls slower in engines, without segments that ONNX Runtime can't run."""
        slower = partition.slower_by_estimate()
        if not slower or self._context.source.runs_natively:
            return slower
        lacking = self._context.reference_nodes(partition.graph)
        native = [s for s in partition.segments if lacking and not any(first_result(n) in lacking for n in s.nodes)]
        return {node.name: slower[node.name] for segment in native for node in segment.nodes if node.name in slower}

    def _measure(self, partition: Partition, compiled: pathlib.Path) -> MeasuredChoice | None:
        """Measure the model with all engines and with none; of several engines, also with those that gain alone."""
        subject = self._subject(partition, compiled)
        segments = partition.segments
        release_pages(partition.graph.model)
        candidates = [
            Candidate(name=NO_ENGINE, segments=()),
            Candidate(name=ALL_ENGINES, segments=tuple(s.name for s in segments)),
        ]
        timed = self._call(timing.measure_candidates, WHOLE_S, subject, _kept(candidates))
        if timed is None:
            return None
        self._context.loaded.add(subject.source)
        decision = decide(timed.turns[ALL_ENGINES], timed.turns[NO_ENGINE], disturbed=timed.disturbed)
        outcome = MeasuredChoice(
            times={},
            candidates=candidates,
            p50_ms=_medians(timed.turns),
            chosen=candidates[decision.faster],
            decision=decision,
            sizes=timed.sizes,
            border=timed.border,
        )
        if decision.confidence is Confidence.UNKNOWN or partition.share_of_largest() > ALMOST_ALL:
            return outcome
        try:
            return self._with_subset(subject, segments, outcome)
        except EngineError as error:
            logger.debug("Segments of %s are not measured alone: %s", self._context.source.origin, error)
            return outcome

    def _with_subset(self, subject: Subject, segments: Sequence[Segment], outcome: MeasuredChoice) -> MeasuredChoice:
        """Measure the engines that gain alone, together, against what was chosen before."""
        measured = self._call(timing.measure_segments, PARTS_S, subject)
        subject = dataclasses.replace(subject, small=None)
        assert measured is not None  # the whole model has just been measured on the same inputs
        outcome = dataclasses.replace(outcome, times={name: SegmentTimes.of(turns) for name, turns in measured.items()})
        subset, (native, whole) = gaining(segments, outcome.times), outcome.candidates
        if subset.segments in (native.segments, whole.segments):
            return outcome
        pair = [outcome.chosen, subset]
        timed = self._call(timing.measure_candidates, SUBSET_S, subject, _kept(pair))
        assert timed is not None
        return dataclasses.replace(
            outcome,
            candidates=[native, subset, whole],
            p50_ms={**outcome.p50_ms, **_medians(timed.turns)},
            chosen=choose(pair, timed.turns),
        )

    def _call(self, job: Callable[..., R], seconds: float, *arguments: object) -> R:
        """Have the worker measure for some seconds, or for those that are left of all."""
        began = time.monotonic()
        given = max(0.1, min(seconds, self._left_s))
        try:
            with measuring():
                began = time.monotonic()
                return self._context.worker.call(job, TIMEOUT_S, *arguments, given)
        finally:
            self._left_s -= time.monotonic() - began


def _kept(candidates: Sequence[Candidate]) -> dict[str, tuple[str, ...]]:
    return {candidate.name: candidate.segments for candidate in candidates}


def _medians(turns: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(times) for name, times in turns.items()}


def _node_sets(segments: Sequence[Segment]) -> set[frozenset[str]]:
    return {frozenset(node.name for node in segment.nodes) for segment in segments}
