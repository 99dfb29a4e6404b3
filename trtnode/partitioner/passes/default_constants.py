"""Makes constants of the defaults of inputs for engines, while the model stays right for any value of these inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx_ir as ir

from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.default_values import (
    give_back_defaults,
    held_defaults,
    hold_defaults,
    inputs_with_defaults,
)
from trtnode.partitioner.model.values import INFERRED_SHAPE, Dimension, dimensions, read_values, subgraphs
from trtnode.partitioner.passes.shape_inference import infer_shapes


def with_defaults_as_constants(graph: Graph, *, without: Collection[str] = ()) -> Graph:
    """View a cleaned graph with the defaults of its inputs as constants, and infer the shapes that follow.

    Nothing is folded with them. Two kinds of models stay as they are. With control flow, the types in subgraphs would
    hold for the defaults only. Where all inputs have defaults, some of them are a request's own data.

    Args:
        graph: The cleaned graph. Its model is changed in place.
        without: Names of inputs that requests replace.
    """
    own = graph.model.graph
    values = [value for value in inputs_with_defaults(own) if value.name not in without and value.uses()]
    if not values or len(values) == len(own.inputs) or any(True for node in graph.nodes for _ in subgraphs(node.op)):
        return graph
    hold_defaults(own, values)
    infer_shapes(graph.model)
    return Graph.of(graph.model)


def keep_shapes_of_any_value(graph: Graph) -> None:
    """Keep for native models, in place, what ONNX's rules say of shapes where requests replace defaults."""
    held = held_defaults(graph.model.graph)
    if held:
        shapes = _shapes_of_any_value(graph.model, {value.name for value in held})
        for node in graph.nodes:
            for value in node.op.outputs:
                if value.name in shapes and isinstance(value.type, ir.TensorType):
                    value.meta[INFERRED_SHAPE] = shapes[value.name]


def _shapes_of_any_value(
    model: ir.Model, held: Collection[str | None]
) -> Mapping[str | None, tuple[Dimension, ...] | None]:
    """Return the shapes of all values that are computed from held defaults, by name."""
    free = model.clone()
    give_back_defaults(free.graph)
    behind: dict[ir.Value, None] = {v: None for v in free.graph.inputs if v.name in held}
    for op in free.graph:
        reads_default = not behind.keys().isdisjoint(read_values(op))
        for value in op.outputs:
            if reads_default:
                behind[value] = None
                value.shape = None
            elif INFERRED_SHAPE in value.meta:
                shape = value.meta[INFERRED_SHAPE]
                value.shape = None if shape is None else ir.Shape(shape)
    infer_shapes(free)
    return {value.name: dimensions(value) for value in behind}
