"""What the constants and the neighbours of QuantizeLinear and DequantizeLinear say about them."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"

MIDDLE = 128
"""The zero point with which uint8 holds the same numbers as int8 with none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """One end of a quantized tensor.

    Attributes:
        positive: Whether the scale is a constant whose elements are all greater than zero.
        per_tensor: Whether the scale is one number.
        zero_point: 0 or ``MIDDLE`` where all zero points are; None for any other, or if they are not constant.
        of_weight: Whether what is quantized is a constant.
        paired: Whether all that QuantizeLinear writes is read by DequantizeLinear alone, with equal zero points; of
            DequantizeLinear, whether it reads from such a QuantizeLinear.
    """

    positive: bool
    per_tensor: bool
    zero_point: int | None
    of_weight: bool
    paired: bool


def describe_quantization(op: ir.Node) -> Quantization:
    """Describe a QuantizeLinear or DequantizeLinear node (inputs: tensor, scale, zero point or nothing)."""
    data, scale = (op.inputs[0] if op.inputs else None), _array(op, 1)
    quantizer = op if op.op_type == QUANTIZE else _producer(data)
    source = data if quantizer in (None, op) else quantizer.inputs[0] if quantizer else None
    return Quantization(
        positive=scale is not None and bool(np.all(scale.astype(np.float32) > 0)),
        per_tensor=scale is not None and scale.size == 1,
        zero_point=_zero_point(op),
        of_weight=source is not None and source.const_value is not None,
        paired=quantizer is not None and is_paired(quantizer),
    )


def is_paired(quantizer: ir.Node) -> bool:
    """Whether a QuantizeLinear node's result is read by DequantizeLinear alone, with the zero point that it wrote."""
    result = quantizer.outputs[0]
    readers = [reader for reader, index in result.uses() if index == 0]
    return (
        not result.is_graph_output()
        and len(readers) == len(result.uses()) > 0
        and all(r.op_type == DEQUANTIZE and _share_zero_point(r, quantizer) for r in readers)
    )


def is_integer_bias(op: ir.Node) -> bool:
    """Whether a node is DequantizeLinear of an int32 constant, with one scale or one an element and no zero point.

    Quantized models hold their biases so: in steps of the input's scale times the weight's.
    """
    if op.op_type != DEQUANTIZE or op.inputs[0] is None or op.inputs[0].dtype != ir.DataType.INT32:
        return False
    data, scale = _array(op, 0), _array(op, 1)
    if data is None or scale is None or _zero_point(op) != 0:
        return False
    return scale.size == 1 or data.shape == scale.shape


def _share_zero_point(one: ir.Node, other: ir.Node) -> bool:
    """Whether two nodes have equal zero points. Most share one constant, which need not be read."""
    same = len(one.inputs) == len(other.inputs) == 3 and one.inputs[2] is other.inputs[2]
    return same or _zero_point(one) == _zero_point(other)


def _zero_point(op: ir.Node) -> int | None:
    if len(op.inputs) < 3 or op.inputs[2] is None:
        return 0
    array = _array(op, 2)
    distinct = None if array is None else set(array.astype(np.float32).ravel().tolist())
    return next((number for number in (0, MIDDLE) if distinct == {number}), None)


def _array(op: ir.Node, index: int) -> np.ndarray | None:
    value = op.inputs[index] if index < len(op.inputs) else None
    return None if value is None or value.const_value is None else value.const_value.numpy()


def _producer(value: ir.Value | None) -> ir.Node | None:
    producer = None if value is None else value.producer()
    return producer if producer is not None and producer.op_type == QUANTIZE else None
