"""Writes sparse operators in place of the layers of a model that gain from them.

A layer is Conv, Gemm or MatMul with constant float32 weights. Bias and activation that follow it go along:
``Y = clip(W X + b)`` is one operator. LSTM and GRU are two. All other nodes stay, and ONNX Runtime computes them.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from engines.sparse.packing import best_block, pack
from engines.sparse.recurrence import sparse_recurrence
from engines.sparse.tensors import DOMAIN, INFINITY, constants_of, floats_of, packed_tensors, sparse_node


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer with constant weights.

    Attributes:
        node: Conv, Gemm or MatMul.
        matrix: Its weights as [outputs, inputs of each].
        transposed: True if the file holds them as [inputs, outputs].
        bias: ``float32[outputs]``, or None.
    """

    node: onnx.NodeProto
    matrix: np.ndarray
    transposed: bool
    bias: np.ndarray | None


def find_layers(model: onnx.ModelProto) -> list[Layer]:
    """Find the layers that the operators can compute, dense ones included."""
    constants = constants_of(model.graph)
    ranks = _ranks(model.graph)
    found = (_layer(node, constants, ranks) for node in model.graph.node)
    return [layer for layer in found if layer is not None]


def with_sparse_layers(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """Return a copy of a model with sparse operators for the layers that gain, and their number."""
    chosen = {id(la.node): (la, block) for la in find_layers(model) if (block := best_block(la.matrix)) is not None}
    graph = model.graph
    constants, readers = constants_of(graph), _readers(graph)
    replaced = 0
    nodes: list[onnx.NodeProto] = []
    initializers: list[onnx.TensorProto] = []
    merged: set[str] = set()
    for node in graph.node:
        if node.output and node.output[0] in merged:
            continue
        made: list[onnx.NodeProto] = [node]
        tensors: list[onnx.TensorProto] = []
        if id(node) in chosen:
            layer, block = chosen[id(node)]
            followers = _followers(layer, constants, readers)
            merged.update(follower.output[0] for follower in followers)
            written, tensors = _sparse_node(layer, block, followers, constants)
            made = [written]
        elif (recurrence := sparse_recurrence(node, constants)) is not None:
            made, tensors = recurrence
        replaced += made != [node]
        nodes += made
        initializers += tensors
    return _rebuilt(model, nodes, initializers), replaced


def _layer(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto], ranks: Mapping[str, int]) -> Layer | None:
    if node.domain or node.op_type not in ("Conv", "Gemm", "MatMul") or len(node.input) < 2:
        return None
    weights = floats_of(constants.get(node.input[1]))
    if weights is None or node.input[0] in constants:
        return None
    given = node.input[2] if len(node.input) > 2 else ""
    bias = floats_of(constants.get(given))
    if given and bias is None:
        return None
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Conv":
        usable = attributes.get("group", 1) == 1 and attributes.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID")
        matrix = weights.reshape(weights.shape[0], -1) if usable and weights.ndim == 4 else None
    elif node.op_type == "Gemm":
        usable = attributes.get("transA", 0) == 0 and attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1
        matrix = weights if usable else None
    else:
        matrix = weights if weights.ndim == 2 and ranks.get(node.input[0], 0) > 1 else None
    if matrix is None:
        return None
    transposed = node.op_type == "MatMul" or (node.op_type == "Gemm" and not attributes.get("transB", 0))
    matrix = matrix.T if transposed else matrix
    if bias is not None:
        if bias.size not in (1, matrix.shape[0]) or (bias.ndim and bias.shape[-1] != bias.size):
            return None
        bias = np.broadcast_to(bias.reshape(-1), matrix.shape[:1])
    return Layer(node=node, matrix=matrix, transposed=transposed, bias=bias)


