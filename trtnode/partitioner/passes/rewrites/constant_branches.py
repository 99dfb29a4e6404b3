"""The branch of an If whose condition is a constant takes its place.

Proof. If runs the branch that its condition names, and its results are the branch's (operator specification). A branch
reads values of the outer graph by name, and they are there before the If; so its nodes may stand in its place.
An output of the graph keeps its name: an Identity makes it where the branch's own result has others that read it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.model.new_values import new_names
from trtnode.partitioner.model.values import ONNX_DOMAINS
from trtnode.partitioner.passes.rewrites.patterns import array_in
from trtnode.partitioner.passes.rewrites.replacement import Replacement


def find_constant_branches(graph: ir.Graph) -> Iterator[Replacement]:
    """Find each If of a constant condition. A place is to be applied at once."""
    pending = list(graph)
    while pending:
        op = pending.pop(0)
        condition = array_in(op.inputs[0]) if op.op_type == "If" and op.domain in ONNX_DOMAINS and op.inputs else None
        if condition is None or condition.size != 1:
            continue
        branch = op.attributes["then_branch" if np.all(condition) else "else_branch"].as_graph()
        pending[:0] = list(branch)
        yield Replacement((op,), functools.partial(_inline, graph, op, branch))


def _inline(graph: ir.Graph, op: ir.Node, branch: ir.Graph) -> None:
    prefix = op.name or op.outputs[0].name or "If"
    taken = {value.name for value in (*graph.inputs, *graph.initializers.values())}
    taken |= {value.name for other in graph.all_nodes() for value in other.outputs if other.graph is not branch}
    results = list(branch.outputs)
    constants = list(branch.initializers.values())
    branch.outputs.clear()
    for value in constants:
        branch.initializers.pop(value.name or "")
        _name_apart(graph, value, prefix, taken)
        graph.register_initializer(value)
    nodes = list(branch)
    branch.remove(nodes)
    for node in nodes:
        for value in node.outputs:
            _name_apart(graph, value, prefix, taken)
    names = {node.name for node in graph if node.name}
    for node in nodes:
        node.name = f"{prefix}/{node.name}" if node.name in names else node.name
    graph.insert_before(op, nodes)
    made = [ir.node("Identity", [value]) for value in results]
    for node, result in zip(made, op.outputs, strict=True):
        node.outputs[0].type, node.outputs[0].shape = result.type, result.shape
    ir.convenience.replace_nodes_and_values(graph, op, [op], made, op.outputs, [node.outputs[0] for node in made])


def _name_apart(graph: ir.Graph, value: ir.Value, prefix: str, taken: set[str | None]) -> None:
    if value.name in taken:
        value.name = new_names(graph)(f"{prefix}/{value.name}")
    taken.add(value.name)
