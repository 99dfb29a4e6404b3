"""Finds the nodes that ONNX Runtime has no kernel for, by loading one node of each kind by itself.

No table tells: kernels depend on types and attributes, and functions stand in for some. Nothing is computed for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnx_ir as ir

from trtnode.engines.artifact.cache import EngineCache, engine_key
from trtnode.engines.backends.custom_operators import library_parts
from trtnode.engines.errors import ModelLoadError
from trtnode.engines.onnxruntime.compatibility import open_native
from trtnode.engines.onnxruntime.limits import native_version
from trtnode.partitioner.graph.extraction import extract_model
from trtnode.partitioner.graph.view import Graph, Node
from trtnode.partitioner.model.values import has_subgraphs, is_constant, read_values

LARGEST_CONSTANT = 1024
"""Elements of a constant that comes along. Kernels look at small ones, such as axes, when they are made."""

HAS_KERNEL = ""
"""The only verdict that is kept, as of a library that takes a node."""


def nodes_without_kernel(graph: Graph, nodes: Iterable[Node], cache: EngineCache | None = None) -> list[Node]:
    """Return the nodes that ONNX Runtime refuses by themselves, in their native form too.

    A node with subgraphs is one of them if a node in them is. Nodes whose types aren't all known are not judged.

    Args:
        graph: The cleaned graph.
        nodes: The nodes in question.
        cache: Place where kinds of nodes that have a kernel are looked up and kept.
    """
    asked = list(nodes)
    library = engine_key(purpose="kernels", onnxruntime=native_version(), **library_parts())
    known = cache.verdicts(library) if cache else {}
    kinds = {node.key: node for node in asked if _is_typed(node)}
    new = {key: node for key, node in kinds.items() if has_subgraphs(node.op) or key.digest not in known}
    refused = {key for key, node in new.items() if _is_refused(graph, node)}
    found = {key.digest: HAS_KERNEL for key, node in new.items() if key not in refused and not has_subgraphs(node.op)}
    if cache and found:
        cache.put_verdicts(library, found)
    return [node for node in asked if node.key in refused]


def _is_typed(node: Node) -> bool:
    return all(value.type is not None and value.dtype != ir.DataType.UNDEFINED for value in read_values(node.op))


def _is_refused(graph: Graph, node: Node) -> bool:
    try:
        open_native(_alone(graph, node), name=node.name, optimize=False)
    except ModelLoadError:
        return True
    return False


def _alone(graph: Graph, node: Node) -> onnx.ModelProto:
    """Return a model of one node, without large weights."""
    inputs = dict.fromkeys(v for v in read_values(node.op) if not is_constant(v) or _is_large(v))
    return extract_model(graph, [node], inputs=tuple(inputs), outputs=tuple(v for v in node.op.outputs if v.name))


def _is_large(value: ir.Value) -> bool:
    return value.const_value is not None and value.const_value.size > LARGEST_CONSTANT