def _followers(
    layer: Layer, constants: Mapping[str, onnx.TensorProto], readers: Mapping[str, Sequence[onnx.NodeProto | None]]
) -> list[onnx.NodeProto]:
    """Return the nodes that go along: the Add of a constant bias behind MatMul, and an activation."""
    followers: list[onnx.NodeProto] = []
    value = layer.node.output[0]
    add = _only_reader(value, readers) if layer.node.op_type == "MatMul" else None
    if add is not None and add.op_type == "Add" and _added_bias(add, value, layer, constants) is not None:
        followers.append(add)
        value = add.output[0]
    activation = _only_reader(value, readers)
    if activation is not None and _clip_range(activation, value, constants) is not None:
        followers.append(activation)
    return followers


def _sparse_node(
    layer: Layer, block: int, followers: Sequence[onnx.NodeProto], constants: Mapping[str, onnx.TensorProto]
) -> tuple[onnx.NodeProto, list[onnx.TensorProto]]:
    bias, (low, high), value = layer.bias, (-INFINITY, INFINITY), layer.node.output[0]
    for follower in followers:
        if follower.op_type == "Add":
            bias = _added_bias(follower, value, layer, constants)
        else:
            clipped = _clip_range(follower, value, constants)
            assert clipped is not None
            low, high = clipped
        value = follower.output[0]
    weights = pack(layer.matrix, block)
    tensors = packed_tensors(value, weights, bias)
    is_conv = layer.node.op_type == "Conv"
    node = sparse_node(
        "SparseConv" if is_conv else "SparseMatMul",
        [layer.node.input[0], *(tensor.name for tensor in tensors)],
        [value],
        name=layer.node.name,
        weights=weights,
        attributes={"low": low, "high": high, **(_geometry(layer.node, constants) if is_conv else {})},
    )
    return node, tensors


def _geometry(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> dict[str, int]:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    names = ("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w")
    kernel, ones = list(constants[node.input[1]].dims)[2:], [1, 1]
    sizes = [*kernel, *attributes.get("strides", ones), *attributes.get("dilations", ones)]
    pads = dict(zip(("pad_top", "pad_left", "pad_bottom", "pad_right"), attributes.get("pads", [0] * 4), strict=True))
    return {**dict(zip(names, sizes, strict=True)), **pads}


def _added_bias(
    add: onnx.NodeProto, value: str, layer: Layer, constants: Mapping[str, onnx.TensorProto]
) -> np.ndarray | None:
    others = [name for name in add.input if name != value]
    added = floats_of(constants.get(others[0])) if len(others) == 1 else None
    if added is None or added.ndim != 1 or added.size not in (1, layer.matrix.shape[0]):
        return None
    return np.broadcast_to(added, layer.matrix.shape[:1])


def _clip_range(
    node: onnx.NodeProto, value: str, constants: Mapping[str, onnx.TensorProto]
) -> tuple[float, float] | None:
    """Return the range that an activation clips to; None for any other node."""
    if node.domain or node.input[0] != value:
        return None
    if node.op_type == "Relu":
        return 0.0, INFINITY
    if node.op_type != "Clip":
        return None
    bounds = {a.name: float(helper.get_attribute_value(a)) for a in node.attribute}
    for name, given in zip(("min", "max"), node.input[1:], strict=False):
        if not given:
            continue
        bound = floats_of(constants.get(given))
        if bound is None or bound.size != 1:
            return None
        bounds[name] = float(bound.reshape(-1)[0])
    low, high = bounds.get("min", -INFINITY), bounds.get("max", INFINITY)
    return (low, high) if math.isfinite(low) and math.isfinite(high) and low <= high else None


def _only_reader(value: str, readers: Mapping[str, Sequence[onnx.NodeProto | None]]) -> onnx.NodeProto | None:
    found = readers[value]
    return found[0] if len(found) == 1 else None


def _readers(graph: onnx.GraphProto) -> Mapping[str, list[onnx.NodeProto | None]]:
    """List the readers of each value; None stands for the graph's outputs and for subgraphs."""
    readers: dict[str, list[onnx.NodeProto | None]] = collections.defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)
    for output in graph.output:
        readers[output.name].append(None)
    return readers


def _ranks(graph: onnx.GraphProto) -> dict[str, int]:
    values = (*graph.input, *graph.value_info)
    return {v.name: len(v.type.tensor_type.shape.dim) for v in values if v.type.tensor_type.HasField("shape")}


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
