"""The domain of all sparse operators, and their weights as tensors."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from trtnode.engines.sparse.packing import SparseWeights
from trtnode.partitioner.model.mapped_weights import data_outside

DOMAIN = "trtnode.sparse"
"""Domain of the operators. Beside engines of this library, no file holds them."""

INFINITY = float(np.finfo(np.float32).max)
"""Bound of a sum that is not clipped. Attributes hold no infinity in all of ONNX's readers."""


def constants_of(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return the initializers that no caller can replace."""
    inputs = {value.name for value in graph.input}
    return {tensor.name: tensor for tensor in graph.initializer if tensor.name not in inputs}


def floats_of(tensor: onnx.TensorProto | None) -> np.ndarray | None:
    """Return a float32 tensor's values, mapped if they lie in a file of absolute path; None for every other type."""
    if tensor is None or tensor.data_type != onnx.TensorProto.FLOAT:
        return None
    placed = data_outside(tensor)
    return numpy_helper.to_array(tensor) if placed is None else np.frombuffer(placed, "<f4").reshape(tuple(tensor.dims))


def packed_tensors(value: str, weights: SparseWeights, bias: np.ndarray | None) -> list[onnx.TensorProto]:
    """Return the inputs that hold packed weights, in the operators' order, named after a value."""
    arrays = {"values": weights.values, "steps": weights.steps, "starts": weights.starts}
    if bias is not None:
        arrays["bias"] = bias.astype(np.float32)
    return [numpy_helper.from_array(array, f"{value}/sparse/{name}") for name, array in arrays.items()]


def sparse_node(
    op_type: str,
    inputs: list[str],
    outputs: list[str],
    *,
    name: str,
    weights: SparseWeights,
    attributes: dict[str, int | float],
) -> onnx.NodeProto:
    """Return a node of a sparse operator; ``attributes`` are its own, and bounds where it has some."""
    node = helper.make_node(op_type, inputs, outputs, name=name, domain=DOMAIN)
    sizes = {"rows": weights.rows, "columns": weights.columns, "block": weights.block}
    sizes["patched"] = int(weights.is_patched)
    given = {**sizes, "low": -INFINITY, "high": INFINITY, **attributes}
    node.attribute.extend(helper.make_attribute(key, value) for key, value in given.items())
    return node
