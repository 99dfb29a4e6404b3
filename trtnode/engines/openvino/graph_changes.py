"""Changes of a model in an engine alone, so that it computes as ONNX Runtime does.

Clamps stand in front of operators that would address memory outside their tensors: ``trtnode.engines.openvino.indices``
tells which they are.

8-bit results are computed in 32 bits, of which the last eight stay. OpenVINO rounds quotients of 8-bit integers, and
stops at the end of their range where it casts a float beyond it. In int32 it does neither, and a cast from there drops
the upper bits.

A cast to float16 is a rounding, which the library leaves out where it computes in float32. So arithmetic rounds.

An output that is an input of the engine gets an operator between them. Else OpenVINO gives both the same memory, and
writes beyond it as sizes change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from trtnode.engines.openvino.library import opset, ov, passes


def clamp_indices(model: ov.Model) -> None:
    """Put clamps in front of what would address memory by any index, in a model and the bodies of its operators."""
    for op in model.get_ordered_ops():
        for body in _bodies(op):
            clamp_indices(body)
        if clamp := CLAMPS.get(op.get_type_name()):
            clamp(op)
    model.validate_nodes_and_infer_types()


def _bodies(op: Any) -> Iterator[Any]:
    if op.get_type_name() == "If":
        yield from (op.get_function(0), op.get_function(1))
    elif hasattr(op, "get_function"):
        yield op.get_function()


def _clamp_gather_nd(op: Any) -> None:
    indices, first = op.input_value(1), op.get_attributes()["batch_dims"]
    columns = indices.get_partial_shape()[-1].get_length()
    _clamp(op, 1, opset.gather(_shape_of(op), np.arange(first, first + columns), np.int64(0)))


def _clamp_scatter(op: Any) -> None:
    _clamp(op, 1, opset.gather(_shape_of(op), op.input_value(3), np.int64(0)))


def _clamp_roi_align(op: Any) -> None:
    _clamp(op, 2, opset.gather(_shape_of(op), np.int64(0), np.int64(0)), negative=False)


def _clamp_range(op: Any) -> None:
    """Put the limit of a range that has no elements at its start: OpenVINO counts from it in the other direction."""
    start, limit, step = (op.input_value(place) for place in range(3))
    if start.get_element_type() != limit.get_element_type():
        return  # a range of OpenVINO's own, for the axes of a reduction
    rises = opset.greater(step, opset.subtract(step, step))
    clamped = opset.select(rises, opset.maximum(limit, start), opset.minimum(limit, start))
    op.input(1).replace_source_output(clamped.output(0))


CLAMPS: Mapping[str, Callable[[Any], None]] = {
    "GatherND": _clamp_gather_nd,
    "ROIAlign": _clamp_roi_align,
    "Range": _clamp_range,
    "ScatterElementsUpdate": _clamp_scatter,
}
"""Clamps by OpenVINO's own names of operators: those of ``CLAMPED_OPS``, and Range."""


def _shape_of(op: Any) -> Any:
    return opset.shape_of(op.input_value(0), "i64")


def _clamp(op: Any, place: int, sizes: Any, *, negative: bool = True) -> None:
    indices = op.input_value(place)
    sizes = opset.convert(sizes, indices.get_element_type().get_type_name())
    one = opset.constant(1, indices.get_element_type())
    low = opset.negative(sizes) if negative else opset.subtract(sizes, sizes)
    clamped = opset.minimum(opset.maximum(indices, low), opset.subtract(sizes, one))
    op.input(place).replace_source_output(clamped.output(0))


BYTES = (ov.Type.i8, ov.Type.u8)

WIDE = "i32"

WIDER_THAN_HALF = (ov.Type.f32, ov.Type.i32, ov.Type.i64)

ROUNDED = "rounded to float16: "

HALF_NORMAL, HALF_LARGEST = 2.0**-14, 65504.0
"""The smallest normal number of float16, and its largest."""

FLOAT_LARGEST = 3e38


def compute_bytes_in_32_bits(model: ov.Model) -> None:
    """Rewrite the casts and quotients of a model and of its branches and bodies, in place."""
    manager = passes.Manager()
    manager.register_pass(_Rewrite("opset1.Convert", _widen_cast))
    manager.register_pass(_Rewrite("opset1.Divide", _widen_quotient))
    manager.run_passes(model)


