"""A graph as it is for given shapes of its inputs: the shapes of all tensors then, and what is computed from shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from partitioner.folding import fold_constants
from partitioner.graph import TensorSpec
from partitioner.shapes import infer_shapes, skeleton

Sizes = tuple[int, ...]


def concrete_model(
    model: ir.Model, shapes: Mapping[str, Sequence[int]], values: Mapping[str, Sequence[int]] | None = None
) -> ir.Model:
    """A copy of a model, without large weights, in which everything that follows from its inputs' shapes is known.

    Args:
        model: Is the same afterwards.
        shapes: By name of the input; others keep the shapes that they have.
        values: Elements of integer inputs, from which other shapes are computed.
    """
    proto = skeleton(model)
    for info in (*proto.graph.output, *proto.graph.value_info):
        for dimension in info.type.tensor_type.shape.dim:
            dimension.ClearField("dim_param")  # it is inferred anew
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
    """Shapes of all tensors of which every dimension is known, by name."""
    shapes = ((value.name or "", TensorSpec.of(value).static_shape) for value in _tensors(model))
    return {name: shape for name, shape in shapes if shape is not None}


def known_integers(model: ir.Model) -> dict[str, Sizes]:
    """Elements of all constants that shapes may be computed from: integers of rank 0 or 1, by name."""
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
