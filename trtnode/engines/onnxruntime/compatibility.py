"""Rewrites models that ONNX Runtime refuses: ONNX's converter and function definitions give an equal native form."""

from __future__ import annotations

import logging
import math
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import onnx
import onnx.version_converter
import onnx_ir as ir

from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.errors import ModelLoadError
from trtnode.engines.onnxruntime.limits import native_limits
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.partitioner.compiled.trtnode import embed_engines, is_trtnode
from trtnode.partitioner.cut import function_expansion
from trtnode.partitioner.graph.extraction import single_node_model
from trtnode.partitioner.graph.view import Graph, Node
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.external_data import take_data_inside
from trtnode.partitioner.model.loading import load_model, read_proto, view_model
from trtnode.partitioner.model.opset_versions import is_too_new, lower_versions, version_obstacles
from trtnode.partitioner.passes.clean_up import clean_up

logger = logging.getLogger(__name__)

OLDEST_OPSET = 7
"""ONNX Runtime has kernels for few operators of older opsets."""


def open_native(source: pathlib.Path | onnx.ModelProto, *, name: str, **options: Any) -> NativeSession:
    """Open a model natively; one that ONNX Runtime refuses, in its native form.

    Args:
        source: A file or a small model.
        name: For messages.
        **options: As ``NativeSession`` takes them.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model in both forms.
    """
    try:
        return NativeSession(source, name=name, **options)
    except ModelLoadError:
        with TemporaryFolder() as folder:
            path = folder / "native.onnx"
            if not write_native_form(source, path):
                raise
            return NativeSession(path, name=name, **options)


def write_native_form(source: pathlib.Path | onnx.ModelProto, target: pathlib.Path) -> bool:
    """Rewrite a model for ONNX Runtime and write it into a file.

    Older opsets than it has kernels for are raised by ONNX's own converter; newer ones are lowered where no operator
    changes its meaning; operators that it doesn't know are replaced by the functions that define them.

    Args:
        source: The model, which ONNX Runtime refuses as it is.
        target: The file.

    Returns:
        Whether there is such a form, and ONNX Runtime takes it.
    """
    try:
        form = native_form(source)
    except Exception as error:  # ONNX lets exceptions of any type out about a model that contradicts its rules
        logger.debug("%s has no native form: %s", source, error)
        return False
    if form is None:
        return False
    write_temporary(form, target)
    try:
        NativeSession(target)
    except ModelLoadError as error:
        logger.debug("The native form of %s is refused as well: %s", source, error)
        return False
    logger.info("ONNX Runtime refuses the model as it is; it runs rewritten for opset %d", form.opset_import[0].version)
    return True


def native_form(source: pathlib.Path | onnx.ModelProto) -> onnx.ModelProto | None:
    """Return an equal model of operators that ONNX Runtime knows; None for a compiled model."""
    graph = clean_up(_open_model(source))
    if any(is_trtnode(node.op) for node in graph.nodes):
        return None
    limits = native_limits()
    if is_too_new(graph.model, limits):
        graph = _expanded(graph, lambda g: _calling(g, version_obstacles(g.model, limits)))
        lower_versions(graph.model, limits)
    graph = _expanded(Graph.of(graph.model), lambda g: [node for node in g.nodes if _is_refused(node)])
    return embed_engines(graph, (), {})


def _open_model(source: pathlib.Path | onnx.ModelProto) -> ir.Model:
    path, proto = (source, read_proto(source)) if isinstance(source, pathlib.Path) else (pathlib.Path("model"), source)
    if _opset(proto) < OLDEST_OPSET and not any(_is_misread(node, proto.graph) for node in proto.graph.node):
        take_data_inside(path, protobuf_walk.tensors(proto))
        return view_model(_raised(proto), path)
    return load_model(source) if isinstance(source, pathlib.Path) else view_model(source, path)


def _opset(proto: onnx.ModelProto) -> int:
    return next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), OLDEST_OPSET)


def _raised(proto: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return onnx.version_converter.convert_version(proto, OLDEST_OPSET)
    except Exception as error:  # onnx raises what its C++ raises
        logger.info("ONNX can't convert the model to opset %d: %s", OLDEST_OPSET, error)
        return proto


def _is_misread(node: onnx.NodeProto, graph: onnx.GraphProto) -> bool:
    """Return whether ONNX's converter keeps a node that has another meaning from opset 7 on.

    The slopes of PRelu were one a channel; now they are broadcast from the last axis on.
    """
    slopes = {node.input[1]} if node.op_type == "PRelu" else set()
    single = {t.name for t in graph.initializer if math.prod(t.dims) == 1}
    single |= {v.name for v in graph.input if math.prod(d.dim_value for d in v.type.tensor_type.shape.dim) == 1}
    return not slopes <= single


def _calling(graph: Graph, ops: Iterable[ir.Node]) -> list[Node]:
    wanted = set(ops)
    return [node for node in graph.nodes if node.op in wanted]


def _is_refused(node: Node) -> bool:
    """Return whether ONNX Runtime refuses one node by itself. It is cheap: nothing is compiled before the first run."""
    if not function_expansion.is_defined_as_function(node):
        return False
    try:
        NativeSession(single_node_model(node.op))
    except ModelLoadError:
        return True
    return False


def _expanded(graph: Graph, select: Callable[[Graph], list[Node]]) -> Graph:
    """Expand the selected nodes, then the selected nodes of their function bodies."""
    for _ in range(function_expansion.MAX_DEPTH):
        names = [node.name for node in select(graph) if function_expansion.is_defined_as_function(node)]
        if not names:
            break
        graph = function_expansion.expand_nodes(graph, names)
    return graph
