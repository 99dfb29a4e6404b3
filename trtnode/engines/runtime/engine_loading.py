"""Loads engines, once they are known to be whole, made for this machine, and trusted."""

from __future__ import annotations

import logging
import math
import mmap
import os
import pathlib
from collections.abc import Collection, Iterable, Iterator, Sequence

import onnx_ir as ir

from trtnode.engines.artifact.compiled_model import has_native_fallback
from trtnode.engines.artifact.envelope import EMPTY, INDICES, TARGETS, Device, Envelope
from trtnode.engines.artifact.sidecars import engine_bytes
from trtnode.engines.backends.names import target_problem
from trtnode.engines.backends.plugins import find_library, foreign, own
from trtnode.engines.backends.protocols import Backend, Engine, LoadOptions
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.errors import BackendMissingError, EngineError, EngineRejectedError
from trtnode.engines.runtime.known_engines import KnownEngines
from trtnode.engines.runtime.options import SHARED, RunOptions
from trtnode.partitioner.compiled.trtnode import EmbeddedEngine, embedded_engines, is_trtnode, replaced_hash
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.graph.view import Graph, Node, describe, specs, subgraph_nodes
from trtnode.partitioner.model.mapped_weights import map_pages
from trtnode.partitioner.model.regular_files import open_regular

logger = logging.getLogger(__name__)


Loaded = tuple[dict[str, Engine], dict[str, Envelope], list[str]]
"""Engines and envelopes by segment, and the reasons for which others were not loaded."""


def load_engines(graph: Graph, folder: pathlib.Path, only: Collection[str] | None, run: RunOptions) -> Loaded:
    """Load the engines of a model; a warning tells of those that are refused.

    Args:
        graph: The compiled model.
        folder: Where sidecars are.
        only: Names of the TrtNodes whose engines are loaded; None loads all.
        run: Options of the model.
    """
    known = run.known
    engines: dict[str, Engine] = {}
    envelopes: dict[str, Envelope] = {}
    rejected: list[str] = []
    refused: dict[str, list[Exception]] = {}
    for node in graph.nodes:
        if not is_trtnode(node.op) or (only is not None and node.name not in only):
            continue
        try:
            envelopes[node.name], engines[node.name] = open_engine(graph, node, folder, run)
        except (EngineError, PartitionError) as error:
            rejected.append(str(error))
            refused.setdefault(getattr(error, "reason", str(error)), []).append(error)
    if known is not None and has_native_fallback(graph.model):
        for failure in _compare_unchecked(graph, engines, envelopes, known):
            rejected.append(str(failure))
            refused.setdefault(failure.segment, []).append(failure)
    if known is not None:
        for name, engine in engines.items():
            known.give_kernels(envelopes[name], engine)
    _warn_of_refused(refused.values(), has_fallback=has_native_fallback(graph.model))
    inside = [inner.name for node in graph.nodes for inner in subgraph_nodes(node) if is_trtnode(inner.op)]
    if inside:
        rejected.append(f"{inside[0]}: engines in subgraphs of control flow are not used.")
        logger.warning("%s Their nodes run natively; compile the whole model.", rejected[-1])
    return engines, envelopes, rejected


def _compare_unchecked(
    graph: Graph, engines: dict[str, Engine], envelopes: dict[str, Envelope], known: KnownEngines
) -> Iterator[EngineRejectedError]:
    """Compare the engines that nobody has compared yet, and drop those that fail."""
    unchecked = {name: envelope for name, envelope in envelopes.items() if envelope.is_unchecked}
    problems = known.compare(graph, unchecked) if unchecked else {}
    for name, envelope in unchecked.items():
        if name in problems:
            del engines[name], envelopes[name]
            yield EngineRejectedError(name, problems[name])
        else:
            envelopes[name] = envelope.as_checked()


