"""Measures a sparse engine against the best dense one."""

from __future__ import annotations

import dataclasses
import logging
import statistics
from collections.abc import Callable

from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.backends.names import AUTO, NATIVE, SPARSE
from trtnode.engines.backends.registry import Abilities, abilities_of
from trtnode.engines.build.context import CompileContext
from trtnode.engines.compile.embedding import with_report
from trtnode.engines.errors import EngineError
from trtnode.engines.runtime.options import RunOptions
from trtnode.engines.sparse.survey import has_sparse_layers
from trtnode.engines.tuning import timing
from trtnode.engines.tuning.candidates import NO_ENGINE, Candidate, MeasuredChoice
from trtnode.engines.tuning.compilation_record import SparseChoice, conditions, keep_record, recall_record, with_latest
from trtnode.engines.tuning.decision import decide, is_provisional
from trtnode.engines.tuning.measuring_turn import measuring
from trtnode.engines.tuning.memory_plan import keeps_memory_pattern
from trtnode.engines.tuning.timing_inputs import Subject
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.loading import load_model

logger = logging.getLogger(__name__)

DENSE_ENGINES, SPARSE_ENGINES = "dense engines", "sparse engines"
"""Names of candidates in the report."""

TIMEOUT_S, SECONDS = 120.0, 4.0
"""Limit of the measurement, and about how long it takes."""


def with_faster_zeros(
    context: CompileContext, dense: CompiledModel, compile_sparse: Callable[[CompileContext], CompiledModel]
) -> CompiledModel:
    """Return the model with sparse engines where these are faster on this machine, else with dense ones.

    Args:
        context: Of the dense compilation.
        dense: Its outcome.
        compile_sparse: Compiles the same model with another context.
    """
    if not _may_gain(context):
        return dense
    here = conditions(context, shares_cores=str(context.options.shares_cores))
    choice = None if context.options.measure_again else recall_record(context).sparse.get(here)
    if choice is not None and not choice.gains:
        return dense
    # Native execution is no alternative to measure against: the dense model is that, or faster.
    unmeasured = dataclasses.replace(context.options, all_engines=True)
    sparse = compile_sparse(dataclasses.replace(context, engine=SPARSE, options=unmeasured))
    if not sparse.report.segments:
        return dense
    if choice is None:
        try:
            choice = _measured(context, dense, sparse)
        except EngineError as error:
            logger.warning("%s keeps its dense engines, because they can't be timed: %s", context.source.origin, error)
            return dense
        if not is_provisional(choice.figures):
            record = recall_record(context)  # another compilation may have ended meanwhile
            keep_record(context, dataclasses.replace(record, sparse=with_latest(record.sparse, here, choice)))
    return with_report(sparse, tuning=choice.figures) if choice.gains else dense


def _may_gain(context: CompileContext) -> bool:
    options = context.options
    is_open = options.engine == AUTO and options.sparse_weights == "auto" and options.measures
    if not is_open or not context.backend.on_cpu or options.precision != "fp32":
        return False
    if abilities_of(SPARSE, options.build) != Abilities() or not context.source.runs_natively:
        return False
    return has_sparse_layers(load_model(context.source.path).graph)


def _measured(context: CompileContext, dense: CompiledModel, sparse: CompiledModel) -> SparseChoice:
    """Return whether sparse engines gain, and the figures for the report."""
    files = {name: context.folder / f"{name}.onnx" for name in ("dense", "sparse")}
    write_temporary(dense.model, files["dense"])
    write_temporary(sparse.model, files["sparse"])
    pattern, asked = keeps_memory_pattern(dense.report.memory), context.options
    subject = Subject(
        compiled=files["dense"],
        source=context.source.path,
        native=files["dense"],
        inputs=[TensorSpec.of(value) for value in load_model(context.source.path).graph.inputs],
        given=context.options.check_inputs,
        run=RunOptions(threads=asked.threads, shares_cores=asked.shares_cores, memory_pattern=pattern),
    )
    with measuring():
        timed = context.worker.call(timing.measure_files, TIMEOUT_S, subject, files, SECONDS)
    if timed is None:
        return SparseChoice(gains=False, figures=None)
    turns = timed.turns
    decision = decide(turns["sparse"], turns["dense"], disturbed=timed.disturbed)
    segments = tuple(segment.name for segment in sparse.report.segments)
    candidates = [
        Candidate(name=NO_ENGINE if dense.engine == NATIVE else DENSE_ENGINES, segments=()),
        Candidate(name=SPARSE_ENGINES, segments=segments),
    ]
    p50_ms = {c.name: statistics.median(turns[name]) for c, name in zip(candidates, files, strict=True)}
    outcome = MeasuredChoice(
        times={},
        candidates=candidates,
        p50_ms=p50_ms,
        chosen=candidates[decision.is_gain],
        decision=decision,
    )
    logger.info("%s: measured %s", context.source.origin.name, outcome)
    return SparseChoice(gains=decision.is_gain, figures=outcome.as_json())