def round_casts(model: ov.Model) -> None:
    """Put roundings in front of casts to float16, in a model and in its branches and bodies, in place."""
    manager = passes.Manager()
    manager.register_pass(_Rewrite("opset1.Convert", _round_cast, (ov.Type.f16,)))
    manager.run_passes(model)


def part_outputs_from_inputs(model: ov.Model, compiled: ov.CompiledModel) -> bool:
    """Put an operator between outputs and inputs that are one once compiled. Return whether there are any."""
    parameters = {one.get_friendly_name(): one for one in model.get_parameters()}
    found = False
    for result, made in zip(model.get_results(), compiled.get_runtime_model().get_results(), strict=True):
        source = made.input_value(0).get_node()
        if source.get_rt_info()["layerType"].astype(str) == "Input":
            same = opset.identity(parameters[source.get_friendly_name()])
            result.input(0).replace_source_output(same.output(0))
            found = True
    return found


class _Rewrite(passes.MatcherPass):  # type: ignore[misc]
    """Applies a function to each operation of a type with a result of some element types."""

    def __init__(self, kind: str, rewrite: Any, elements: Collection[ov.Type] = BYTES) -> None:
        super().__init__()

        def apply(matcher: Any) -> bool:
            operation = matcher.get_match_root()
            return bool(operation.get_element_type() in elements and rewrite(operation))

        self.register_matcher(passes.Matcher(passes.WrapType(kind), rewrite.__name__), apply)


def _widen_cast(cast: Any) -> bool:
    """Cast floats to int32 first. A quantized value lies in the range already."""
    source = cast.input_value(0)
    if not source.get_element_type().is_real() or source.get_node().get_type_name() == "FakeQuantize":
        return False
    cast.input(0).replace_source_output(opset.convert(source, WIDE).output(0))
    return True


def _widen_quotient(quotient: Any) -> bool:
    consumers, element = quotient.output(0).get_target_inputs(), quotient.get_element_type()
    wide = opset.divide(*(opset.convert(quotient.input_value(place), WIDE) for place in (0, 1)))
    narrow = opset.convert(wide, element)
    narrow.set_friendly_name(quotient.get_friendly_name())
    for consumer in consumers:
        consumer.replace_source_output(narrow.output(0))
    return True


def _round_cast(cast: Any) -> bool:
    """Round what float16 can't hold. Rounding twice is no other than once, so a match that comes again ends here."""
    source = cast.input_value(0)
    if source.get_element_type() not in WIDER_THAN_HALF or source.get_node().get_friendly_name().startswith(ROUNDED):
        return False
    rounded = _rounded_to_half(opset.convert(source, "f32"))
    rounded.set_friendly_name(f"{ROUNDED}{cast.get_friendly_name()}")
    cast.input(0).replace_source_output(rounded.output(0))
    return True


def _rounded_to_half(value: Any) -> Any:
    """Return float32 numbers rounded to those of float16, ties to even, with infinity beyond its range.

    Adding and subtracting a number 1.5 * 2**13 times the power of two below rounds to 11 bits. That power is the
    difference between a multiple by 2**23 + 1 and the float32 before it (Rump, Ogita and Oishi 2008). The maximum in
    between keeps the library from fusing the products.
    """
    size = opset.minimum(opset.absolute(value), _float(2.0**20))
    multiple = opset.maximum(opset.multiply(size, _float(2.0**23 + 1)), _float(0))
    before = opset.maximum(opset.multiply(multiple, _float(1 - 2.0**-24)), _float(0))
    power = opset.maximum(opset.subtract(multiple, before), _float(HALF_NORMAL))
    shift = opset.multiply(power, _float(1.5 * 2**13))
    rounded = opset.subtract(opset.add(value, shift), shift)
    beyond = opset.greater(opset.absolute(rounded), _float(HALF_LARGEST))
    return opset.select(beyond, opset.multiply(rounded, _float(FLOAT_LARGEST)), rounded)


def _float(number: float) -> Any:
    return opset.constant(np.float32(number))
