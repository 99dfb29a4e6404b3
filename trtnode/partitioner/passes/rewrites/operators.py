"""Normalizations and activations that exporters spell out, in the forms that runtimes take as one operator.

Proofs. x·clip(x + 3, 0, 6) / 6 = x·clip(x/6 + 1/2, 0, 1) is the definition of HardSwish, and clip(x/6 + 1/2, 0, 1) that
of HardSigmoid with alpha = 1/6 and beta = 1/2 (operator specifications); so is clip(x + 3, 0, 6) / 6 alone, the gate of
a whole channel. Let m be the mean over some axes, d = x - m, and v the mean of d²:

- d·d and Pow(d, 2) are the same number; so are d·(1/√(v + ε)) and d/√(v + ε), but for one rounding.
- LayerNormalization over the last axes is d/√(v + ε)·scale + bias with both of the shape of these axes (operator
  specification). Its mean and variance are float32 whatever the tensor's type is (stash_type 1): where the nodes
  themselves would compute d² in float16, it passes 65504 from |d| = 256 on, and one operator doesn't.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.model.values import dimensions, is_constant, tensor_of
from trtnode.partitioner.passes.rewrites.patterns import (
    Any,
    Call,
    Constant,
    Found,
    Number,
    Pattern,
    array_in,
    call,
    find,
    is_float32,
    number_in,
)
from trtnode.partitioner.passes.rewrites.replacement import Replacement, Writer

X, EPSILON = Any("x"), Constant("epsilon")
SCALE, BIAS = Constant("scale"), Constant("bias")

FIRST_LAYER_NORM = 17

_CENTRED = call("Sub", X, call("ReduceMean", X))


def _deviations(square: Call) -> Call:
    return call("Sqrt", call("Add", call("ReduceMean", square), EPSILON))


def _affine(normalized: Pattern) -> Call:
    return call("Add", call("Mul", normalized, SCALE), BIAS)


_BY_POW, _BY_PRODUCT = _deviations(call("Pow", _CENTRED, Number(2.0))), _deviations(call("Mul", _CENTRED, _CENTRED))
_NORMALIZED = (
    call("Div", _CENTRED, _BY_POW),
    call("Div", _CENTRED, _BY_PRODUCT),
    call("Mul", _CENTRED, call("Reciprocal", _BY_POW)),
    call("Mul", _CENTRED, call("Reciprocal", _BY_PRODUCT)),
    call("Mul", _CENTRED, call("Div", Number(1.0), _BY_POW)),
    call("Mul", _CENTRED, call("Div", Number(1.0), _BY_PRODUCT)),
)
USUAL_LAYER_NORM = (_affine(_NORMALIZED[0]),)
"""The form that ONNX Runtime and OpenVINO know."""

OTHER_LAYER_NORMS = tuple(map(_affine, _NORMALIZED[1:]))


def find_layer_norm(op: ir.Node) -> Replacement | None:
    """Find a LayerNormalization over the last axis in a form that ONNX Runtime doesn't know.

    It becomes the operator, or the usual form where the opset has none.
    """
    return _last_axis(_find(op, OTHER_LAYER_NORMS))


def find_usual_layer_norm(op: ir.Node) -> Replacement | None:
    """Find a LayerNormalization over the last axis in the usual form, where the opset has the operator."""
    return _last_axis(_find(op, USUAL_LAYER_NORM)) if _has_layer_norm(op) else None


def find_unscaled_layer_norm(op: ir.Node) -> Replacement | None:
    """Find d/√(v + ε) over the last axis that no constants scale. ONNX Runtime knows it with ones and zeros alone."""
    found = _find(op, _NORMALIZED)
    return None if found is None or any(map(_scales, op.outputs[0].consumers())) else _last_axis(found)


def _find(op: ir.Node, patterns: Sequence[Call]) -> Found | None:
    """Find a place whose result has the rank of x: no constant there has more dimensions."""
    found = find(op, patterns)
    constants = [v for node in found.nodes for v in node.inputs if v is not None and is_constant(v)] if found else ()
    fits = found is not None and all(len(tensor_of(v).shape) <= _rank(found.values["x"]) for v in constants)
    return found if fits else None


def _last_axis(found: Found | None) -> Replacement | None:
    if found is None or not is_float32(found.values["x"]) or number_in(found.values["epsilon"]) is None:
        return None
    axis, size = _rank(found.values["x"]) - 1, _last(found)
    scale, bias = _by_element(found, "scale", 1.0), _by_element(found, "bias", 0.0)
    if _axis(found) != axis or scale is None or bias is None or not 0 < scale.size == bias.size == size:
        return None
    write = _write_layer_norm if _has_layer_norm(found.root) else _write_usual_layer_norm
    return Replacement(found.nodes, lambda: write(found, scale, bias))


def _write_layer_norm(found: Found, scale: np.ndarray, bias: np.ndarray) -> None:
    writer, x = Writer(found.nodes, "layer_norm"), found.values["x"]
    constants = writer.constant(scale), writer.constant(bias)
    writer.finish(writer.call("LayerNormalization", x, *constants, axis=-1, epsilon=_epsilon(found)))


def _write_usual_layer_norm(found: Found, scale: np.ndarray, bias: np.ndarray) -> None:
    writer, x, mean = Writer(found.nodes, "layer_norm"), found.values["x"], found.call("ReduceMean")
    centred = writer.call("Sub", x, writer.copy(mean, x))
    square = writer.call("Pow", centred, writer.number(2.0))
    root = writer.call("Sqrt", writer.call("Add", writer.copy(mean, square), found.values["epsilon"]))
    scaled = writer.call("Mul", writer.call("Div", centred, root), writer.constant(scale))
    writer.finish(writer.call("Add", scaled, writer.constant(bias), like=found.root.outputs[0]))


def _scales(op: ir.Node) -> bool:
    """Return whether a node multiplies by a constant, perhaps behind a Cast: ONNX Runtime looks there itself."""
    return op.op_type == "Cast" or (op.op_type == "Mul" and any(v is not None and is_constant(v) for v in op.inputs))


def _has_layer_norm(op: ir.Node) -> bool:
    assert op.graph is not None
    return op.graph.opset_imports.get("", 0) >= FIRST_LAYER_NORM


def _axis(found: Found) -> int | None:
    """Return the one axis of all means of a place, not negative, if they keep it; else None."""
    rank, axes = _rank(found.values["x"]), set()
    for op in found.nodes:
        if op.op_type == "ReduceMean":
            given = op.attributes.get_ints("axes", ())
            listed = array_in(op.inputs[1]) if len(op.inputs) > 1 else np.array(given)
            if listed is None or listed.size != 1 or not op.attributes.get_int("keepdims", 1):
                return None
            axis = int(listed.reshape(()))
            axes.add(axis % rank if -rank <= axis < rank else None)
    return axes.pop() if len(axes) == 1 else None


def _by_element(found: Found, name: str, default: float) -> np.ndarray | None:
    """Return a constant that varies along the last axis alone, or else the default for each of its elements."""
    if name in found.values:
        rank = _rank(found.values["x"])
        return _along(found.values[name], rank - 1, rank)
    size = _last(found)
    return np.full(size, default, np.float32) if isinstance(size, int) else None


def _epsilon(found: Found) -> float:
    epsilon = number_in(found.values["epsilon"])
    assert epsilon is not None
    return epsilon


def _along(value: ir.Value, axis: int, rank: int) -> np.ndarray | None:
    """Return the elements of a constant that varies along one axis of a tensor alone; None for any other."""
    array = array_in(value)
    if array is None or array.dtype != np.float32 or array.ndim > rank:
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    return array.reshape(-1) if all(size == 1 or place == axis for place, size in enumerate(shape)) else None


def _rank(value: ir.Value) -> int:
    return len(dimensions(value) or ())


def _last(found: Found) -> object:
    return (dimensions(found.values["x"]) or (None,))[-1]


FIRST_HARD_SWISH = 14

_CLIPPED = (
    call("Clip", call("Add", X, Number(3.0)), Constant("low"), Constant("high")),
    call("Clip", call("Add", X, Number(3.0))),
)
HARD_SIGMOID = tuple(
    form for clipped in _CLIPPED for form in (call("Div", clipped, Number(6.0)), call("Mul", clipped, Number(1 / 6)))
)
HARD_SWISH = tuple(
    pattern
    for clipped in _CLIPPED
    for pattern in (
        call("Div", call("Mul", X, clipped), Number(6.0)),
        call("Mul", X, call("Div", clipped, Number(6.0))),
        call("Mul", call("Mul", X, clipped), Number(1 / 6)),
        call("Mul", X, call("Mul", clipped, Number(1 / 6))),
    )
)


def find_hard_swish(op: ir.Node) -> Replacement | None:
    """Find HardSwish by Clip."""
    found = _find(op, HARD_SWISH)
    if found is None or not _clips_at_six(found) or not is_float32(x := found.values["x"]):
        return None

    def apply() -> None:
        writer = Writer(found.nodes, "hard_swish")
        if writer.opset >= FIRST_HARD_SWISH:
            writer.finish(writer.call("HardSwish", x))
        else:
            writer.finish(writer.call("Mul", x, writer.call("HardSigmoid", x, alpha=1 / 6, beta=0.5)))

    return Replacement(found.nodes, apply)


def find_hard_sigmoid(op: ir.Node) -> Replacement | None:
    """Find HardSigmoid by Clip."""
    found = _find(op, HARD_SIGMOID)
    if found is None or not _clips_at_six(found) or not is_float32(found.values["x"]):
        return None

    def apply() -> None:
        writer = Writer(found.nodes, "hard_sigmoid")
        writer.finish(writer.call("HardSigmoid", found.values["x"], alpha=1 / 6, beta=0.5))

    return Replacement(found.nodes, apply)


def _clips_at_six(found: Found) -> bool:
    clip = found.call("Clip")
    if "low" in found.values:
        limits = [found.values["low"], found.values["high"]]
        return [number_in(v) for v in limits] == [0.0, 6.0] and all(len(tensor_of(v).shape) < 2 for v in limits)
    return clip.attributes.get_float("min", math.nan) == 0.0 and clip.attributes.get_float("max", math.nan) == 6.0


FIRST_AXES_INPUT = 18

SMALLEST_NORMAL = 2.0**-126


def find_lp_normalization(op: ir.Node) -> Replacement | None:
    """Find LpNormalization: OpenVINO adds an epsilon to the norm, so short vectors lose their length.

    With m the largest absolute value of a vector x, and y = x / m, its norm is m·‖y‖, and ‖y‖ is at least 1: x / ‖x‖ is
    y / max(‖y‖, 1). Where x is 0, m is replaced by the smallest normal number, and the result is 0, as the operator's.
    """
    x, order = op.inputs[0] if op.inputs else None, op.attributes.get_int("p", 2)
    if op.op_type != "LpNormalization" or op.domain or x is None or not is_float32(x) or order not in (1, 2):
        return None
    axis, shape = op.attributes.get_int("axis", -1), x.shape
    if shape is None or not -shape.rank() <= axis < shape.rank():  # the operator refuses scalars
        return None
    kept = ir.Shape([1 if place == axis % shape.rank() else size for place, size in enumerate(shape)])

    def apply() -> None:
        writer = Writer([op], "lp_normalization")

        def reduced(kind: str, value: ir.Value) -> ir.Value:
            if writer.opset < FIRST_AXES_INPUT:
                norm = writer.call(kind, value, axes=[axis], keepdims=1)
            else:
                norm = writer.call(kind, value, writer.constant(np.array([axis]), ir.DataType.INT64))
            norm.shape = kept
            return norm

        largest = writer.call("Max", reduced("ReduceMax", writer.call("Abs", x)), writer.number(SMALLEST_NORMAL))
        scaled = writer.call("Div", x, largest)
        norm = writer.call("Max", reduced(f"ReduceL{order}", scaled), writer.number(1.0))
        writer.finish(writer.call("Div", scaled, norm))

    return Replacement([op], apply)
