"""Loads the engine of a TrtNode, once it is known to be whole, made for this machine, and vouched for."""

from __future__ import annotations

import dataclasses
import functools
import pathlib

from engines.base import Engine, Origin
from engines.casts import may_hold
from engines.envelope import Envelope
from engines.errors import EngineRejectedError
from engines.origin import origin_of
from engines.plan import specs
from engines.registry import get_backend
from engines.trust import Trust
from partitioner import EmbeddedEngine, Graph, Node, describe, embedded_engine, replaced_hash


def open_engine(
    graph: Graph,
    node: Node,
    folder: pathlib.Path,
    threads: int | None,
    trust: Trust | None = None,
    *,
    profiled: bool = False,
) -> tuple[Envelope, Engine]:
    """Load the engine of a TrtNode.

    Args:
        graph: Of the compiled model.
        node: The TrtNode.
        folder: Where sidecars are.
        threads: As ``executor.open_executable``.
        trust: As ``executor.open_executable``.
        profiled: As ``load_engine``.

    Raises:
        EngineRejectedError: The engine is damaged, was made for something else, or nobody vouches for it.
        PartitionError: The TrtNode lacks an attribute.
    """
    content = embedded_engine(node.op)
    envelope = Envelope.from_json(content.envelope, node.name)
    _check_bindings(node, envelope)
    if trust is not None:
        _check_nodes(graph, node, envelope)
    engine = engine_bytes(node.name, content, folder)
    origin = functools.partial(origin_of, graph.model, node.op, envelope)
    return envelope, load_engine(
        node.name, envelope, engine, origin=origin, threads=threads, trust=trust, profiled=profiled
    )


def load_engine(
    segment: str,
    envelope: Envelope,
    engine: bytes,
    *,
    origin: Origin | None = None,
    threads: int | None = None,
    trust: Trust | None = None,
    profiled: bool = False,
) -> Engine:
    """Check an envelope, then load the engine.

    Args:
        segment: For messages.
        envelope: Of the engine.
        engine: Its bytes.
        origin: Where its weights come from, if it holds none.
        threads: As ``executor.open_executable``.
        trust: As ``executor.open_executable``.
        profiled: Whether it is to tell the times of its layers, and run slower for that.

    Raises:
        EngineRejectedError: The engine is damaged, was made for something else, nobody vouches for it, or it can't be
            given its weights.
        UnknownBackendError: The envelope names no backend that is built in.
    """
    backend = get_backend(envelope.backend)
    envelope.verify(engine, segment, version=backend.version(), device=backend.device())
    if trust is not None:
        trust.check(envelope, segment)
    if profiled:
        envelope = dataclasses.replace(envelope, options={**envelope.options, **backend.profiling_options})
    return backend.load(engine, envelope, threads=threads, origin=origin)


def _check_nodes(graph: Graph, node: Node, envelope: Envelope) -> None:
    """Refuse an engine whose nodes or weights were edited since it was built: the file would give two answers."""
    if replaced_hash(graph.model, node.op) not in (None, envelope.segment_sha256):
        raise EngineRejectedError(node.name, "the nodes or weights that it replaces were changed since it was built.")


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


def engine_bytes(segment: str, content: EmbeddedEngine, folder: pathlib.Path) -> bytes:
    """Read an engine out of its TrtNode or its sidecar, unchecked.

    Raises:
        EngineRejectedError: The sidecar is outside of the model's folder, or can't be read.
    """
    if content.engine is not None:
        return content.engine
    assert content.engine_file is not None
    root = folder.resolve()
    try:
        target = (root / content.engine_file).resolve()
        if not target.is_relative_to(root):
            raise EngineRejectedError(segment, f"its sidecar {content.engine_file!r} is outside the model's folder.")
        return target.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        reason = error.strerror if isinstance(error, OSError) else error
        raise EngineRejectedError(segment, f"its sidecar {content.engine_file!r} can't be read ({reason}).") from error
