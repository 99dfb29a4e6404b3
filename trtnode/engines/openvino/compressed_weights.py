"""Labels weights that come quantized. OpenVINO keeps them so, and its kernels dequantize them in each run.

Its kernels expect the scales of a matrix for each column, or for blocks of rows. In the other forms they read wrong
scales, or memory beyond them.
It has no 8-bit kernels for what ONNX Runtime quantizes in each run: it converts both factors to float32, and is slower.
"""

from __future__ import annotations

import weakref

import onnx_ir as ir

from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.graph.qdq import ScaleReader, describe_quantization
from trtnode.partitioner.graph.view import Node

FOUR_BITS = frozenset({ir.DataType.INT4, ir.DataType.UINT4})

QUANTIZED_SUMS = 4
"""The accuracy level at which ONNX Runtime also quantizes what MatMulNBits multiplies by its weights."""

ORDER = 4
"""The input of MatMulNBits that says which block each row belongs to."""

MULTIPLYING = frozenset({"Gemm", "MatMul"})

QUANTIZED_PRODUCTS = frozenset(
    "ConvInteger DynamicQuantizeLSTM DynamicQuantizeMatMul MatMulInteger MatMulIntegerToFloat QAttention".split()
)
"""Operators of ONNX and ONNX Runtime whose factors are quantized in each run."""

_graphs: weakref.WeakKeyDictionary[ir.Graph, bool] = weakref.WeakKeyDictionary()
"""Graphs most of whose weights are multiplied natively."""


def check_products(node: Node) -> Verdict:
    """Refuse every node of a graph most of whose weights are multiplied natively: apart, its pieces don't pay."""
    graph = node.op.graph
    if isinstance(graph, ir.Graph) and graph not in _graphs:
        _graphs[graph] = _multiplies_natively(graph)
    if not isinstance(graph, ir.Graph) or not _graphs[graph]:
        return SUPPORTED
    return Verdict(
        ReasonCode.NOT_FASTER,
        "ONNX Runtime multiplies most weights of this model in 8 bits, which OpenVINO can't. The pieces between these "
        "products are many, and none pays.",
    )


def _multiplies_natively(graph: ir.Graph) -> bool:
    left = held = 0
    for op in graph:
        weights = sum(v.const_value.size for v in op.inputs if v is not None and v.const_value is not None)
        if op.op_type in QUANTIZED_PRODUCTS:
            left += weights
        elif op.op_type == "MatMulNBits" and _is_in_bytes(op):
            left += op.attributes.get_int("K", 0) * op.attributes.get_int("N", 0)
        elif op.op_type != "Gather":  # of whose table a run takes rows
            held += weights
    return left > held


def refused_product(node: Node) -> str | None:
    """Return what OpenVINO computes differently of a MatMulNBits."""
    if _is_in_bytes(node.op):
        return "accuracy_level 4 lets ONNX Runtime multiply in 8 bits, and OpenVINO multiplies in float32."
    if len(node.op.inputs) > ORDER and node.op.inputs[ORDER] is not None:
        return "OpenVINO has no g_idx for MatMulNBits."
    return None


def _is_in_bytes(op: ir.Node) -> bool:
    return op.attributes.get_int("accuracy_level", 0) >= QUANTIZED_SUMS


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
