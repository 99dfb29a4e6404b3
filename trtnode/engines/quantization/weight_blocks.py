"""Writes int4 weights: matrices in blocks with a scale each, which engines expand as they multiply.

Activations stay floats, so nothing is calibrated. The weights take an eighth of their memory, and a GPU that answers
one request at a time spends most of its time reading them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from trtnode.engines.quantization.opset_raising import raised_copy
from trtnode.engines.quantization.schemes import INT4
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.new_values import add_constant, new_names
from trtnode.partitioner.model.values import is_constant, tensor_of

logger = logging.getLogger(__name__)

BLOCK_SIZES = (128, 64, 32, 16)
"""Sizes that TensorRT takes. The largest that divides the rows of a matrix is used."""

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)

SHRUNK = (1.0, 0.95, 0.9, 0.85, 0.8)
"""Parts of a block's largest weight that may become the largest number; what is cut off may cost less than it gains."""


def store_in_blocks(model: onnx.ModelProto, *, keep: Collection[str] = ()) -> onnx.ModelProto:
    """Store the constant matrices of MatMul and Gemm as int4.

    Args:
        model: Constants as initializers, nodes in topological order. It is not changed.
        keep: Identities of nodes that keep their weights.

    Returns:
        A model of opset 21 or newer with the same inputs and outputs; the model itself where no weight fits.

    Raises:
        QuantizationError: The model can't be raised to that opset.
    """
    chosen = [node.name for node in Graph.of(ir.from_proto(model)).nodes if node.name not in keep and _fits(node.op)]
    if not chosen:
        return model
    work = raised_copy(model, INT4.opset, INT4.ir_version)
    stored: dict[tuple[ir.Value, int], ir.Value] = {}
    for node in Graph.of(work).nodes:
        if node.name in chosen:
            _store(work.graph, node.op, stored)
    common.RemoveUnusedNodesPass()(work)
    return ir.to_proto(work)


def _fits(op: ir.Node) -> bool:
    weight = op.inputs[1] if op.op_type in ("Gemm", "MatMul") and not op.domain else None
    if weight is None or not is_constant(weight) or weight.const_value is None or weight.dtype not in FLOATS:
        return False
    shape = weight.const_value.shape.numpy()
    finite = len(shape) == 2 and bool(np.isfinite(weight.const_value.numpy()).all())
    return finite and shape[_axis(op)] > 0 and shape[_axis(op)] % BLOCK_SIZES[-1] == 0


def _axis(op: ir.Node) -> int:
    """Return the axis of the weight that products are added up along."""
    return 1 if op.op_type == "Gemm" and op.attributes.get_int("transB", 0) == 1 else 0


def _store(graph: ir.Graph, op: ir.Node, stored: dict[tuple[ir.Value, int], ir.Value]) -> None:
    weight, axis = op.inputs[1], _axis(op)
    assert weight is not None
    tensor = tensor_of(weight)
    if (weight, axis) not in stored:
        size = next(size for size in BLOCK_SIZES if tensor.shape.numpy()[axis] % size == 0)
        integers, scales = blocks_of(tensor.numpy(), axis, size)
        named = ((f"{weight.name}_int4", integers), (f"{weight.name}_int4_step", scales))
        inputs = [add_constant(graph, name, array) for name, array in named]
        expand = ir.node("DequantizeLinear", inputs, {"axis": axis, "block_size": size})
        expand.name = new_names(graph)(f"{weight.name}/expand")
        expand.outputs[0].name = new_names(graph)(f"{weight.name}_expanded")
        expand.outputs[0].type, expand.outputs[0].shape = weight.type, weight.shape
        graph.insert_before(op, expand)
        stored[weight, axis] = expand.outputs[0]
    op.replace_input_with(1, stored[weight, axis])


def blocks_of(weight: np.ndarray, axis: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Round a matrix to int4 in blocks along an axis, each with the scale that leaves the smallest square error.

    Args:
        weight: float32 or float16, [rows, columns].
        axis: Axis of the blocks.
        size: Elements of a block; it divides that axis.

    Returns:
        int4[rows, columns], and the scales in the weight's type: a matrix with one element for each block.
    """
    rows = np.moveaxis(weight.astype(np.float32), axis, 0)
    blocks = rows.reshape(-1, size, rows.shape[1])
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    largest[largest == 0] = INT4.largest
    best = np.full_like(largest, np.inf)
    steps = np.empty_like(largest)
    for part in SHRUNK:
        step = (largest * part / INT4.largest).astype(weight.dtype).astype(np.float32)
        step[step == 0] = np.finfo(weight.dtype).tiny
        error = np.square(INT4.rounded(blocks / step).astype(np.float32) * step - blocks).sum(axis=1, keepdims=True)
        better = error < best
        steps, best = np.where(better, step, steps), np.minimum(error, best)
    integers = np.moveaxis(INT4.rounded(blocks / steps).reshape(rows.shape), 0, axis)
    scales = np.moveaxis(steps[:, 0], 0, axis).astype(weight.dtype)
    return np.ascontiguousarray(integers), np.ascontiguousarray(scales)
