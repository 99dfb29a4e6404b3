"""Finds in a graph what values and sizes of its inputs would show: bounds of integers, ties, reach of windows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.values import dimensions, input_of

Bounds = tuple[int, int]
"""Lowest and highest value of an integer."""

MOVERS = frozenset("Concat Expand Flatten Identity Reshape Slice Split Squeeze Tile Transpose Unsqueeze".split())
"""Operators whose results have the values of their first input."""

INDICES = frozenset("Gather GatherElements ScatterElements".split())

SIZES = {
    "ConstantOfShape": (0,), "CumSum": (1,), "Expand": (1,), "If": (0,), "Loop": (0, 1), "OneHot": (1,), "Pad": (1,),
    "Range": (0, 1, 2), "Reshape": (1,), "Resize": (2, 3), "Slice": (1, 2, 3, 4), "Split": (1,), "Squeeze": (1,),
    "Tile": (1,), "TopK": (1,), "Trilu": (1,), "Unsqueeze": (1,), "GatherND": (1,), "ScatterND": (1,),
    "LSTM": (4,), "GRU": (4,), "RNN": (4,), "ReverseSequence": (1,), "RoiAlign": (2,),
}  # fmt: skip
"""Inputs that sizes, places or lengths come from: other values than 0 and 1 may be refused, or need much memory."""

WIDE: tuple[ir.DataType | None, ...] = (ir.DataType.INT32, ir.DataType.INT64)
"""Types of masks: of those that become floats, other values than 0 and 1 may be multiplied by ten thousands."""

BYTE: Bounds = (-128, 127)

MOST_TIES = 4
"""Constants whose multiples are tried."""

LARGEST_REACH = 1024

BEYOND_HALF = 70001.0
"""Neither in the range of float16 nor, divided, on one of its steps."""

STEPS_APART = 25.3
"""Steps of a quantized tensor whose multiples lie between its steps, and the largest beyond its range."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InputUses:
    """The uses of a graph's inputs by its nodes.

    Attributes:
        bounds: Of the integers that an input takes, by name; an input without any takes no others than 0 and 1.
        ties: Constants at whose multiples results jump, such as divisors and bounds.
        reach: Largest window or factor: sizes below may hide what happens inside of it.
    """

    bounds: Mapping[str, Bounds] = dataclasses.field(default_factory=dict)
    ties: tuple[float, ...] = ()
    reach: int = 1


def uses_of(graph: Graph) -> InputUses:
    """Return what the nodes of a cleaned graph do with its inputs."""
    ops = [node.op for node in graph.nodes]
    bounds = {value.name or "": _bounds(value) for value in graph.inputs if _is_integer(value)}
    ties = dict.fromkeys(number for op in ops for number in _ties(op))
    return InputUses(
        bounds={name: found for name, found in bounds.items() if found is not None},
        ties=tuple(ties)[:MOST_TIES],
        reach=min(LARGEST_REACH, max((size for op in ops for size in _reaches(op)), default=1)),
    )


def _is_integer(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_integer()


def _bounds(value: ir.Value) -> Bounds | None:
    """Return the integers that all uses of a value allow; None where one of them may refuse any."""
    low, high = (0, 255) if value.dtype is not None and not value.dtype.is_signed() else BYTE
    pending, seen = [value], set()
    while pending:
        current = pending.pop()
        for use in current.uses():
            allowed = _allowed(use.node, use.idx)
            if allowed is None:
                return None
            low, high = max(low, allowed[0]), min(high, allowed[1])
            if use.node not in seen and (use.node.op_type in MOVERS or _keeps_integers(use.node)):
                seen.add(use.node)
                pending.extend(use.node.outputs)
    return (low, high) if low <= high else None


def _keeps_integers(op: ir.Node) -> bool:
    return op.op_type == "Cast" and _is_integer(op.outputs[0])


def _allowed(op: ir.Node, place: int) -> Bounds | None:
    everything = (-(2**31), 2**31)
    if op.op_type in SIZES and place in SIZES[op.op_type]:
        return None
    source = op.inputs[0]
    if op.op_type == "Cast" and source is not None and source.dtype in WIDE and not _keeps_integers(op):
        return None
    if op.op_type in INDICES and place == 1:
        axis = op.attributes.get_int("axis", 0)
        shape = None if source is None else dimensions(source)
        size = shape[axis] if shape and -len(shape) <= axis < len(shape) else None
        return (0, size - 1) if isinstance(size, int) and size > 0 else None
    if op.op_type in ("Div", "Mod") and place == 1:
        return (1, everything[1])
    if op.op_type == "BitShift" and place == 1:
        return (0, 7)
    return None if any(attribute.type == ir.AttributeType.GRAPH for attribute in op.attributes.values()) else everything


def _ties(op: ir.Node) -> Iterator[float]:
    if op.op_type == "Cast" and op.outputs[0].dtype == ir.DataType.FLOAT16 and _is_cast_again(op.outputs[0]):
        yield BEYOND_HALF
    if op.op_type == "QuantizeLinear" and (scale := op.inputs[1]) is not None and scale.const_value is not None:
        yield STEPS_APART * float(scale.const_value.numpy().max())
    if op.op_type not in ("Clip", "Div", "Equal", "Greater", "Less", "Mod", "GreaterOrEqual", "LessOrEqual"):
        return
    for value in op.inputs[1:]:
        array = None if value is None or value.const_value is None else value.const_value.numpy()
        if array is not None and array.size == 1 and array.dtype.kind == "f":
            number = float(array.reshape(()))
            if number and math.isfinite(number):
                yield number


def _is_cast_again(value: ir.Value) -> bool:
    """Return whether a cast takes a value, moved or not, so that its rounding alone stays."""
    uses = [use.node for use in value.uses()]
    return any(n.op_type == "Cast" or (n.op_type in MOVERS and _is_cast_again(n.outputs[0])) for n in uses)


def _reaches(op: ir.Node) -> Iterator[int]:
    if op.op_type in ("AveragePool", "Conv", "ConvTranspose", "LpPool", "MaxPool"):
        weight = input_of(op, 1)
        weights = (dimensions(weight) if weight is not None else None) or ()
        sizes = op.attributes.get_ints("kernel_shape", ()) or weights[2:]
        spread = op.attributes.get_ints("dilations", ()) or (1,) * len(sizes)
        yield from ((k - 1) * d + 1 for k, d in zip(sizes, spread, strict=False) if isinstance(k, int))
        yield from op.attributes.get_ints("strides", ())
    elif op.op_type in ("DepthToSpace", "SpaceToDepth"):
        yield op.attributes.get_int("blocksize", 1)
    elif op.op_type in ("Resize", "Upsample"):
        for value in op.inputs[1:]:
            array = None if value is None or value.const_value is None else value.const_value.numpy()
            if array is not None and array.dtype == np.float32 and array.size and np.isfinite(array).all():
                yield from (math.ceil(max(scale, 1 / scale)) for scale in array.tolist() if scale > 0)
