"""Changes of a model in an engine alone, so that it computes as ONNX Runtime does.

Clamps stand in front of operators that would address memory outside their tensors: ``trtnode.engines.openvino.indices``
tells which they are.

8-bit results are computed in 32 bits, of which the last eight stay. OpenVINO rounds quotients of 8-bit integers, and
stops at the end of their range where it casts a float beyond it. In int32 it does neither, and a cast from there drops
the upper bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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


def compute_bytes_in_32_bits(model: ov.Model) -> None:
    """Rewrite the casts and quotients of a model and of its branches and bodies, in place."""
    manager = passes.Manager()
    manager.register_pass(_Rewrite("opset1.Convert", _widen_cast))
    manager.register_pass(_Rewrite("opset1.Divide", _widen_quotient))
    manager.run_passes(model)


class _Rewrite(passes.MatcherPass):  # type: ignore[misc]
    """Applies a function to each operation of a type with an 8-bit result."""

    def __init__(self, kind: str, rewrite: Any) -> None:
        super().__init__()

        def apply(matcher: Any) -> bool:
            operation = matcher.get_match_root()
            return bool(operation.get_element_type() in BYTES and rewrite(operation))

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
