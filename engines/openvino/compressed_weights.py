"""Labels weights that come quantized. OpenVINO keeps them so, and its kernels dequantize them in each run.

Its kernels expect the scales of a matrix for each column, or for blocks of rows. In the other forms they read wrong
scales, or memory beyond them.
"""

from __future__ import annotations

import onnx_ir as ir

from trtnode.partitioner.graph.qdq import ScaleReader, describe_quantization
from trtnode.partitioner.graph.view import Node

FOUR_BITS = frozenset({ir.DataType.INT4, ir.DataType.UINT4})

QUANTIZED_SUMS = 4
"""The accuracy level at which ONNX Runtime also quantizes what MatMulNBits multiplies by its weights."""

ORDER = 4
"""The input of MatMulNBits that says which block each row belongs to."""

MULTIPLYING = frozenset({"Gemm", "MatMul"})


def refused_product(node: Node) -> str | None:
    """Return what OpenVINO computes differently of a MatMulNBits."""
    if node.op.attributes.get_int("accuracy_level", 0) >= QUANTIZED_SUMS:
        return "accuracy_level 4 lets ONNX Runtime multiply in 8 bits, and OpenVINO multiplies in float32."
    if len(node.op.inputs) > ORDER and node.op.inputs[ORDER] is not None:
        return "OpenVINO has no g_idx for MatMulNBits."
    return None


def refused_weight(node: Node) -> str | None:
    """Return what OpenVINO reads differently of the scales of a dequantized constant."""
    form, blocked = describe_quantization(node.op), bool(node.op.attributes.get_int("block_size", 0))
    if blocked and not form.of_weight:
        return "OpenVINO converts blocked quantization of constants alone."
    if not form.whole_blocks:
        return "OpenVINO converts no block of scales that the end of its axis cuts off."
    for reader in form.readers:
        if _is_misread(reader, blocked=blocked):
            return f"OpenVINO reads wrong scales along axis {reader.axis} of what {reader.op_type} reads."
    return None


def _is_misread(reader: ScaleReader, *, blocked: bool) -> bool:
    if reader.op_type == "Gather":
        return reader.place == 0 and reader.axis != 0 and not blocked
    by_row = reader.axis == reader.rank - 2
    return reader.op_type in MULTIPLYING and reader.place == 1 and by_row != blocked
