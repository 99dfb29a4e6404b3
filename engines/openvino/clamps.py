"""Clamps in front of operators that would address memory outside their tensors, in an engine alone.

``trtnode.engines.openvino.indices`` tells which they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from trtnode.engines.openvino.library import opset, ov


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
