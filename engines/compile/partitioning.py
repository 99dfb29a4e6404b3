"""Labels a model's nodes and cuts it, by a backend's table and its library's verdicts."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import logging
import pathlib
import time

from engines.artifact.cache import EngineCache
from engines.backends.build_options import BuildOptions
from engines.backends.names import NATIVE
from engines.backends.registry import check_build_options, get_backend, with_next_engine
from engines.build import jobs
from engines.build.checker import TIMEOUT_S
from engines.build.context import CompileContext
from engines.build.library_verdicts import ask_library
from engines.build.options import CompileOptions
from engines.build.subprocess_worker import SubprocessWorker
from engines.build.whole_model import WholeModels
from engines.inputs.source import cleaned
from engines.onnxruntime.limits import native_limits
from engines.onnxruntime.type_inference import OutputTypes, native_types
from partitioner import (
    Graph,
    Node,
    Partition,
    PartitionOptions,
    Predicate,
    ReasonCode,
    Report,
    Verdict,
    expand_functions,
    partition_graph,
)
from partitioner.graph.view import subgraph_nodes
from partitioner.model.default_values import inputs_with_defaults
from partitioner.model.opset_versions import is_too_new
from partitioner.passes.default_constants import keep_shapes_of_any_value, with_defaults_as_constants
from partitioner.passes.shape_sources import complete_shapes, lacks_types

logger = logging.getLogger(__name__)


def partition_model(
    source: pathlib.Path, options: CompileOptions, *, cache: EngineCache | None = None
) -> tuple[Partition, Report]:
    """Label and cut a model without building anything, as if inputs had the one shape that is given for them, if any.

    Args:
        source: The model.
        options: Options of the compilation.
        cache: Place where the engine library's verdicts are looked up and kept.

    Raises:
        PartitionError: As ``compile_model``.
        UnknownBackendError: As ``compile_model``.
        BuildOptionError: As ``compile_model``.
        InputShapesError: As ``compile_model``.
        BackendMissingError: As ``compile_model``.
    """
    return with_next_engine(
        options.engine, lambda engine: _partition_for(engine, source, options, cache), options.build
    )


def _partition_for(
    engine: str, source: pathlib.Path, options: CompileOptions, cache: EngineCache | None
) -> tuple[Partition, Report]:
    check_build_options(engine, options.build)
    start = time.perf_counter()
    wishes = options.partition
    graph = cleaned(source, options.shapes, freeze=wishes.freeze_initializers, as_if_fixed=True)
    seconds = time.perf_counter() - start
    _warn_of_idle_globs(graph, wishes)
    what_if_frozen = None
    replaceable = {value.name for value in inputs_with_defaults(graph.model.graph)}
    with SubprocessWorker() as worker:
        graph = with_defaults_as_constants(graph, without=_given(options))
        partition = _partition_cleaned(graph, engine, options, cache, worker)
        if replaceable:
            shapes = tuple({n: s for n, s in one.items() if n not in replaceable} for one in options.shapes)
            options = dataclasses.replace(options, shapes=shapes if any(shapes) else ())
            frozen = cleaned(source, options.shapes, freeze=True, as_if_fixed=True)
            what_if_frozen = partition.what_if_frozen(_partition_cleaned(frozen, engine, options, cache, worker))
    partition = dataclasses.replace(partition, seconds={"infer_shapes": seconds, **partition.seconds})
    report = partition.report(model=source.name, engine=engine)
    labelled_by = _source_of_labels(engine)
    return partition, dataclasses.replace(report, labelled_by=labelled_by, what_if_frozen=what_if_frozen)


def partition_source(context: CompileContext) -> Partition:
    """Load the model of a compilation, simplify, label and cut it.

    Raises:
        AlreadyCompiledError: It is a compiled model.
        InputShapesError: The shapes don't fit the model.
        ModelLoadError: ONNX Runtime refuses the model, although it is expected to run it.
        PartitionError: It can't be loaded.
    """
    start = time.perf_counter()

    def ask(path: pathlib.Path) -> OutputTypes:
        return context.worker.call(jobs.output_types, TIMEOUT_S, path)

    options = context.options
    graph = cleaned(context.source.path, options.shapes, freeze=options.partition.freeze_initializers)
    if context.source.runs_natively and is_too_new(graph.model, native_limits()):
        ask(context.source.path)  # refused before anything is built
    if lacks_types(graph):
        graph = complete_shapes(graph, native_types(ask, context.folder), native=True)
    if context.source.runs_natively:  # else nothing could answer a request that replaces a default
        graph = with_defaults_as_constants(graph, without=_given(options))
    seconds = time.perf_counter() - start
    _warn_of_idle_globs(graph, options.partition)
    partition = _partition_cleaned(graph, context.engine, options, context.cache, context.worker)
    keep_shapes_of_any_value(partition.graph)
    return dataclasses.replace(partition, seconds={"infer_shapes": seconds, **partition.seconds})


def _given(options: CompileOptions) -> set[str]:
    """Return the inputs that the user gives shapes for, because requests will send them."""
    return {name for profile in options.shapes for name in profile}


def _partition_cleaned(
    graph: Graph, engine: str, options: CompileOptions, cache: EngineCache | None, worker: SubprocessWorker
) -> Partition:
    wishes = options.partition
    table = _on_targets(_table(engine, wishes), engine, options.build)
    if engine == NATIVE or get_backend(engine).unavailable_reason() is not None:
        return partition_graph(expand_functions(graph, table, wishes), table, wishes)
    backend = get_backend(engine)
    reading = WholeModels(backend, cache, worker).read(graph, table, wishes)
    reading = reading.on(expand_functions(reading.graph, reading.judge(table), wishes))
    supports = _on_targets(ask_library(backend, reading, wishes, cache, worker), engine, options.build)
    partition = partition_graph(reading.graph, supports, wishes)
    refused = {n: v for n, v in reading.refused.items() if n in partition.labels and partition.labels[n].supported}
    return partition.demote(refused) if refused else partition


def _on_targets(supports: Predicate, engine: str, options: BuildOptions) -> Predicate:
    """Refine a rule by the types of the GPUs that engines are built for. The library itself is asked about none."""
    if engine == NATIVE:
        return supports
    check = get_backend(engine).check_targets

    def rule(node: Node) -> Verdict:
        verdict = supports(node)
        return check(node, options) if verdict.supported else verdict

    return rule


def _source_of_labels(engine: str) -> str:
    """Return the source of labels that no library has confirmed; empty where one has."""
    problem = None if engine == NATIVE else get_backend(engine).unavailable_reason()
    return f"the table; {problem}" if problem else ""


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
