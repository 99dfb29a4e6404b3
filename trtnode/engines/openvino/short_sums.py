"""Labels quantized sums that saturate on x86 processors without 8-bit dot products.

OpenVINO multiplies 8-bit activations by int8 weights there with VPMADDUBSW, which adds pairs of products in 16 bits and
stops at the end of their range. Signed activations are moved into uint8 first, so they saturate as well. Kernels for
one input channel a group don't add in pairs.
"""

from __future__ import annotations

import weakref

import numpy as np
import onnx_ir as ir

from trtnode.engines.backends.cpu_features import has_short_sums, usable_flags
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.graph.qdq import DEQUANTIZE, QUANTIZE
from trtnode.partitioner.graph.view import Node

MULTIPLYING = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})

LARGEST_SUM = 128
"""Largest sum of two weights of one sign: 255 * 128 is less than 2**15."""


_graphs: weakref.WeakKeyDictionary[ir.Graph, bool] = weakref.WeakKeyDictionary()
"""Graphs in which sums could saturate."""


def check_sums(node: Node) -> Verdict:
    """Refuse a node whose sums could saturate on this processor, whatever its inputs are.

    All that is quantized in the same graph runs natively as well. Apart, its pieces are many, and none pays.
    """
    if not has_short_sums(usable_flags()):
        return SUPPORTED
    problem = _problem(node.op)
    if problem is not None:
        return Verdict(ReasonCode.INACCURATE, problem)
    if _has_quantized_inputs(node.op) and _saturates(node.op.graph):
        return Verdict(
            ReasonCode.INACCURATE,
            "It is quantized, and so are sums of this model that would saturate in OpenVINO on this processor, which "
            "has no 8-bit dot products (VNNI).",
        )
    return SUPPORTED


def _saturates(graph: ir.Graph | None) -> bool:
    if graph is None:
        return False
    if graph not in _graphs:
        _graphs[graph] = any(_problem(op) is not None for op in graph)
    return _graphs[graph]


def _has_quantized_inputs(op: ir.Node) -> bool:
    producers = [value.producer() for value in op.inputs if value is not None]
    return op.op_type in (QUANTIZE, DEQUANTIZE) or any(p is not None and p.op_type == DEQUANTIZE for p in producers)


def _problem(op: ir.Node) -> str | None:
    """Return why the sums of a node could saturate."""
    if op.op_type not in MULTIPLYING or op.domain:
        return None
    activation, weight = op.inputs[:2]
    if not (_is_quantized(activation) and _is_quantized(weight)) or _is_depthwise(op):
        return None
    numbers = [n for n in (_numbers(weight), _numbers(activation)) if n is not None]
    if not any(n.dtype == ir.DataType.INT8 for n in numbers):
        return None
    constant = next((n.const_value for n in numbers if n.const_value is not None), None)
    largest = None if constant is None else largest_sum(constant.numpy())
    if largest is not None and largest <= LARGEST_SUM:
        return None
    why = "Its 8-bit factors are computed" if largest is None else f"Two of its weights add up to {largest}"
    return (
        f"{why}, and OpenVINO's 16-bit sums would saturate beyond {LARGEST_SUM}: this processor has no 8-bit dot "
        "products (VNNI)."
    )


def largest_sum(weights: np.ndarray) -> int:
    """Return the largest absolute sum of any two weights of one sign."""
    flat = np.sort(weights.astype(np.int64).ravel())
    low, high = np.minimum(flat[:2], 0), np.maximum(flat[-2:], 0)
    return int(max(high.sum(), -low.sum()))


def _is_depthwise(op: ir.Node) -> bool:
    shape = None if (weight := op.inputs[1]) is None else weight.shape
    return op.op_type == "Conv" and op.attributes.get_int("group", 1) > 1 and shape is not None and shape[1] == 1


def _is_quantized(value: ir.Value | None) -> bool:
    """Return whether a value is dequantized, or follows from dequantized ones without a sum of products between."""
    pending, seen = [value], set()
    while pending:
        producer = None if (one := pending.pop()) is None else one.producer()
        if producer is None or producer in seen:
            continue
        if producer.op_type in (DEQUANTIZE, QUANTIZE):
            return True
        seen.add(producer)
        if producer.op_type not in MULTIPLYING:
            pending.extend(producer.inputs)
    return False


def _numbers(value: ir.Value | None) -> ir.Value | None:
    """Return the integers that a value is dequantized from."""
    producer = None if value is None else value.producer()
    return producer.inputs[0] if producer is not None and producer.op_type == DEQUANTIZE else None
