"""A place that a rule replaces, and the nodes written there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.model.new_values import add_constant, new_names


@dataclasses.dataclass(frozen=True, slots=True)
class Replacement:
    """Nodes that a rule replaces.

    Attributes:
        nodes: The nodes that go; the one whose result stays comes first.
        apply: Replaces them, in place.
    """

    nodes: Sequence[ir.Node]
    apply: Callable[[], None]

    @property
    def name(self) -> str:
        """Name of the node whose result stays, or of the result."""
        return self.nodes[0].name or self.nodes[0].outputs[0].name or ""


class Writer:
    """Writes nodes in place of others, named after them.

    The last node gets the name of the node that it replaces, and its result the name of that node's result.
    """

    def __init__(self, nodes: Sequence[ir.Node], kind: str) -> None:
        """Write in place of nodes, the first of which makes the result that stays; ``kind`` is a part of all names."""
        root, graph = nodes[0], nodes[0].graph
        assert isinstance(graph, ir.Graph)
        self.opset = graph.opset_imports.get("", 0)
        self._graph = graph
        self._new = new_names(graph)
        self._replaced = nodes
        self._prefix = f"{root.outputs[0].name}/{kind}"
        self._nodes: list[ir.Node] = []

    def constant(self, array: np.ndarray, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
        """Add a constant."""
        return add_constant(self._graph, f"{self._prefix}_constant", array, dtype)

    def number(self, number: float) -> ir.Value:
        """Add a float32 scalar."""
        return self.constant(np.array(number))

    def call(self, op_type: str, *inputs: ir.Value | None, like: ir.Value | None = None, **attributes: Any) -> ir.Value:
        """Add a node and return its result, of the type and shape of ``like``, or else of its first input."""
        place = len(self._nodes)
        op = ir.node(op_type, inputs, attributes, name=self._new(f"{self._prefix}_{op_type}_{place}"))
        source, result = like if like is not None else inputs[0], op.outputs[0]
        assert source is not None
        result.name, result.type, result.shape = op.name, source.type, source.shape
        self._nodes.append(op)
        return result

    def copy(self, op: ir.Node, *inputs: ir.Value | None) -> ir.Value:
        """Add a node of the same operator and attributes, with the type and shape of the node's own result."""
        attributes = {attribute.name: attribute for attribute in op.attributes.values()}
        return self.call(op.op_type, *inputs, like=op.outputs[0], **attributes)

    def finish(self, result: ir.Value) -> None:
        """Let the last call's result take the place of that of the nodes, which go."""
        root, last = self._replaced[0], self._nodes[-1]
        assert last.outputs[0] is result
        ir.convenience.replace_nodes_and_values(
            self._graph, root, self._replaced, self._nodes, root.outputs[:1], [result]
        )
        last.name = root.name
