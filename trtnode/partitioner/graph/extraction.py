"""Copies nodes of a graph into standalone ONNX models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

import onnx
import onnx_ir as ir

from trtnode.partitioner.graph.view import TRTNODE_DOMAIN, Graph, Node
from trtnode.partitioner.model.mapped_weights import MappedTensor, place_outside
from trtnode.partitioner.model.value_types import TypeWriter
from trtnode.partitioner.model.values import (
    INFERRED_SHAPE,
    is_constant,
    read_values,
    serialize_imports,
    serialize_inferred,
    serialize_value,
    subgraphs,
    tensor_of,
)


def extract_model(
    graph: Graph,
    nodes: Sequence[Node],
    *,
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    keep_defaults: bool = False,
    weights_outside: bool = False,
) -> onnx.ModelProto:
    """Copy nodes, with the initializers that they read, into a standalone model.

    Args:
        graph: The graph of the nodes.
        nodes: The nodes to copy, in topological order.
        inputs: Run-time values that the nodes read from outside; the model's inputs, in this order.
        outputs: Values that the nodes produce for others; the model's outputs, in this order.
        keep_defaults: True if inputs of the graph keep their defaults.
        weights_outside: True if large weights stay in their file, which the model names by its absolute path.

    Returns:
        A model at the source's opsets with the same node and value names.
        It holds the functions that the nodes call, but not those of TrtNodes.
    """
    proto = empty_model(graph.model)
    extracted = proto.graph
    extracted.name = graph.model.graph.name or "segment"
    extracted.input.extend(serialize_value(v) for v in inputs)
    extracted.output.extend(serialize_inferred(v) for v in outputs)
    extracted.node.extend(ir.serde.serialize_node(n.op) for n in nodes)
    constants = constants_of([n.op for n in nodes], inputs)
    defaults = [v for v in inputs if v.is_initializer()] if keep_defaults else []
    extracted.initializer.extend(serialize_constant(v, outside=weights_outside) for v in (*constants, *defaults))
    _declare_types(extracted.value_info, nodes, {v.name for v in outputs})
    proto.functions.extend(called_functions(graph.model, [n.op for n in nodes]))
    return proto


def empty_model(model: ir.Model) -> onnx.ModelProto:
    """Return a model without a graph, at the IR version and opsets of another."""
    imports = serialize_imports(model.graph.opset_imports)
    return onnx.ModelProto(ir_version=model.ir_version, producer_name="trtnode", opset_import=imports)


def single_node_model(op: ir.Node) -> onnx.ModelProto:
    """Return a model of one node. Each of its inputs, constant or not, is an input of the model."""
    assert op.graph is not None
    proto = onnx.ModelProto(ir_version=10, opset_import=serialize_imports(op.graph.opset_imports))
    proto.graph.name = "node"
    proto.graph.node.append(ir.serde.serialize_node(op))
    proto.graph.input.extend(serialize_value(v) for v in dict.fromkeys(v for v in op.inputs if v is not None))
    proto.graph.output.extend(serialize_value(v) for v in op.outputs if v.name)
    return proto


def sampler_model(nodes: Sequence[Node], *, weights_outside: bool = False) -> onnx.ModelProto:
    """Return a model of unconnected nodes. Run-time inputs of each node are inputs of the model.

    Args:
        nodes: Nodes of one graph without subgraphs. Their constants come with them.
        weights_outside: As of ``extract_model``.
    """
    (graph,) = {node.op.graph for node in nodes}
    assert graph is not None
    proto = onnx.ModelProto(ir_version=10, opset_import=serialize_imports(graph.opset_imports))
    proto.graph.name = "sampler"
    for index, node in enumerate(nodes):
        _add_apart(proto.graph, node.op, f"{index}:", outside=weights_outside)
    return proto


def _add_apart(graph: onnx.GraphProto, op: ir.Node, prefix: str, *, outside: bool) -> None:
    proto = ir.serde.serialize_node(op)
    proto.name = f"{prefix}{op.op_type}"
    for names in (proto.input, proto.output):
        names[:] = [f"{prefix}{name}" if name else "" for name in names]
    graph.node.append(proto)
    for value in dict.fromkeys(v for v in op.inputs if v is not None):
        constant = is_constant(value)
        holder: Any = serialize_constant(value, outside=outside) if constant else serialize_value(value)
        holder.name = f"{prefix}{value.name}"
        (graph.initializer if constant else graph.input).append(holder)
    for value in op.outputs:
        if value.name:
            output = serialize_value(value)
            output.name = f"{prefix}{value.name}"
            graph.output.append(output)


def constants_of(ops: Iterable[ir.Node], inputs: Sequence[ir.Value] = ()) -> list[ir.Value]:
    """Return the initializers that nodes and their subgraphs read, in order of first use, without ``inputs``."""
    given = set(inputs)
    return list(dict.fromkeys(v for op in ops for v in read_values(op) if is_constant(v) and v not in given))


def serialize_constant(value: ir.Value, *, outside: bool = False) -> onnx.TensorProto:
    """Return an initializer as protobuf with its data inside, or outside where asked for and it is in a file."""
    tensor = tensor_of(value)
    if outside and isinstance(tensor, MappedTensor):
        proto = onnx.TensorProto(data_type=int(tensor.dtype), dims=tensor.shape.numpy())
        place_outside(proto, str(tensor.file), tensor.offset)
    else:
        if isinstance(tensor, ir.ExternalTensor):
            tensor = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=value.name)
        proto = ir.serde.serialize_tensor(tensor)
    proto.name = value.name or ""
    return proto


def _declare_types(infos: Any, nodes: Sequence[Node], without: Set[str | None]) -> None:
    """Add the typed values that nodes produce to a repeated field of ``ValueInfoProto``."""
    types = TypeWriter()
    for value in (value for node in nodes for value in node.op.outputs):
        if not value.name or value.type is None or value.name in without:
            continue
        if INFERRED_SHAPE in value.meta:
            infos.append(serialize_inferred(value))
        else:
            types.add(infos, value)


def called_functions(model: ir.Model, ops: Iterable[ir.Node]) -> list[onnx.FunctionProto]:
    """Return the functions that nodes call, directly or through others, without those of TrtNodes."""
    found: dict[ir.OperatorIdentifier, ir.Function] = {}
    waiting = list(_calls(ops))
    while waiting:
        key = waiting.pop()
        if key in model.functions and key not in found and key[0] != TRTNODE_DOMAIN:
            found[key] = model.functions[key]
            waiting.extend(_calls(found[key]))
    return [ir.serde.serialize_function(function) for function in found.values()]


def _calls(ops: Iterable[ir.Node]) -> Iterator[ir.OperatorIdentifier]:
    for op in ops:
        yield op.op_identifier()
        for subgraph in subgraphs(op):
            yield from _calls(subgraph)
