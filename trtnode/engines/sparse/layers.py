"""Layers with constant weights: where a model has them, and what goes along with them."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from trtnode.engines.sparse.tensors import INFINITY, constants_of, floats_of

MOST_SIDE = 16
"""Of a depthwise convolution's kernel, strides, dilations and pads, as its operator has it."""


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The nodes behind a layer that its operator computes too.

    Attributes:
        nodes: The Add of a constant bias behind MatMul, and an activation that clips.
        value: Name of the last one's output; the layer's if there are none.
        bias: What the Add adds, ``float32[outputs]``, or None.
        low: Bound of the activation.
        high: Its other bound.
    """

    nodes: tuple[onnx.NodeProto, ...]
    value: str
    bias: np.ndarray | None
    low: float
    high: float


def find_layers(model: onnx.ModelProto) -> list[Layer]:
    """Find the layers that the operators can compute, dense ones included."""
    constants = constants_of(model.graph)
    ranks = _ranks(model.graph)
    found = (_layer(node, constants, ranks) for node in model.graph.node)
    return [layer for layer in found if layer is not None]


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
        usable = attributes.get("group", 1) == 1 and _pads_are_given(attributes)
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


def depthwise_convolutions(graph: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto]) -> list[onnx.NodeProto]:
    """Find convolutions of each channel with one filter, of the sizes that the operator knows."""
    return [node for node in graph.node if node.op_type == "Conv" and _is_depthwise(node, constants)]


def tail_of(
    node: onnx.NodeProto,
    rows: int,
    constants: Mapping[str, onnx.TensorProto],
    readers: Mapping[str, Sequence[onnx.NodeProto | None]],
) -> Tail:
    """Find what goes along behind a layer of so many output channels."""
    value, nodes, bias = node.output[0], [], None
    add = _only_reader(value, readers) if node.op_type == "MatMul" else None
    if add is not None and add.op_type == "Add" and (bias := _added_bias(add, value, rows, constants)) is not None:
        nodes.append(add)
        value = add.output[0]
    activation = _only_reader(value, readers)
    clipped = None if activation is None else _clip_range(activation, value, constants)
    if activation is None or clipped is None:
        return Tail(nodes=tuple(nodes), value=value, bias=bias, low=-INFINITY, high=INFINITY)
    return Tail(nodes=(*nodes, activation), value=activation.output[0], bias=bias, low=clipped[0], high=clipped[1])


def geometry_of(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> dict[str, int]:
    """Return a convolution's sizes as the operators' attributes have them."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    names = ("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w")
    kernel, ones = list(constants[node.input[1]].dims)[2:], [1, 1]
    sizes = [*kernel, *attributes.get("strides", ones), *attributes.get("dilations", ones)]
    pads = dict(zip(("pad_top", "pad_left", "pad_bottom", "pad_right"), attributes.get("pads", [0] * 4), strict=True))
    return {**dict(zip(names, sizes, strict=True)), **pads}


def _is_depthwise(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    weights = floats_of(constants.get(node.input[1]))
    bias = node.input[2] if len(node.input) > 2 else ""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if (
        weights is None
        or weights.ndim != 4
        or weights.shape[1] != 1
        or (bias and floats_of(constants.get(bias)) is None)
    ):
        return False
    if node.domain or attributes.get("group", 1) != weights.shape[0] or not _pads_are_given(attributes):
        return False
    return all(0 <= size <= MOST_SIDE for size in geometry_of(node, constants).values())


def _pads_are_given(attributes: Mapping[str, Any]) -> bool:
    return attributes.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID")


def _added_bias(
    add: onnx.NodeProto, value: str, rows: int, constants: Mapping[str, onnx.TensorProto]
) -> np.ndarray | None:
    others = [name for name in add.input if name != value]
    added = floats_of(constants.get(others[0])) if len(others) == 1 else None
    if added is None or added.ndim != 1 or added.size not in (1, rows):
        return None
    return np.broadcast_to(added, (rows,))


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


def readers_of(graph: onnx.GraphProto) -> Mapping[str, list[onnx.NodeProto | None]]:
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
