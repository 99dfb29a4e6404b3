"""Views the bodies of control flow as models of their own, and puts them back with engines inside."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import onnx
import onnx_ir as ir

from partitioner.graph import TRTNODE_DOMAIN, Node, TensorSpec
from partitioner.values import is_constant, names_of, read_values

FLOW_OPS = frozenset({"If", "Loop", "Scan"})
"""Operators whose bodies may have engines of their own."""

SCAN_ORDER = ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions")
"""Attributes of Scan that are zero where it goes forward along the first axis."""

LOOP_SCALARS = 2
"""A Loop's body begins with the number of the iteration and the condition."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Body:
    """One body of a control-flow node.

    Attributes:
        owner: Identity of the node.
        attribute: The node's attribute that holds it.
        model: The body by itself. Its inputs are its formal inputs, then the run-time values that it captures; the
            constants that it captures are initializers.
        formal: Number of formal inputs.
        captured: Names of what it captures, constants included.
    """

    owner: str
    attribute: str
    model: ir.Model
    formal: int
    captured: frozenset[str]

    @property
    def name(self) -> str:
        """Unique within the graph that the node is in."""
        return f"{self.owner}/{self.attribute}"

    @property
    def interface(self) -> Iterator[TensorSpec]:
        """Everything that goes into the body, and what comes out."""
        return (TensorSpec.of(v) for v in (*self.model.graph.inputs, *self.model.graph.outputs))


def bodies_of(model: ir.Model, node: Node) -> tuple[Body, ...]:
    """The bodies of an If, a Loop, or a Scan that goes forward along the first axis; none of any other node.

    Args:
        model: Where the node is. It is not changed, and its tensors are shared.
        node: Of the model's top-level graph.
    """
    if node.op_type not in FLOW_OPS or node.domain or not _goes_forward(node):
        return ()
    graphs = ((a.name, a.as_graph()) for a in node.op.attributes.values() if a.type == ir.AttributeType.GRAPH)
    return tuple(_stand_alone(model, node, name, graph) for name, graph in graphs)


def put_back(proto: onnx.ModelProto, node: Node, compiled: Mapping[str, tuple[Body, onnx.ModelProto]]) -> None:
    """Replace bodies of a node, in place, and bring the functions of their TrtNodes.

    Args:
        proto: A model that has the node in its graph.
        node: Which one.
        compiled: The bodies and what they have become, by attribute.
    """
    outputs = names_of(node.op.outputs)
    target = next(n for n in proto.graph.node if n.op_type == node.op_type and list(n.output) == outputs)
    for attribute in target.attribute:
        if attribute.name in compiled:
            body, model = compiled[attribute.name]
            attribute.g.CopyFrom(_as_body(body, model.graph))
            proto.functions.extend(f for f in model.functions if f.domain == TRTNODE_DOMAIN)
    imported = {opset.domain for opset in proto.opset_import}
    imports = {opset.domain: opset for _, model in compiled.values() for opset in model.opset_import}
    proto.opset_import.extend(opset for domain, opset in imports.items() if domain not in imported)


def _stand_alone(model: ir.Model, node: Node, attribute: str, graph: ir.Graph) -> Body:
    outside = _captured(graph)
    constants = [v for v in outside if is_constant(v)]
    captured = [v for v in outside if not is_constant(v)]
    view = ir.GraphView(
        [*graph.inputs, *captured],
        list(graph.outputs),
        nodes=list(graph),
        initializers=[*graph.initializers.values(), *constants],
        opset_imports=dict(model.graph.opset_imports),
        name=graph.name or attribute,
    )
    alone = view.clone()
    for value in alone.inputs:
        value.const_value = None  # the default of an input of the model is no constant
    _complete_ranks(node.op, alone)
    return Body(
        owner=node.name,
        attribute=attribute,
        model=ir.Model(alone, ir_version=model.ir_version, functions=list(model.functions.values())),
        formal=len(graph.inputs),
        captured=frozenset(names_of(outside)),
    )


def _captured(graph: ir.Graph) -> list[ir.Value]:
    inside = {*graph.inputs, *graph.initializers.values(), *(v for op in graph for v in op.outputs)}
    read = (v for op in graph for v in read_values(op))
    return list(dict.fromkeys(v for v in (*read, *graph.outputs) if v not in inside))


def _goes_forward(node: Node) -> bool:
    """Whether a node is no Scan with other axes or directions, nor the Scan of opset 8, which had batches."""
    if node.op_type != "Scan":
        return True
    return node.opset > 8 and not any(any(node.op.attributes.get_ints(name) or ()) for name in SCAN_ORDER)


def _complete_ranks(op: ir.Node, body: ir.Graph) -> None:
    """Give inputs of unknown rank that of what the body is first called with; a run checks that they keep it."""
    first_scanned = len(op.inputs) - (op.attributes.get_int("num_scan_inputs") or 0)
    for index, (value, given) in enumerate(zip(body.inputs, op.inputs, strict=False)):
        if op.op_type == "If" or value.shape is not None:
            continue
        if op.op_type == "Loop" and index < LOOP_SCALARS:
            value.shape = ir.Shape([])
        elif given is not None and given.shape is not None:
            value.shape = ir.Shape([None] * (len(given.shape) - (index >= first_scanned)))


def _as_body(body: Body, graph: onnx.GraphProto) -> onnx.GraphProto:
    """A body's model as a body: what it captures is no longer declared."""
    result = onnx.GraphProto()
    result.CopyFrom(graph)
    del result.input[body.formal :]
    own = [tensor for tensor in result.initializer if tensor.name not in body.captured]
    del result.initializer[:]
    result.initializer.extend(own)
    return result
