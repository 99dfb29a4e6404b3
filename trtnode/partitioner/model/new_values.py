"""Adds values to a graph, under names that no value and no node of it has yet.

Nodes that this program writes are named after the values that they stand for. A model may hold any name, such a one
as well, and one value may be written in two forms. ONNX Runtime refuses two nodes of one name, as it does two values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.model.values import all_nodes, all_values

NAMES = "trtnode.names"
"""Key of ``ir.Graph.meta`` for the names that were taken in a graph so far."""


class NewNames:
    """Makes names that differ from those taken, and from each other."""

    def __init__(self, taken: Iterable[str | None]) -> None:
        self._taken = set(taken)

    def __call__(self, wanted: str) -> str:
        """Return the wanted name, or else one with a number behind it."""
        numbered = (f"{wanted}_{number}" for number in itertools.count(2))
        name = next(name for name in itertools.chain([wanted], numbered) if name not in self._taken)
        self._taken.add(name)
        return name


def new_names(graph: ir.Graph) -> NewNames:
    """Return what makes names for a graph. All who add values ask it, so that its names are counted once."""
    if NAMES not in graph.meta:
        graph.meta[NAMES] = NewNames([*(v.name for v in all_values(graph)), *(node.name for node in all_nodes(graph))])
    names: NewNames = graph.meta[NAMES]
    return names


def add_constant(graph: ir.Graph, wanted: str, values: np.ndarray, dtype: ir.DataType | None = None) -> ir.Value:
    """Add an initializer of a type to a graph, by the wanted name if it is free; without a type, of the array's."""
    name = new_names(graph)(wanted)
    array = values if dtype is None else np.ascontiguousarray(values, dtype.numpy()).reshape(values.shape)
    tensor = ir.Tensor(array, name=name)
    value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
    graph.register_initializer(value)
    return value
