"""One compilation: the steps from a partition to a compiled model, each from value to value."""

from __future__ import annotations

import dataclasses
import functools
import logging
import pathlib
import time
from collections.abc import Callable, Mapping

from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.artifact.refusal import Refusal
from trtnode.engines.build.builder import BuiltEngine, BuiltPartition, EngineBuilder
from trtnode.engines.build.checker import code_of, sampled_model
from trtnode.engines.build.context import TIMEOUT_S, CompileContext
from trtnode.engines.build.file_check import check_compiled, check_engines_alone
from trtnode.engines.build.partition_builder import PartitionBuilder, verdicts
from trtnode.engines.compile.embedding import embed, with_report, with_sizes, without_engines
from trtnode.engines.compile.partitioning import partition_source
from trtnode.engines.compile.processor_times import ProcessorTimes
from trtnode.engines.errors import WorkerError
from trtnode.engines.inputs.samples import read_given
from trtnode.engines.runtime.plan_loading import signature_of
from trtnode.engines.tuning.compilation_record import keep_record, recall_record
from trtnode.engines.tuning.precision_stage import PrecisionStage
from trtnode.engines.tuning.tuner import Tuner
from trtnode.partitioner.cut.labels import PASSING, ReasonCode, Verdict
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.model.mapped_weights import release_pages

logger = logging.getLogger(__name__)

MOST_FAILED_FILES = 8
"""Compiled files that may fail their check, each without one segment more. Then all segments are refused."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A partition on its way to a compiled model.

    Attributes:
        partition: Its segments are to run in engines.
        began: Time on ``time.perf_counter`` at which the first attempt began.
        demoted: Nodes that earlier attempts have taken out of engines, and why.
        engines: Float32 engines by segment name.
        built: The partition with engines of their final precisions; None before that step.
        compiled: The model with its engines; None before they are embedded.
        refused: Nodes that this attempt takes out of engines, and why. It then ends, and the next one is cut anew.
    """

    partition: Partition
    began: float
    demoted: Mapping[str, Verdict] = dataclasses.field(default_factory=dict)
    engines: Mapping[str, BuiltEngine] = dataclasses.field(default_factory=dict)
    built: BuiltPartition | None = None
    compiled: CompiledModel | None = None
    refused: Mapping[str, Verdict] = dataclasses.field(default_factory=dict)

    @property
    def exact(self) -> BuiltPartition:
        """The partition with its float32 engines."""
        return BuiltPartition(partition=self.partition, engines=self.engines)

    def without_refused(self) -> Attempt:
        """Return the next attempt, cut without the nodes that this one has refused."""
        return Attempt(
            partition=self.partition.demote(self.refused),
            began=self.began,
            demoted={**self.demoted, **self.refused},
        )


