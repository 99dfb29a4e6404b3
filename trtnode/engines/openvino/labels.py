"""Labels ONNX nodes that OpenVINO's CPU plugin computes right.

The library has no call that lists the operators of its ONNX front end, and may compute differently what it accepts.
So tables (``trtnode.engines.openvino.operators``) and rules decide, and each refusal names the fault. Everything else
about a node is left to the build and to the check after it.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from trtnode.engines.openvino.compressed_weights import check_products
from trtnode.engines.openvino.equal_sizes import check_sizes
from trtnode.engines.openvino.indices import label_indices
from trtnode.engines.openvino.operator_rules import ATTRIBUTE_RULES, is_compressed, text_of
from trtnode.engines.openvino.operators import (
    BYTES,
    COMPARISONS,
    CONSTANT_INPUTS,
    EXACT_DTYPES,
    FLOAT32_INTEGERS,
    INT32_RANGE,
    INT64_MOVERS,
    INT64_ROUND_TRIP,
    SATURATING,
    SHAPE_FED,
    SUPPORTED_OPS,
    THROUGH_FLOAT32,
)
from trtnode.engines.openvino.short_sums import check_sums
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.graph.view import Node
from trtnode.partitioner.model.values import comes_from_shape, input_of, named_values


def label(node: Node) -> Verdict:
    """Return whether OpenVINO's CPU plugin computes this node right."""
    if node.op_type not in SUPPORTED_OPS:
        return Verdict(ReasonCode.UNSUPPORTED_OP, f"OpenVINO has no {node.op_type} that passes the ONNX tests.")
    for rule in RULES:
        verdict = rule(node)
        if not verdict.supported:
            return verdict
    return SUPPORTED


def _check_dtypes(node: Node) -> Verdict:
    for value in named_values(node.op):
        if value.dtype in EXACT_DTYPES or value.dtype == ir.DataType.INT64 or is_compressed(node, value):
            continue
        name = value.dtype.name.lower() if value.dtype else "an unknown type"
        return Verdict(ReasonCode.UNSUPPORTED_DTYPE, f"{value.name!r} is {name}, which OpenVINO computes differently.")
    return SUPPORTED


def _check_empty(node: Node) -> Verdict:
    for value in _data(node):
        if value.shape is not None and any(d == 0 for d in value.shape):
            return Verdict(ReasonCode.UNSUPPORTED_RANK, f"{value.name!r} has no elements.")
    return SUPPORTED


def _check_int64(node: Node) -> Verdict:
    if not any(v.dtype == ir.DataType.INT64 for v in _data(node)) or _is_shape_arithmetic(node):
        return SUPPORTED
    if node.op_type == "Cast":
        return _check_cast(node)
    if node.op_type not in INT64_MOVERS and any(v.dtype == ir.DataType.INT64 for v in node.op.outputs):
        return Verdict(
            ReasonCode.UNSUPPORTED_DTYPE, f"{node.op_type} on int64 would be computed in 32 bits and could overflow."
        )
    return SUPPORTED


def _check_cast(node: Node) -> Verdict:
    source, result = node.op.inputs[0], node.op.outputs[0]
    assert source is not None
    if result.dtype == ir.DataType.INT64 and source.dtype not in {*INT64_ROUND_TRIP, ir.DataType.INT64}:
        return Verdict(ReasonCode.UNSUPPORTED_DTYPE, "Cast to int64 would stop at the range of int32.")
    return SUPPORTED


def _check_integers(node: Node) -> Verdict:
    """Refuse arithmetic that is right for small integers alone: the check after a build tries no others."""
    data = [v for v in node.op.inputs if v is not None and v.const_value is None]
    wide = [v for v in data if v.dtype in (ir.DataType.INT32, ir.DataType.INT64) and not comes_from_shape(v)]
    rounded = node.op_type in THROUGH_FLOAT32 or (node.op_type in COMPARISONS and not _has_small_constant(node))
    if wide and rounded:
        return Verdict(
            ReasonCode.UNSUPPORTED_DTYPE, f"{node.op_type} on integers would be computed in float32 and lose digits."
        )
    if node.op_type in SATURATING and any(v.dtype in BYTES for v in data):
        return Verdict(
            ReasonCode.UNSUPPORTED_DTYPE, f"{node.op_type} on 8-bit integers would not wrap around at their range."
        )
    reduces = node.op_type.startswith("Scatter") and text_of(node, "reduction", "none") != "none"
    if reduces and any(v.dtype == ir.DataType.INT64 for v in node.op.outputs):
        return Verdict(ReasonCode.UNSUPPORTED_DTYPE, f"{node.op_type} on int64 would be reduced in 32 bits.")
    return SUPPORTED


def _has_small_constant(node: Node) -> bool:
    constants = [v.const_value.numpy() for v in node.op.inputs if v is not None and v.const_value is not None]
    return any(np.all(np.abs(c.astype(np.float64)) < FLOAT32_INTEGERS) for c in constants)


def _check_constant_inputs(node: Node) -> Verdict:
    for index in CONSTANT_INPUTS.get(node.op_type, ()):
        value = input_of(node.op, index)
        if value is None or value.const_value is not None:
            continue
        if node.op_type in SHAPE_FED and comes_from_shape(value):
            continue
        return Verdict(
            ReasonCode.UNSUPPORTED_INPUT, f"Input {index} ({value.name!r}) of {node.op_type} must be a constant."
        )
    return _check_constant_range(node)


def _check_constant_range(node: Node) -> Verdict:
    if node.op_type in CONSTANT_INPUTS:
        return SUPPORTED
    for value in node.op.inputs:
        if value is None or value.const_value is None or value.dtype != ir.DataType.INT64:
            continue
        array = value.const_value.numpy()
        if array.size and (array.min() < INT32_RANGE[0] or array.max() > INT32_RANGE[1]):
            return Verdict(ReasonCode.UNSUPPORTED_INPUT, f"Constant {value.name!r} does not fit into 32 bits.")
    return SUPPORTED


def _check_attributes(node: Node) -> Verdict:
    rule = ATTRIBUTE_RULES.get(node.op_type)
    problem = rule(node) if rule else None
    return Verdict(ReasonCode.UNSUPPORTED_ATTRIBUTE, problem) if problem else SUPPORTED


def _data(node: Node) -> list[ir.Value]:
    return [v for v in named_values(node.op) if v.const_value is None]


def _is_shape_arithmetic(node: Node) -> bool:
    """Return whether an integer node computes only from dimensions and constants, which fit into 32 bits."""
    return all(comes_from_shape(v) for v in node.op.outputs)


RULES = (
    *(_check_dtypes, _check_empty, _check_int64, _check_integers, _check_constant_inputs, _check_attributes),
    *(check_sizes, check_sums, label_indices, check_products),
)
"""All rules, in the order in which a node's first fault is told."""
