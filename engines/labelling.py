"""Labels a model's nodes and cuts it: the table of a backend, refined by what its library answers."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import logging
import pathlib
import time
from collections.abc import Sequence

from engines.bodies import Settled, plan_bodies
from engines.cache import EngineCache
from engines.errors import AlreadyCompiledError, BackendMissingError
from engines.options import CompileOptions
from engines.plan import specs
from engines.profiles import Profile, check_profiles, fix_shapes
from engines.registry import NATIVE, get_backend, next_engine, resolve_engine
from engines.verdicts import ask_library
from engines.worker import Worker
from partitioner import (
    Graph,
    Partition,
    PartitionOptions,
    Predicate,
    ReasonCode,
    Report,
    Verdict,
    clean_up,
    expand_functions,
    is_compiled,
    load_model,
    partition_graph,
)
from partitioner.graph import body_nodes

logger = logging.getLogger(__name__)


def partition_model(
    source: pathlib.Path, options: CompileOptions, *, cache: EngineCache | None = None
) -> tuple[Partition, Report]:
    """Label and cut a model without building anything, as if inputs had the one shape that is given for them, if any.

    Args:
        source: The model.
        options: How.
        cache: Where the engine library's answers are looked up and kept.

    Raises:
        PartitionError: As ``compile_model``.
        UnknownBackendError: As ``compile_model``.
        InputShapesError: As ``compile_model``.
        BackendMissingError: As ``compile_model``.
    """
    engine = resolve_engine(options.engine)
    try:
        return _partition_for(engine, source, options, cache)
    except BackendMissingError as problem:
        other = next_engine(options.engine, engine)
        if other is None:
            raise
        logger.warning("%s Until then, %s is used.", problem, other)
        return _partition_for(other, source, options, cache)


def _partition_for(
    engine: str, source: pathlib.Path, options: CompileOptions, cache: EngineCache | None
) -> tuple[Partition, Report]:
    start = time.perf_counter()
    graph = cleaned(source, options.shapes, as_if_fixed=True)
    seconds = time.perf_counter() - start
    warn_of_idle_globs(graph, options.partition)
    with Worker() as worker:
        graph = expand_functions(graph, table(engine, options.partition), options.partition)
        supports = predicate(engine, graph, options.partition, cache, worker)
        partition = partition_graph(graph, supports, options.partition)
        bodies = plan_bodies(partition, lambda graph, wishes: predicate(engine, graph, wishes, cache, worker))
    partition = dataclasses.replace(partition, seconds={"infer_shapes": seconds, **partition.seconds})
    reports = Settled(partition=partition, engines={}, bodies=bodies).body_reports()
    report = partition.report(model=source.name, engine=engine).with_bodies(tuple(reports))
    return partition, dataclasses.replace(report, labelled_by=_source_of_labels(engine))


def cleaned(source: pathlib.Path, shapes: Sequence[Profile], *, as_if_fixed: bool = False) -> Graph:
    """Load a model and simplify its graph.

    Args:
        source: The model.
        shapes: To build engines for.
        as_if_fixed: Whether inputs with one given shape have no other.

    Raises:
        AlreadyCompiledError: It is a compiled model.
        InputShapesError: The shapes don't fit the model.
        PartitionError: It can't be loaded.
    """
    model = load_model(source)
    check_profiles(specs(tuple(model.graph.inputs)), shapes)
    if as_if_fixed:
        fix_shapes(model, shapes)
    graph = clean_up(model)
    if is_compiled(graph.model):
        raise AlreadyCompiledError(source)
    return graph


def _source_of_labels(engine: str) -> str:
    """What to say about labels that no library has confirmed; empty where one has."""
    problem = None if engine == NATIVE else get_backend(engine).missing()
    return f"the table; {problem}" if problem else ""


def warn_of_idle_globs(graph: Graph, wishes: PartitionOptions) -> None:
    """Warn about patterns in the user's wishes that match no node, be it in a body."""
    if wishes.native_nodes:
        names = [inner.name for node in graph.nodes for inner in (node, *body_nodes(node))]
        for pattern in wishes.native_nodes:
            if not fnmatch.filter(names, pattern):
                logger.warning("native_nodes has %r, which matches no node of the model, so it has no effect", pattern)


def table(engine: str, wishes: PartitionOptions) -> Predicate:
    """What our own tables say about nodes, before the library is asked."""
    if engine == NATIVE:
        return lambda _: Verdict(ReasonCode.USER_EXCLUDED, "The engine asked for is native.")
    return functools.partial(get_backend(engine).label, allow=wishes.allow)


def predicate(
    engine: str, graph: Graph, wishes: PartitionOptions, cache: EngineCache | None, worker: Worker
) -> Predicate:
    """What is true of a node: the library's answer where it is here, else what our tables say."""
    if engine == NATIVE or get_backend(engine).missing():
        return table(engine, wishes)
    return ask_library(get_backend(engine), graph, wishes, cache, worker)
