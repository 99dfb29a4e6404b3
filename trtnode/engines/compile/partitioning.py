"""Labels a model's nodes and cuts it, by a backend's table and its library's verdicts."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import logging
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.backends.progress import Progress
from trtnode.engines.backends.progress import report as report_progress
from trtnode.engines.backends.registry import get_backend, warn_of_idle_options, with_next_engine
from trtnode.engines.build import jobs
from trtnode.engines.build.context import TIMEOUT_S, CompileContext, open_context
from trtnode.engines.build.library_verdicts import ask_library
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.build.whole_model import WholeModels
from trtnode.engines.compile.custom_operators import custom_operators
from trtnode.engines.compile.last_resort import label_reference_nodes
from trtnode.engines.compile.processor_times import ProcessorTimes
from trtnode.engines.inputs.shape_profiles import with_best_shapes
from trtnode.engines.inputs.source import cleaned
from trtnode.engines.onnxruntime.limits import native_limits
from trtnode.engines.tuning.compilation_record import CompilationRecord, recall_record
from trtnode.engines.tuning.memory_plan import plan_memory
from trtnode.engines.tuning.quick_models import quick_verdict
from trtnode.engines.tuning.tuner import Tuner
from trtnode.partitioner.cut.function_expansion import expand_functions
from trtnode.partitioner.cut.labels import Predicate, ReasonCode, Verdict
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.partition import Partition, partition_graph
from trtnode.partitioner.cut.report import Report
from trtnode.partitioner.graph.view import Graph, Node, subgraph_nodes
from trtnode.partitioner.model.opset_versions import is_too_new
from trtnode.partitioner.passes.default_constants import keep_shapes_of_any_value, with_defaults_as_constants
from trtnode.partitioner.passes.shape_sources import lacks_types

logger = logging.getLogger(__name__)


def partition_model(
    source: pathlib.Path,
    options: CompileOptions,
    *,
    cache: EngineCache | None = None,
    worker: SubprocessWorker | None = None,
) -> tuple[Partition, Report]:
    """Label and cut a model as a compilation does, without building anything.

    Nodes that the last compilation with these options took out of engines run natively here too.

    Args:
        source: The model.
        options: Options of the compilation.
        cache: Place where the library's verdicts are looked up and kept, and where compilations record their outcome.
        worker: Child process in which libraries are asked; None makes a temporary one.

    Raises:
        PartitionError: As ``compile_model``.
        UnknownBackendError: As ``compile_model``.
        InputShapesError: As ``compile_model``.
        BackendMissingError: As ``compile_model``.
    """
    run = functools.partial(_partition_for, source=source, options=options, cache=cache, worker=worker)
    with custom_operators(options.custom_op_libraries):
        return with_next_engine(options.engine, run, options.build)


def _partition_for(
    engine: str,
    source: pathlib.Path,
    options: CompileOptions,
    cache: EngineCache | None,
    worker: SubprocessWorker | None,
) -> tuple[Partition, Report]:
    warn_of_idle_options(engine, options.build)
    with open_context(engine, source, options, cache, worker) as context:
        start = time.perf_counter()
        _report_step(0)
        graph = _typed(context)
        seconds = time.perf_counter() - start
        _report_step(1)
        _warn_of_idle_globs(graph, options.partition)
        partition = _partition_cleaned(with_defaults_as_constants(graph, without=_given(options)), context)
        record = recall_record(context)
        chosen, tuning = _as_measured_before(partition, context, record)
        if verdict := quick_verdict(context, graph, measure=False):
            record = dataclasses.replace(record, demoted=_demoted_by(verdict, partition))
        labelled_by = f"the table; {context.abilities.missing}" if context.abilities.missing else ""
    compiled_before = record.demoted is not None if partition.segments and not labelled_by else None
    partition = dataclasses.replace(chosen, seconds={"infer_shapes": seconds, **partition.seconds})
    partition = partition.demote(record.demoted) if record.demoted else partition
    partition = label_reference_nodes(partition, source, cache)
    if options.shapes:
        partition = dataclasses.replace(partition, graph=with_best_shapes(partition.graph, options.shapes[0]))
    _report_step(2)
    report = partition.report(model=source.name, engine=engine)
    _report_step(3)
    return partition, dataclasses.replace(
        report,
        labelled_by=labelled_by,
        compiled_before=compiled_before,
        tuning=tuning,
        memory=plan_memory(partition.graph),
    )


def _as_measured_before(
    partition: Partition, context: CompileContext, record: CompilationRecord
) -> tuple[Partition, Mapping[str, Any] | None]:
    """Leave out what an earlier compilation with the same options has left out here, or else what the estimate does.

    Returns:
        The partition, and the figures of that compilation, if there was one.
    """
    if not context.builds:
        return partition, None
    tuner = Tuner(context, record)
    return tuner.recall(partition), tuner.figures


def _report_step(done: int) -> None:
    """Report progress: the model is read, then labelled and cut, then reported on."""
    report_progress(Progress("Partitioning", done, 3))


def partition_source(context: CompileContext, times: ProcessorTimes) -> Partition:
    """Load the model of a compilation, simplify, label and cut it.

    Args:
        context: The compilation.
        times: Get the phases "read" and "label".

    Raises:
        AlreadyCompiledError: It is a compiled model.
        InputShapesError: The shapes don't fit the model.
        ModelLoadError: ONNX Runtime refuses the model, although it is expected to run it.
        PartitionError: It can't be loaded.
    """
    start = time.perf_counter()
    with times.during("read"):
        graph = _typed(context)
        if context.source.runs_natively and is_too_new(graph.model, native_limits()):
            context.worker.call(jobs.check_loads, TIMEOUT_S, context.source.path)  # refused before anything is built
        if context.source.runs_natively:  # else nothing could answer a request that replaces a default
            graph = with_defaults_as_constants(graph, without=_given(context.options))
    seconds = time.perf_counter() - start
    with times.during("label"):
        _warn_of_idle_globs(graph, context.options.partition)
        verdict = quick_verdict(context, graph)
        partition = _partition_quick(graph, context, verdict) if verdict else _partition_cleaned(graph, context)
        keep_shapes_of_any_value(partition.graph)
    return dataclasses.replace(partition, seconds={"infer_shapes": seconds, **partition.seconds})


def _typed(context: CompileContext) -> Graph:
    """Load and simplify the model of a compilation. Types that ONNX's inference doesn't know are asked natively.

    Raises:
        AlreadyCompiledError: As ``partition_source``.
        InputShapesError: As ``partition_source``.
        PartitionError: As ``partition_source``.
    """
    options = context.options
    freeze, rewriting = options.partition.freeze_initializers, context.rewriting
    sizes = options.declared_sizes
    graph = cleaned(context.source.path, options.shapes, freeze=freeze, rewriting=rewriting, sizes=sizes)
    return context.complete_natively(graph) if context.engine != NATIVE and lacks_types(graph) else graph


def _given(options: CompileOptions) -> set[str]:
    """Return the inputs that the user gives shapes for, because requests will send them."""
    return {name for profile in options.shapes for name in profile}


def _partition_cleaned(graph: Graph, context: CompileContext) -> Partition:
    engine, options, cache, worker = context.engine, context.options, context.cache, context.worker
    chosen = options.partition
    table = _on_targets(_table(engine, chosen), engine, options.build)
    if not context.builds:
        return partition_graph(expand_functions(graph, table, chosen), table, chosen)
    backend = context.backend
    reading = WholeModels(backend, cache, worker).read(graph, table, chosen)
    reading = reading.on(expand_functions(reading.graph, reading.judge(table), chosen))
    supports = _on_targets(ask_library(backend, reading, chosen, cache, worker), engine, options.build)
    partition = partition_graph(reading.graph, supports, chosen)
    refused = {n: v for n, v in reading.refused.items() if n in partition.labels and partition.labels[n].supported}
    return partition.demote(refused) if refused else partition


def _partition_quick(graph: Graph, context: CompileContext, verdict: Verdict) -> Partition:
    """Partition a model that runs natively for one reason. No library is asked."""
    chosen = context.options.partition
    partition = partition_graph(graph, _table(context.engine, chosen), chosen)
    return partition.demote(_demoted_by(verdict, partition))


def _demoted_by(verdict: Verdict, partition: Partition) -> dict[str, Verdict]:
    return dict.fromkeys((node.name for segment in partition.segments for node in segment.nodes), verdict)


def _on_targets(supports: Predicate, engine: str, options: BuildOptions) -> Predicate:
    """Refine a rule by the types of the GPUs that engines are built for. The library itself is asked about none."""
    if engine == NATIVE:
        return supports
    check = get_backend(engine).check_targets

    def rule(node: Node) -> Verdict:
        verdict = supports(node)
        return check(node, options) if verdict.supported else verdict

    return rule


def _warn_of_idle_globs(graph: Graph, options: PartitionOptions) -> None:
    """Warn about patterns of native nodes that match no node, not even in a subgraph."""
    if options.native_nodes:
        names = [inner.name for node in graph.nodes for inner in (node, *subgraph_nodes(node))]
        for pattern in options.native_nodes:
            if not fnmatch.filter(names, pattern):
                logger.warning("native_nodes has %r, which matches no node of the model, so it has no effect", pattern)


def _table(engine: str, options: PartitionOptions) -> Predicate:
    """Return the rule of our own table, which labels nodes before the library is asked."""
    if engine == NATIVE:
        return lambda _: Verdict(ReasonCode.USER_EXCLUDED, "The engine asked for is native.")
    return functools.partial(get_backend(engine).label, allow=options.allow)
