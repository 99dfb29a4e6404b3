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
from engines.inputs.source import cleaned
from engines.onnxruntime.limits import native_limits
from engines.onnxruntime.type_inference import OutputTypes, complete_types
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
from partitioner.model.opset_versions import is_too_new

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
    graph = cleaned(source, options.shapes, as_if_fixed=True)
    seconds = time.perf_counter() - start
    with SubprocessWorker() as worker:
        partition = _partition_cleaned(graph, engine, options, cache, worker)
    partition = dataclasses.replace(partition, seconds={"infer_shapes": seconds, **partition.seconds})
    report = partition.report(model=source.name, engine=engine)
    return partition, dataclasses.replace(report, labelled_by=_source_of_labels(engine))


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

    graph = cleaned(context.source.path, context.options.shapes)
    if context.source.runs_natively and is_too_new(graph.model, native_limits()):
        ask(context.source.path)  # refused before anything is built
    complete_types(graph, ask, context.folder)
    graph = Graph.of(graph.model)
    seconds = time.perf_counter() - start
    partition = _partition_cleaned(graph, context.engine, context.options, context.cache, context.worker)
    return dataclasses.replace(partition, seconds={"infer_shapes": seconds, **partition.seconds})


def _partition_cleaned(
    graph: Graph, engine: str, options: CompileOptions, cache: EngineCache | None, worker: SubprocessWorker
) -> Partition:
    wishes = options.partition
    _warn_of_idle_globs(graph, wishes)
    table = _on_targets(_table(engine, wishes), engine, options.build)
    graph = expand_functions(graph, table, wishes)
    ask = engine != NATIVE and get_backend(engine).unavailable_reason() is None
    supports = ask_library(get_backend(engine), graph, wishes, cache, worker) if ask else table
    return partition_graph(graph, _on_targets(supports, engine, options.build), wishes)


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
