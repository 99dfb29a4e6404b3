"""Defaults of graph inputs: initializers that a request may replace, from IR version 4 on.

Engines are built with defaults as constants. A graph that holds defaults views them in this way, and keeps what its
model declares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import onnx
import onnx_ir as ir

from trtnode.partitioner.model.values import serialize_value

INTERFACE = "trtnode.interface"
"""Key of ``ir.Graph.meta`` for the ``Interface`` of a graph that holds defaults."""


@dataclasses.dataclass(frozen=True, slots=True)
class Interface:
    """Inputs and outputs that a model declares.

    Attributes:
        inputs: All of them in order, also those whose defaults the graph holds.
        outputs: In order; their shapes hold for any value of the inputs.
    """

    inputs: tuple[ir.Value, ...]
    outputs: tuple[onnx.ValueInfoProto, ...]

    @classmethod
    def of(cls, graph: ir.Graph) -> Interface:
        """Return what the model of a graph declares."""
        kept = graph.meta.get(INTERFACE)
        return kept or cls(tuple(graph.inputs), tuple(serialize_value(v) for v in graph.outputs))


def inputs_with_defaults(graph: ir.Graph) -> list[ir.Value]:
    """Return the inputs that a request may leave out, without those whose defaults the graph holds."""
    return [value for value in graph.inputs if value.is_initializer()]


def hold_defaults(graph: ir.Graph, values: Iterable[ir.Value]) -> None:
    """Make constants of inputs' defaults, in place; ``Interface.of`` still gives these inputs."""
    graph.meta[INTERFACE] = Interface.of(graph)
    for value in values:
        graph.inputs.remove(value)


def held_defaults(graph: ir.Graph) -> Sequence[ir.Value]:
    """Return the inputs whose defaults a graph holds, in order."""
    present = {value.name for value in graph.inputs}
    return [value for value in Interface.of(graph).inputs if value.name not in present]


def give_back_defaults(graph: ir.Graph) -> None:
    """Make inputs of held defaults again, at the end of the inputs, in place."""
    names = [value.name or "" for value in held_defaults(graph)]
    graph.inputs.extend(graph.initializers[name] for name in names if name in graph.initializers)
    graph.meta.pop(INTERFACE, None)
