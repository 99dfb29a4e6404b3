"""Specializes a graph to given shapes of its inputs: infers all shapes and folds all shape arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.default_values import INTERFACE
from trtnode.partitioner.passes.constant_folding import INTEGERS, MAX_ELEMENTS, fold_constants
from trtnode.partitioner.passes.shape_inference import infer_shapes

Sizes = tuple[int, ...]
"""A fixed shape, or the elements of a small integer tensor."""


def concrete_model(
    model: ir.Model, shapes: Mapping[str, Sequence[int]], values: Mapping[str, Sequence[int]] | None = None
) -> ir.Model:
    """Copy a model, which shares its weights, and infer and fold everything that its inputs' shapes determine.

    Args:
        model: The model. It is not changed.
        shapes: Shapes by name of the input. Other inputs keep theirs.
        values: Elements of integer inputs that the model computes shapes from. They become constants.
    """
    concrete = model.clone()
    concrete.graph.meta.pop(INTERFACE, None)  # defaults are constants there like others
    _forget_symbols(concrete.graph)
    inputs = {value.name or "": value for value in concrete.graph.inputs}
    for name in inputs.keys() & shapes.keys():
        inputs[name].shape = ir.Shape(shapes[name])
    for name, elements in (values or {}).items():
        _make_constant(concrete.graph, inputs[name], elements)
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
        if tensor is not None and tensor.dtype in INTEGERS and len(tensor.shape) < 2 and tensor.size <= MAX_ELEMENTS
    }


def _tensors(model: ir.Model) -> Iterator[ir.Value]:
    yield from model.graph.inputs
    yield from model.graph.initializers.values()
    for op in model.graph:
        yield from op.outputs


def _forget_symbols(graph: ir.Graph) -> None:
    """Forget the names of dimensions, which inference would keep instead of sizes, and outputs' shapes with such."""
    for op in graph:
        for value in op.outputs:
            if value.shape is not None and not value.shape.is_static():
                sizes = [size if isinstance(size, int) else None for size in value.shape]
                value.shape = None if value.is_graph_output() else ir.Shape(sizes)


def _make_constant(graph: ir.Graph, value: ir.Value, elements: Sequence[int]) -> None:
    assert value.dtype is not None
    shape = [len(elements)] if value.shape else []
    value.const_value = ir.tensor(np.array(elements, value.dtype.numpy()).reshape(shape), name=value.name)
    graph.inputs.remove(value)
    graph.register_initializer(value)