def _warn_of_refused(groups: Iterable[Sequence[Exception]], *, has_fallback: bool) -> None:
    """Warn once a reason, however many engines are refused for it."""
    for errors in groups:
        others = f" The same holds for {len(errors) - 1} more." if len(errors) > 1 else ""
        whose = "Its" if len(errors) == 1 else "Their"
        instead = f"{whose} nodes run natively" if has_fallback else "Nothing else runs its nodes"
        missing = isinstance(errors[0], BackendMissingError)
        again = "again, with an engine that runs here" if missing else "again on this machine"
        remedy = getattr(errors[0], "remedy", "") or f"compile the model {again}"
        logger.warning("%s%s %s; %s.", errors[0], others, instead, remedy)


def open_engine(graph: Graph, node: Node, folder: pathlib.Path, run: RunOptions = SHARED) -> tuple[Envelope, Engine]:
    """Load the engine of a TrtNode.

    Args:
        graph: Of the compiled model.
        node: The TrtNode.
        folder: Where sidecars are.
        run: Options of the model.

    Raises:
        EngineRejectedError: The engine is damaged, was made for something else, or isn't trusted.
        PartitionError: The TrtNode lacks an attribute.
    """
    content, envelope = chosen_engine(node.op, run)
    _check_bindings(node, envelope)
    if run.trust is not None:
        if envelope.backend not in own() and envelope.backend in foreign():
            run.trust.check(envelope, node.name)  # before anything of another package is imported
        _check_nodes(graph, node, envelope)
    _check_clamps(graph, node, envelope)
    engine = engine_bytes(node.name, content, folder)
    return envelope, load_engine(node.name, envelope, engine, run)


def chosen_engine(op: ir.Node, run: RunOptions = SHARED) -> tuple[EmbeddedEngine, Envelope]:
    """Find the engine of a TrtNode that is to run here: the best library's of those that may. No engine is read.

    Args:
        op: The TrtNode.
        run: Options of the model.

    Returns:
        The engine with its envelope; the first one if none may run here, so that its refusal says why.

    Raises:
        EngineRejectedError: Its envelope can't be read.
        PartitionError: The TrtNode lacks an attribute.
    """
    name, engines = op.name or "", embedded_engines(op)
    fitting: list[tuple[EmbeddedEngine, Envelope]] = []
    for content in engines if len(engines) > 1 else ():
        try:
            envelope = Envelope.from_json(content.envelope, name)
            check_fits(name, envelope, run)
        except EngineError as problem:
            logger.debug("%s", problem)
            continue
        fitting.append((content, envelope))
    if fitting:
        return min(fitting, key=lambda one: _place(one[1].backend))
    return engines[0], Envelope.from_json(engines[0].envelope, name)


def _place(name: str) -> float:
    """Return the place of a library in ``auto``. It is asked of those alone whose engines may run here."""
    library = find_library(name)
    return math.inf if library is None or library.place is None else library.place


def check_fits(segment: str, envelope: Envelope, run: RunOptions = SHARED) -> None:
    """Refuse an engine that was made for another machine, or that nobody vouches for, by its envelope alone.

    Raises:
        EngineError: The refusal, or what its library lacks here.
    """
    if run.trust is not None:
        run.trust.check(envelope, segment)
    backend = get_backend(envelope.backend)
    if problem := backend.unavailable_reason():
        raise BackendMissingError(problem)
    device = run.known.device(backend) if run.known else backend.device()
    envelope.check_machine(segment, version=backend.version(), device=device)


def load_engine(segment: str, envelope: Envelope, engine: bytes | memoryview, run: RunOptions = SHARED) -> Engine:
    """Check an envelope, then load the engine.

    Args:
        segment: For messages.
        envelope: Of the engine.
        engine: Its bytes.
        run: Options of the model.

    Raises:
        EngineRejectedError: The engine is damaged, was made for something else, or isn't trusted.
        UnknownBackendError: The envelope names no engine that is installed.
    """
    backend = get_backend(envelope.backend)
    version = _version_here(backend, envelope)
    device = run.known.device(backend) if run.known else backend.device()
    try:
        envelope.verify(engine, segment, version=version, device=device)
    except EngineRejectedError as error:
        error.remedy = _remedy(envelope, version, device)
        raise
    if run.trust is not None:
        run.trust.check(envelope, segment)
    return _loaded(envelope, engine, run)