class Compilation:
    """The steps of one compilation, and their order."""

    def __init__(self, context: CompileContext) -> None:
        self._context = context
        self._builder = EngineBuilder(context)
        self._partition_builder = PartitionBuilder(context, self._builder)
        record = recall_record(context)
        self._precision = PrecisionStage(context, self._builder, record)
        self._tuner = Tuner(context, record)
        self._times = ProcessorTimes()
        self._failed_files = 0
        self._in_file: CompiledModel | None = None

    def run(self) -> CompiledModel:
        """Partition the model, then attempt its segments until every step accepts them or no segment is left.

        Raises:
            EngineError: See ``compile_model``.
            PartitionError: See ``compile_model``.
        """
        partition = partition_source(self._context, self._times)
        graph = partition.graph
        if self._context.options.check_inputs is not None:
            read_given(self._context.options.check_inputs, signature_of(graph))
        with self._times.during("precision"):
            self._precision.prepare(graph)
        attempt = Attempt(partition=self._tuner.recall(partition), began=time.perf_counter())
        while attempt.partition.segments:
            attempt = self._take_steps(attempt)
            if not attempt.refused:
                return self._finish(partition, attempt)
            attempt = attempt.without_refused()
        self._keep_record(partition, attempt)
        compiled = without_engines(self._context, attempt.partition, built_now=self._builder.built_now)
        return self._with_figures(compiled)

    def _take_steps(self, attempt: Attempt) -> Attempt:
        steps: tuple[tuple[str, Callable[[Attempt], Attempt]], ...] = (
            ("build", self._build),
            *(() if self._context.unchecked else (("check", self._check_engines),)),
            ("write", self._embed),
            ("file check", self._check_file),
            ("precision", self._choose_precision),
            ("choice", self._tune),
        )
        for phase, step in steps:
            release_pages(attempt.partition.graph.model)
            with self._times.during(phase):
                attempt = step(attempt)
            if attempt.refused:
                break
        return attempt

    def _build(self, attempt: Attempt) -> Attempt:
        engines, refused = self._partition_builder.build(attempt.partition)
        return dataclasses.replace(attempt, engines=engines, refused=refused)

    def _check_engines(self, attempt: Attempt) -> Attempt:
        engines, refused = self._partition_builder.check(attempt.partition, attempt.engines)
        return dataclasses.replace(attempt, engines=engines, refused=refused)

    def _embed(self, attempt: Attempt) -> Attempt:
        seconds = {**attempt.partition.seconds, "build": time.perf_counter() - attempt.began}
        attempt = dataclasses.replace(attempt, partition=dataclasses.replace(attempt.partition, seconds=seconds))
        return dataclasses.replace(attempt, compiled=self._written(attempt.exact))

    def _check_file(self, attempt: Attempt) -> Attempt:
        """Refuse a segment where the compiled file as a whole can't be loaded, or answers something else.

        Rounding of one engine may be grown by what comes behind it. So the first segment is refused, and the file is
        checked again without it, a few times. Behind native nodes alone, an engine computes what its check has seen.
        """
        assert attempt.compiled is not None
        given = self._context.options.check_inputs
        if given is None and all(engine.cached for engine in attempt.engines.values()):
            return attempt
        try:
            problem, lasting = self._find_problem(attempt, attempt.compiled), given is None
            code = ReasonCode.INACCURATE
        except WorkerError as error:
            problem, lasting, code = str(error), False, code_of(error)
        if problem is None:
            return attempt
        self._failed_files += 1
        segments = attempt.partition.segments[: 1 if self._failed_files < MOST_FAILED_FILES else None]
        logger.warning(
            "The compiled model is not usable with %s, whose nodes run natively: %s",
            ", ".join(segment.name for segment in segments),
            problem,
        )
        detail = f"The compiled model as a whole fails with this engine: {problem}"
        refusal = Refusal(code=code, detail=detail)
        for segment in segments:
            self._builder.refuse(attempt.engines[segment.name].key, refusal, lasting=lasting)
        refused = {name: v for segment in segments for name, v in verdicts(segment, refusal).items()}
        return dataclasses.replace(attempt, refused=refused)

    def _choose_precision(self, attempt: Attempt) -> Attempt:
        if self._precision.is_float32:
            return dataclasses.replace(attempt, built=attempt.exact)
        built = self._precision.rebuild(attempt.exact, lambda built: self._written(built).model)
        return dataclasses.replace(attempt, built=built, compiled=self._written(built))

    def _tune(self, attempt: Attempt) -> Attempt:
        assert attempt.compiled is not None
        write = functools.partial(self._file_of, attempt.compiled)
        return dataclasses.replace(attempt, refused=self._tuner.find_slow_nodes(attempt.partition, write))

    def _finish(self, before: Partition, attempt: Attempt) -> CompiledModel:
        """Remember the engines and decisions of an accepted attempt for the next compilation."""
        assert attempt.compiled is not None
        assert attempt.built is not None
        self._builder.remember({*attempt.engines.values(), *attempt.built.engines.values()})
        self._keep_record(before, attempt)
        shapes = self._context.options.shapes
        compiled = with_sizes(attempt.compiled, attempt.built.partition, shapes[0]) if shapes else attempt.compiled
        return self._with_figures(compiled)

    def _with_figures(self, compiled: CompiledModel) -> CompiledModel:
        return with_report(compiled, tuning=self._tuner.figures, processor_seconds=dict(self._times.seconds))

    def _keep_record(self, before: Partition, attempt: Attempt) -> None:
        """Record what was learnt for the next compilation, which tries again what took too long or too much memory.

        What other processes have recorded since this compilation began stays.
        """
        after = attempt.partition.labels
        demoted = {n: v for n, v in after.items() if not v.supported and before.labels[n].supported}
        lasting = {n: v for n, v in demoted.items() if v.code not in PASSING}
        record = self._precision.added_to(dataclasses.replace(recall_record(self._context), demoted=lasting))
        if all(refusal.lasting for refusal in self._builder.refusals.values()):
            record = self._tuner.added_to(record, attempt.demoted)
        keep_record(self._context, record)

    def _written(self, built: BuiltPartition) -> CompiledModel:
        return embed(self._context, built, precision=self._precision.figures, built_now=self._builder.built_now)

    def _file_of(self, compiled: CompiledModel) -> pathlib.Path:
        """Return the file of a compiled model for jobs. It is written once, as it may be large."""
        path = self._context.folder / "compiled.onnx"
        if self._in_file is not compiled:
            write_temporary(compiled.model, path, link=True)
            self._in_file = compiled
        return path

    def _find_problem(self, attempt: Attempt, compiled: CompiledModel) -> str | None:
        """Load and run the whole compiled file once, natively and with its engines; None where the results agree.

        Raises:
            WorkerError: The child process died of it.
        """
        context, graph = self._context, attempt.partition.graph
        source, path = sampled_model(context, graph, context.source.path), self._file_of(compiled)
        release_pages(graph.model)
        if context.source.runs_natively:
            run, vary = not context.unchecked, not self._partition_builder.are_seen_whole(attempt.engines)
            keep = self._tuner.options_to_measure(attempt.partition) if self._precision.is_float32 else None
            return context.worker.call(check_compiled, TIMEOUT_S, path, source, engines=run, vary=vary, keep=keep)
        return context.worker.call(check_engines_alone, TIMEOUT_S, path, source.inputs, source.given)
