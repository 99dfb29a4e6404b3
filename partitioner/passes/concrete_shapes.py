"""Specializes a graph to given shapes of its inputs: infers all shapes and folds all shape arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from partitioner.graph.view import TensorSpec
from partitioner.passes.constant_folding import fold_constants
from partitioner.passes.shape_inference import infer_shapes, skeleton

Sizes = tuple[int, ...]
"""A fixed shape, or the elements of a small integer tensor."""


def concrete_model(
    model: ir.Model, shapes: Mapping[str, Sequence[int]], values: Mapping[str, Sequence[int]] | None = None
) -> ir.Model:
    """Copy a model without its large weights, and infer and fold everything that its inputs' shapes determine.

    Args:
        model: The model. It is not changed.
        shapes: Shapes by name of the input. Other inputs keep theirs.
        values: Elements of integer inputs that the model computes shapes from.
    """
    proto = skeleton(model)
    for info in (*proto.graph.output, *proto.graph.value_info):
        for dimension in info.type.tensor_type.shape.dim:
            dimension.ClearField("dim_param")  # else inference keeps the symbol
    for info in proto.graph.input:
        if info.name in shapes:
            dims = [onnx.TensorShapeProto.Dimension(dim_value=size) for size in shapes[info.name]]
            info.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto(dim=dims))
    for info in [info for info in proto.graph.input if info.name in (values or {})]:
        proto.graph.initializer.append(_constant(info, (values or {})[info.name]))
        proto.graph.input.remove(info)
    concrete = ir.from_proto(proto)
    infer_shapes(concrete, with_defaults=True)
    fold_constants(concrete)
    infer_shapes(concrete, with_defaults=True)
    return concrete


def known_shapes(model: ir.Model) -> dict[str, Sizes]:
    """Return the shapes of all tensors whose every dimension is known, by name."""
    shapes = ((value.name or "", TensorSpec.of(value).static_shape) for value in _tensors(model))
    return {name: shape for name, shape in shapes if shape is not None}


def known_integers(model: ir.Model) -> dict[str, Sizes]:
    """Return the elements of all integer constants of rank 0 or 1, which may hold shapes, by name."""
    constants = ((v.name or "", v.const_value) for v in model.graph.initializers.values())
    return {
        name: tuple(int(n) for n in tensor.numpy().reshape(-1))
        for name, tensor in constants
        if tensor is not None and tensor.dtype in (ir.DataType.INT32, ir.DataType.INT64) and len(tensor.shape) < 2
    }


def _tensors(model: ir.Model) -> Iterator[ir.Value]:
    yield from model.graph.inputs
    yield from model.graph.initializers.values()
    for op in model.graph:
        yield from op.outputs


def _constant(info: onnx.ValueInfoProto, values: Sequence[int]) -> onnx.TensorProto:
    kind = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
    shape = [] if not info.type.tensor_type.shape.dim else [len(values)]
    return onnx.numpy_helper.from_array(np.array(values, kind).reshape(shape), info.name)
