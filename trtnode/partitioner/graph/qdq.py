"""QuantizeLinear and DequantizeLinear, described by their constants and neighbours."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.model.values import input_of

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"

MIDDLE = 128
"""The zero point that makes uint8 equivalent to int8 without one."""


@dataclasses.dataclass(frozen=True, slots=True)
class ScaleReader:
    """A node that reads a dequantized tensor, itself or transposed.

    Attributes:
        op_type: Its operator.
        place: Number of its input.
        axis: The axis of this input along which scales change; that of a Gemm as if it didn't transpose.
        rank: Rank of this input.
    """

    op_type: str
    place: int
    axis: int
    rank: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """One end of a quantized tensor.

    Attributes:
        positive: True if the scale is a constant whose elements are all greater than zero.
        per_tensor: True if the scale is one number.
        zero_point: 0 or ``MIDDLE`` if all zero points are that number; None for other or non-constant ones.
        of_weight: True if the quantized tensor is a constant.
        paired: True if DequantizeLinear with equal zero points alone reads the result of QuantizeLinear.
            For DequantizeLinear, true if it reads from such a QuantizeLinear.
        readers: What reads a constant that is dequantized with several scales.
        whole_blocks: True if a scale belongs to one element, or its block isn't cut off at the end of the axis.
    """

    positive: bool
    per_tensor: bool
    zero_point: int | None
    of_weight: bool
    paired: bool
    readers: frozenset[ScaleReader] = frozenset()
    whole_blocks: bool = True


def describe_quantization(op: ir.Node) -> Quantization:
    """Describe a QuantizeLinear or DequantizeLinear node (inputs: tensor, scale, zero point or nothing)."""
    data, scale = input_of(op, 0), _array(op, 1)
    quantizer = op if op.op_type == QUANTIZE else _producer(data)
    source = data if quantizer in (None, op) else quantizer.inputs[0] if quantizer else None
    shape = _array_shape(op.inputs[0]) if op.op_type == DEQUANTIZE and scale is not None and scale.size > 1 else ()
    axis = op.attributes.get_int("axis", 1) % max(len(shape), 1)
    return Quantization(
        positive=scale is not None and bool(np.all(scale.astype(np.float32) > 0)),
        per_tensor=scale is not None and scale.size == 1,
        zero_point=_zero_point(op),
        of_weight=source is not None and source.const_value is not None,
        paired=quantizer is not None and is_paired(quantizer),
        readers=frozenset(_readers(op.outputs[0], axis, len(shape)) if shape else ()),
        whole_blocks=not shape or shape[axis] % (op.attributes.get_int("block_size", 0) or 1) == 0,
    )


def _readers(value: ir.Value, axis: int, rank: int) -> Iterator[ScaleReader]:
    for op, place in value.uses():
        if op.op_type == "Transpose":
            order = list(op.attributes.get_ints("perm", range(rank)[::-1]))
            yield from _readers(op.outputs[0], order.index(axis), rank)
        else:
            turned = op.op_type == "Gemm" and bool(op.attributes.get_int(("transA", "transB")[place % 2], 0))
            yield ScaleReader(op.op_type, place, rank - 1 - axis if turned else axis, rank)


def is_paired(quantizer: ir.Node) -> bool:
    """Return whether DequantizeLinear with an equal zero point alone reads a QuantizeLinear node's result."""
    result = quantizer.outputs[0]
    readers = [reader for reader, index in result.uses() if index == 0]
    return (
        not result.is_graph_output()
        and len(readers) == len(result.uses()) > 0
        and all(r.op_type == DEQUANTIZE and _share_zero_point(r, quantizer) for r in readers)
    )


def is_integer_bias(op: ir.Node) -> bool:
    """Return whether a node is DequantizeLinear of a bias: int32, without zero point, one scale or one an element.

    Quantized models store biases in steps of the input's scale times the weight's.
    """
    if op.op_type != DEQUANTIZE or op.inputs[0] is None or op.inputs[0].dtype != ir.DataType.INT32:
        return False
    data, scale = _array(op, 0), _array(op, 1)
    if data is None or scale is None or _zero_point(op) != 0:
        return False
    return scale.size == 1 or data.shape == scale.shape


def _share_zero_point(one: ir.Node, other: ir.Node) -> bool:
    """Return whether two nodes have equal zero points. Most share one constant, which is not read then."""
    same = len(one.inputs) == len(other.inputs) == 3 and one.inputs[2] is other.inputs[2]
    return same or _zero_point(one) == _zero_point(other)


def _zero_point(op: ir.Node) -> int | None:
    if len(op.inputs) < 3 or op.inputs[2] is None:
        return 0
    array = _array(op, 2)
    distinct = None if array is None else set(array.astype(np.float32).ravel().tolist())
    return next((number for number in (0, MIDDLE) if distinct == {number}), None)


def _array_shape(value: ir.Value | None) -> tuple[int, ...]:
    return () if value is None or value.const_value is None else tuple(value.const_value.shape.numpy())


def _array(op: ir.Node, index: int) -> np.ndarray | None:
    value = input_of(op, index)
    return None if value is None or value.const_value is None else value.const_value.numpy()


def _producer(value: ir.Value | None) -> ir.Node | None:
    producer = None if value is None else value.producer()
    return producer if producer is not None and producer.op_type == QUANTIZE else None
