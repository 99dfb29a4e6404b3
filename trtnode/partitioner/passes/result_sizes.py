"""Measures the results that nodes would compute from inputs of given shapes, before anything is computed."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import onnx_ir as ir

from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.declared_sizes import memory_bytes
from trtnode.partitioner.model.values import Dimension, count_elements, dimensions
from trtnode.partitioner.passes.clean_up import lift_constants
from trtnode.partitioner.passes.concrete_shapes import concrete_model
from trtnode.partitioner.passes.shape_inference import SMALL_INITIALIZER_ELEMENTS

MOST_ACCEPTED = 64
"""Shapes that are remembered. With more, the first are forgotten."""

LEAST_SIZES = (4096, 1024, 256, 64, 1)
"""Sizes that are tried first, for all dimensions that may vary: most requests stay below."""

MOST_DEGREE = 8
"""Powers of two by which a result may grow where all sizes double, if no raised sizes can be measured."""

Shapes = tuple[tuple[int, ...], ...]
"""One of each input."""


class ResultSizes:
    """The largest results of the nodes of one function.

    Sizes grow with those of the inputs, so what was measured for larger inputs holds for smaller ones too. Inputs are
    measured with each size that may vary raised, so that few are measured.
    """

    def __init__(self, call: ir.Node, function: ir.Function, most_bytes: int) -> None:
        """Prepare.

        Args:
            call: A call of the function. Constants among its inputs are last.
            function: The function; it calls no other.
            most_bytes: Limit of one result.
        """
        self._model = _as_model(call, function)
        self._declared = [dimensions(value) or () for value in self._model.graph.inputs]
        self._most_bytes = most_bytes
        self._unknown: int | None = None
        self._last: list[tuple[int, ...]] = []
        self._accepted: list[Shapes] = []

    def fit(self, shapes: list[tuple[int, ...]]) -> bool:
        """Return whether every result fits, as far as the shapes of the inputs tell.

        Args:
            shapes: Those of the inputs that aren't constants, in order.
        """
        if shapes == self._last:
            return True
        if not any(_covers(large, shapes) for large in self._accepted) and not self._measure(tuple(shapes)):
            return False
        self._last = shapes
        return True

    def _measure(self, shapes: Shapes) -> bool:
        """Return whether every result of inputs fits, and remember the largest inputs of which that is known."""
        tried = (1,) if self._unknown is not None else LEAST_SIZES
        if self._unknown is None:
            largest, self._unknown = self._sizes(shapes)
            if largest > self._most_bytes:
                return False
        for least in tried:
            raised = self._changed(shapes, functools.partial(_raised, least))
            largest, unknown = self._sizes(raised)
            if largest <= self._most_bytes and unknown <= self._unknown:
                return self._accept(raised)
        largest, _ = self._sizes(shapes)  # raised sizes may contradict each other
        if largest > self._most_bytes:
            return False
        grows_little = largest << MOST_DEGREE <= self._most_bytes
        return self._accept(self._changed(shapes, lambda one: 2 * max(1, one)) if grows_little else shapes)

    def _accept(self, shapes: Shapes) -> bool:
        self._accepted = [*self._accepted[1 - MOST_ACCEPTED :], shapes]
        return True

    def _changed(self, shapes: Shapes, change: Callable[[int], int]) -> Shapes:
        """Return shapes with other sizes, where sizes may vary."""
        return tuple(
            _with_sizes(shape, declared, change) for shape, declared in zip(shapes, self._declared, strict=False)
        )

    def _sizes(self, shapes: Shapes) -> tuple[int, int]:
        """Return the bytes of the largest result, and the number of results whose shape is unknown."""
        names = [value.name or "" for value in self._model.graph.inputs]
        known = concrete_model(self._model, dict(zip(names, shapes, strict=False)))
        results = [TensorSpec.of(value) for op in known.graph for value in op.outputs]
        sizes = [memory_bytes(int(s.dtype), s.static_shape) for s in results if s.dtype and s.static_shape is not None]
        return max(sizes, default=0), len(results) - len(sizes)


def _as_model(call: ir.Node, function: ir.Function) -> ir.Model:
    """Return the nodes of a function as a model, whose large constants are inputs of the same type."""
    graph = function.graph.clone()
    for formal, actual in zip(list(graph.inputs), call.inputs, strict=False):
        if actual is None:
            continue
        formal.type, formal.shape = actual.type, actual.shape
        tensor = actual.const_value
        if tensor is None or actual.is_graph_input():
            continue
        formal.dtype, formal.shape = tensor.dtype, ir.Shape(tensor.shape.numpy())
        if count_elements(tensor) <= SMALL_INITIALIZER_ELEMENTS:
            graph.inputs.remove(formal)
            formal.const_value = tensor
            graph.register_initializer(formal)
    model = ir.Model(graph, ir_version=10)
    lift_constants(model)
    return model


def _covers(large: Shapes, shapes: Sequence[tuple[int, ...]]) -> bool:
    return all(
        len(one) == len(other) and all(size >= small for size, small in zip(one, other, strict=True))
        for one, other in zip(large, shapes, strict=True)
    )


def _raised(least: int, size: int) -> int:
    return max(least, 1 << max(0, size - 1).bit_length())


def _with_sizes(shape: tuple[int, ...], declared: Sequence[Dimension], change: Callable[[int], int]) -> tuple[int, ...]:
    fixed = (isinstance(size, int) for size in declared) if declared else itertools.repeat(False)
    return tuple(size if same else change(size) for size, same in zip(shape, fixed, strict=False))
