"""Loads engines, once they are known to be whole, made for this machine, and trusted."""

from __future__ import annotations

import dataclasses
import functools
import pathlib

import onnx

from trtnode.engines.artifact.envelope import INDICES, TARGETS, Device, Envelope
from trtnode.engines.artifact.sidecars import engine_bytes
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.backends.names import target_problem
from trtnode.engines.backends.protocols import Backend, Engine, GuardsIndices, Origin
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.errors import BackendMissingError, EngineRejectedError
from trtnode.engines.precision.boundary_types import may_hold
from trtnode.engines.runtime.known_engines import KnownEngines
from trtnode.engines.runtime.refit_source import origin_of
from trtnode.partitioner.compiled.trtnode import embedded_engine, replaced_hash
from trtnode.partitioner.graph.view import Graph, Node, describe, specs
from trtnode.partitioner.model.regular_files import read_regular

ORIGIN_SUFFIX = ".onnx"
"""Suffix of the model that an engine was built from."""


def open_engine(
    graph: Graph,
    node: Node,
    folder: pathlib.Path,
    threads: int | None,
    trust: Trust | None = None,
    *,
    instances: int = 1,
    shares_cores: bool = True,
    known: KnownEngines | None = None,
    profiled: bool = False,
) -> tuple[Envelope, Engine]:
    """Load the engine of a TrtNode.

    Args:
        graph: Of the compiled model.
        node: The TrtNode.
        folder: Where sidecars are.
        threads: As ``executor.open_executable``.
        trust: As ``executor.open_executable``.
        instances: As ``executor.open_executable``.
        shares_cores: As ``load_engine``.
        known: As ``load_engine``.
        profiled: As ``load_engine``.

    Raises:
        EngineRejectedError: The engine is damaged, was made for something else, or isn't trusted.
        PartitionError: The TrtNode lacks an attribute.
    """
    content = embedded_engine(node.op)
    envelope = Envelope.from_json(content.envelope, node.name)
    _check_bindings(node, envelope)
    if trust is not None:
        _check_nodes(graph, node, envelope)
    _check_clamps(graph, node, envelope)
    engine = engine_bytes(node.name, content, folder)
    origin = functools.partial(origin_of, graph.model, node.op, envelope)
    loaded = load_engine(
        node.name,
        envelope,
        engine,
        origin=origin,
        threads=threads,
        instances=instances,
        shares_cores=shares_cores,
        trust=trust,
        known=known,
        profiled=profiled,
    )
    return envelope, loaded


def load_engine(
    segment: str,
    envelope: Envelope,
    engine: bytes,
    *,
    origin: Origin | None = None,
    threads: int | None = None,
    instances: int = 1,
    shares_cores: bool = True,
    trust: Trust | None = None,
    known: KnownEngines | None = None,
    profiled: bool = False,
) -> Engine:
    """Check an envelope, then load the engine.

    Args:
        segment: For messages.
        envelope: Of the engine.
        engine: Its bytes.
        origin: The source of its weights, if it holds none.
        threads: As ``executor.open_executable``.
        instances: As ``executor.open_executable``.
        shares_cores: True if other stages or models compute on the same cores.
        trust: As ``executor.open_executable``.
        known: Knows the device of this machine; None asks the library.
        profiled: Make it report the times of its layers, which slows it down.

    Raises:
        EngineRejectedError: The engine is damaged, was made for something else, isn't trusted, or can't be given its
            weights.
        UnknownBackendError: The envelope names no backend that is built in.
    """
    backend = get_backend(envelope.backend)
    version = _version_here(backend, envelope)
    device = known.device(backend) if known else backend.device()
    try:
        envelope.verify(engine, segment, version=version, device=device)
    except EngineRejectedError as error:
        error.remedy = _remedy(envelope, version, device)
        raise
    if trust is not None:
        trust.check(envelope, segment)
    if profiled:
        envelope = dataclasses.replace(envelope, options={**envelope.options, **backend.profiling_options})
    return backend.load(
        engine, envelope, threads=threads, instances=instances, shares_cores=shares_cores, origin=origin
    )


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
    """Load an engine that this program has just built, or found in its cache.

    Args:
        segment: For messages.
        file: Of the engine. For an engine without weights, the model that it was built from stands beside it.
        envelope: As JSON.

    Raises:
        EngineRejectedError: As ``load_engine``.
    """
    origin = functools.partial(onnx.load, file.with_suffix(ORIGIN_SUFFIX))
    return load_engine(segment, Envelope.from_json(envelope, segment), read_regular(file), origin=origin)


def _check_nodes(graph: Graph, node: Node, envelope: Envelope) -> None:
    """Refuse an engine whose nodes or weights were edited since: engine and nodes would give two answers."""
    if replaced_hash(graph.model, node.op) not in (None, envelope.segment_sha256):
        raise EngineRejectedError(node.name, "the nodes or weights that it replaces were changed since it was built.")


def _check_clamps(graph: Graph, node: Node, envelope: Envelope) -> None:
    """Refuse an engine that was built when indices of a request weren't clamped."""
    backend, function = get_backend(envelope.backend), graph.model.functions.get(node.op.op_identifier())
    if INDICES in envelope.options or function is None or not isinstance(backend, GuardsIndices):
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
            if not may_hold(declared.dtype, held.dtype):
                raise EngineRejectedError(
                    node.name, f"it has {declared.name!r} as {describe(held)}, its node has {describe(declared)}."
                )
