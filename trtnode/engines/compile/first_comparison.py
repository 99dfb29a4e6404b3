"""Compares engines that were built elsewhere with native execution, in a child process."""

from __future__ import annotations

import functools
import json
import logging
import pathlib
from collections.abc import Mapping

import onnx_ir as ir

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.compiled_model import SHAPES
from trtnode.engines.artifact.envelope import Envelope
from trtnode.engines.artifact.refusal import Refusal
from trtnode.engines.artifact.sidecars import engine_bytes
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.backends.shape_range import Profile, profile_from_json
from trtnode.engines.build.checker import Checker, EngineFile
from trtnode.engines.build.context import CompileContext
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.inputs.source import SourceModel
from trtnode.engines.runtime.known_engines import KnownEngines
from trtnode.partitioner.compiled.stripping import strip_engines
from trtnode.partitioner.compiled.trtnode import embedded_engines
from trtnode.partitioner.cut.segments import Segment
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import view_model

logger = logging.getLogger(__name__)


def known_engines(model: pathlib.Path, cache: EngineCache | None) -> KnownEngines:
    """Return what this machine knows about the engines of a compiled file; sidecars stand beside it."""
    return KnownEngines(model, cache, functools.partial(_compare, model))


def _compare(model: pathlib.Path, graph: Graph, engines: Mapping[str, Envelope]) -> Mapping[str, Refusal]:
    native = _without_engines(graph, model)
    segments = [_segment(graph, native, name) for name in engines]
    with SubprocessWorker() as worker:
        context = CompileContext(
            source=SourceModel(path=model, origin=model),
            options=CompileOptions(shapes=_shapes(graph.model)),
            engine=next(iter(engines.values())).backend,
            cache=None,
            worker=worker,
            place=TemporaryFolder(),
        )
        files = {name: _write(model, graph, name, envelope, context.folder) for name, envelope in engines.items()}
        return Checker(context).check(native, segments, files).refusals


def _write(model: pathlib.Path, graph: Graph, name: str, envelope: Envelope, folder: pathlib.Path) -> EngineFile:
    path = folder / f"{len(list(folder.iterdir()))}.engine"
    contents = embedded_engines(_trtnode(graph, name))
    (content,) = (c for c in contents if Envelope.from_json(c.envelope, name).engine_sha256 == envelope.engine_sha256)
    path.write_bytes(engine_bytes(name, content, model.parent))
    return EngineFile(path=path, envelope=envelope.to_json())


def _without_engines(graph: Graph, path: pathlib.Path) -> Graph:
    """Return a compiled model as it was before.

    Raises:
        PartitionError: It lacks the nodes that engines replaced.
    """
    proto = ir.to_proto(graph.model)
    strip_engines(proto)
    return Graph.of(view_model(proto, path))


def _segment(graph: Graph, native: Graph, name: str) -> Segment:
    """Return the nodes that an engine replaced, with the values that they have there."""
    op = _trtnode(graph, name)
    produced = {v.name for inner in graph.model.functions[op.op_identifier()] for v in inner.outputs}
    values = {value.name: value for value in native.tensors}
    (node,) = (node for node in graph.nodes if node.op is op)
    return Segment(
        name=name,
        level=0,
        nodes=tuple(n for n in native.nodes if produced.intersection(v.name for v in n.op.outputs)),
        inputs=tuple(values[v.name] for v in node.reads),
        outputs=tuple(values[v.name] for v in op.outputs),
    )


def _trtnode(graph: Graph, name: str) -> ir.Node:
    return next(node.op for node in graph.nodes if node.name == name)


def _shapes(model: ir.Model) -> tuple[Profile, ...]:
    """Return the shapes that the engines were built for; none where the file doesn't say."""
    try:
        return tuple(map(profile_from_json, json.loads(model.metadata_props.get(SHAPES, "[]"))))
    except (ValueError, AttributeError, LookupError, TypeError, RecursionError) as error:
        logger.warning("The property %s of the model can't be read: %s", SHAPES, error)
        return ()
