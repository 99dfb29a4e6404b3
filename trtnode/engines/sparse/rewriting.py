"""Writes sparse operators in place of the layers of a model that gain from them.

A layer is Conv, Gemm or MatMul with constant float32 weights. Bias and activation that follow it go along:
``Y = clip(W X + b)`` is one operator. LSTM and GRU are two. Depthwise convolutions beside a sparse one get an operator
too, which reads and writes plain layouts: ONNX Runtime's would reorder all values before and after it. All other nodes
stay, and ONNX Runtime computes them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import onnx
from onnx import helper

from trtnode.engines.sparse.layers import (
    Layer,
    Tail,
    depthwise_convolutions,
    find_layers,
    geometry_of,
    readers_of,
    tail_of,
)
from trtnode.engines.sparse.library import instructions
from trtnode.engines.sparse.packing import best_block, pack
from trtnode.engines.sparse.recurrence import single_sequences, sparse_recurrence
from trtnode.engines.sparse.tensors import DOMAIN, constants_of, packed_tensors, sparse_node

PATCHED = "AVX-512"
"""Instructions with which the recurrence over one sequence is faster on patches."""


def with_sparse_layers(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """Return a copy of a model with sparse operators for the layers that gain, and their number."""
    constants = constants_of(model.graph)
    written = _sparse_layers(model, constants)
    sparse = len(written)
    singles = single_sequences(model) if instructions() == PATCHED else set()
    _add_depthwise(model.graph, constants, written)
    merged = {node.output[0] for one in written.values() for node in one.tail.nodes}
    nodes: list[onnx.NodeProto] = []
    initializers: list[onnx.TensorProto] = []
    for node in model.graph.node:
        if node.output and node.output[0] in merged:
            continue
        recurrence = sparse_recurrence(node, constants, patched=bool(node.input) and node.input[0] in singles)
        if recurrence is not None:
            sparse += 1
            made, tensors = recurrence
        else:
            one = written.get(node.output[0]) if node.output else None
            made, tensors = ([one.node], one.tensors) if one is not None else ([node], [])
        nodes += made
        initializers += tensors
    return _rebuilt(model, nodes, initializers), sparse


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """An operator in place of a layer.

    Attributes:
        node: The operator.
        tensors: Its weights.
        tail: What goes along.
    """

    node: onnx.NodeProto
    tensors: list[onnx.TensorProto]
    tail: Tail


def _sparse_layers(model: onnx.ModelProto, constants: Mapping[str, onnx.TensorProto]) -> dict[str, _Written]:
    """Return operators for the layers that gain, by the name of the layer's output."""
    readers = readers_of(model.graph)
    written = {}
    for layer in find_layers(model):
        block = best_block(layer.matrix)
        if block is not None:
            tail = tail_of(layer.node, layer.matrix.shape[0], constants, readers)
            written[layer.node.output[0]] = _sparse_layer(layer, block, tail, constants)
    return written


def _sparse_layer(layer: Layer, block: int, tail: Tail, constants: Mapping[str, onnx.TensorProto]) -> _Written:
    weights = pack(layer.matrix, block)
    tensors = packed_tensors(tail.value, weights, layer.bias if tail.bias is None else tail.bias)
    is_conv = layer.node.op_type == "Conv"
    node = sparse_node(
        "SparseConv" if is_conv else "SparseMatMul",
        [layer.node.input[0], *(tensor.name for tensor in tensors)],
        [tail.value],
        name=layer.node.name,
        weights=weights,
        attributes={"low": tail.low, "high": tail.high, **(geometry_of(layer.node, constants) if is_conv else {})},
    )
    return _Written(node=node, tensors=tensors, tail=tail)


def _add_depthwise(
    graph: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto], written: dict[str, _Written]
) -> None:
    """Add operators for depthwise convolutions that read from a sparse one or write to one."""
    convolutions = [one for one in written.values() if one.node.op_type == "SparseConv"]
    sources, targets = {one.tail.value for one in convolutions}, {one.node.input[0] for one in convolutions}
    readers = readers_of(graph)
    for node in depthwise_convolutions(graph, constants):
        tail = tail_of(node, constants[node.input[1]].dims[0], constants, readers)
        if node.input[0] not in sources and tail.value not in targets:
            continue
        made = helper.make_node("DepthwiseConv", node.input, [tail.value], name=node.name, domain=DOMAIN)
        attributes = {"low": tail.low, "high": tail.high, **geometry_of(node, constants)}
        made.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        written[node.output[0]] = _Written(node=made, tensors=[], tail=tail)


def _rebuilt(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], added: Sequence[onnx.TensorProto]
) -> onnx.ModelProto:
    """Return the model with other nodes, without the weights that nobody reads any more."""
    rebuilt = onnx.ModelProto.FromString(model.SerializeToString())
    graph = rebuilt.graph
    del graph.node[:]
    graph.node.extend(nodes)
    read = {name for node in nodes for name in node.input} | {value.name for value in graph.output}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend([*kept, *added])
    rebuilt.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return rebuilt