def _loaded(envelope: Envelope, engine: bytes | memoryview, run: RunOptions) -> Engine:
    options = LoadOptions(threads=run.threads, instances=run.instances, shares_cores=run.shares_cores)
    loaded = get_backend(envelope.backend).load(engine, envelope.without(EMPTY), options)
    loaded.empty_places = envelope.empty_places
    return loaded


def _version_here(backend: Backend, envelope: Envelope) -> str:
    try:
        return backend.version()
    except BackendMissingError as error:
        raise BackendMissingError(f"{error} The engine was built by release {envelope.backend_version}.") from error


def _remedy(envelope: Envelope, version: str, device: Device) -> str:
    """Tell what makes an engine for several GPUs run here; nothing of other engines."""
    targets = envelope.options.get(TARGETS, "").split(",")
    if targets == [""]:
        return ""
    if envelope.backend_version != version:
        wanted = f"release {envelope.backend_version} of {envelope.backend}"
        return f"install {wanted}, or compile the model again with release {version}"
    if device.features in targets:
        return ""
    if target_problem(device.features):
        return f"compile the model again here with --engine tensorrt, as there is no target {device.features}"
    return f"compile the model again with --targets {device.features}"


def load_engine_file(segment: str, file: pathlib.Path, envelope: str) -> Engine:
    """Load an engine that this program has just built and hashed, or found whole in its cache.

    Args:
        segment: For messages.
        file: Of the engine.
        envelope: As JSON.

    Raises:
        EngineRejectedError: Its library refuses the engine.
    """
    with open_regular(file) as opened:  # the library takes memory that may be written, without a copy
        empty = not os.fstat(opened.fileno()).st_size
        engine = b"" if empty else memoryview(_mapped(opened.fileno()))
    return _loaded(Envelope.from_json(envelope, segment), engine, SHARED)


def _mapped(descriptor: int) -> mmap.mmap:
    data = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
    map_pages(data)
    return data


def _check_nodes(graph: Graph, node: Node, envelope: Envelope) -> None:
    """Refuse an engine whose nodes or weights were edited since: engine and nodes would give two answers."""
    if replaced_hash(graph.model, node.op) not in (None, envelope.segment_sha256):
        raise EngineRejectedError(node.name, "the nodes or weights that it replaces were changed since it was built.")


def _check_clamps(graph: Graph, node: Node, envelope: Envelope) -> None:
    """Refuse an engine that was built when indices of a request weren't clamped."""
    backend, function = get_backend(envelope.backend), graph.model.functions.get(node.op.op_identifier())
    if INDICES in envelope.options or function is None:
        return
    if held := backend.clamped_ops.intersection(op.op_type for op in function.all_nodes()):
        raise EngineRejectedError(
            node.name, f"{min(held)} in it addresses memory by indices that are not checked; compile the model again."
        )


def _check_bindings(node: Node, envelope: Envelope) -> None:
    """Refuse a TrtNode that was edited: engines take their inputs by position."""
    bindings = (("inputs", node.reads, envelope.inputs), ("outputs", node.op.outputs, envelope.outputs))
    for kind, values, built in bindings:
        if len(values) != len(built):
            raise EngineRejectedError(node.name, f"it was built for {len(built)} {kind}, its node has {len(values)}.")
        for declared, held in zip(specs(tuple(values)), built, strict=True):
            if declared.dtype not in (None, held.dtype):
                raise EngineRejectedError(
                    node.name, f"it has {declared.name!r} as {describe(held)}, its node has {describe(declared)}."
                )
