"""Copies nodes that compute from constants alone into each segment that reads them.

Such nodes run once, when an engine is built or a native part is loaded.
Without copies, a result that several segments read would cross a boundary in each request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.cut.segments import NATIVE, Segment, places_of
from trtnode.partitioner.graph.view import Graph, Node
from trtnode.partitioner.model.new_values import new_names
from trtnode.partitioner.model.values import has_subgraphs


def duplicate_constant_fed(graph: Graph, segments: Sequence[Segment]) -> tuple[Graph, dict[str, str]]:
    """Copy nodes that compute from constants alone into each place that reads them.

    Args:
        graph: The cleaned graph.
        segments: The segments of the graph.

    Returns:
        A new graph if there is anything to copy, else the same one; and the copied node's identity by name of its copy.
    """
    if not _is_anything_shared(graph, segments):
        return graph, {}
    places = {node.name: index for index, segment in enumerate(segments) for node in segment.nodes}
    own = Graph.of(graph.model.clone())
    where = {node.op: places.get(node.name, NATIVE) for node in own.nodes}
    copies: dict[str, str] = {}
    for node in reversed([node for node, constant in zip(own.nodes, own.constant, strict=True) if constant]):
        for place, readers in _readers_elsewhere(node.op, where).items():
            copy = _copy(node, f"{node.name}:copy_{place + 1}")
            where[copy] = place
            copies[str(copy.name)] = node.name
            for reader in readers:
                _read_instead(reader, node.op.outputs, copy.outputs)
    return (Graph.of(own.model), copies) if copies else (graph, {})


def _is_anything_shared(graph: Graph, segments: Sequence[Segment]) -> bool:
    """Return whether several places read a constant node, which is rare. A first copy may cause others."""
    places = places_of(graph, segments)
    before, after = graph.topology.edges
    first, last = np.full(len(places), len(places)), np.full(len(places), NATIVE)
    np.minimum.at(first, before, places[after])
    np.maximum.at(last, before, places[after])
    return bool((np.array(graph.constant) & (first < last)).any())


def _readers_elsewhere(op: ir.Node, where: Mapping[ir.Node, int]) -> dict[int, list[ir.Node]]:
    """Return the readers of a node elsewhere, by place; none if a subgraph is involved, which captures by name."""
    if has_subgraphs(op):
        return {}
    found: dict[int, list[ir.Node]] = {}
    for value in op.outputs:
        for use in value.uses():
            if use.node not in where:
                return {}
            found.setdefault(where[use.node], []).append(use.node)
        if value.is_graph_output():
            found.setdefault(where[op], [])
    # The original stays for its own place, or for one of the others: the next cut may move it there.
    found.pop(where[op] if where[op] in found else min(found, default=0), None)
    return found


def _copy(node: Node, name: str) -> ir.Node:
    op = node.op
    assert isinstance(op.graph, ir.Graph)
    copy = ir.Node(
        op.domain,
        op.op_type,
        op.inputs,
        op.attributes.values(),
        overload=op.overload,
        num_outputs=len(op.outputs),
        name=name,
    )
    for original, value in zip(op.outputs, copy.outputs, strict=True):
        value.name = new_names(op.graph)(f"{original.name}:{name}") if original.name else ""
        value.type, value.shape = original.type, original.shape
    op.graph.insert_after(op, copy)
    return copy


def _read_instead(reader: ir.Node, old: Sequence[ir.Value], new: Sequence[ir.Value]) -> None:
    replacements = dict(zip(old, new, strict=True))
    for index, value in enumerate(reader.inputs):
        if value in replacements:
            reader.replace_input_with(index, replacements[value])
