"""Queries on onnx_ir values and nodes: shape, constness, values read, subgraphs and their captures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping

import onnx
import onnx_ir as ir

Dimension = int | str | None
"""A size, a symbol, or None where nothing is known."""

RANDOM_OPS = frozenset("Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split())

ONNX_DOMAINS = ("", "ai.onnx")
"""Names of ONNX's own domain."""

SHAPE_DTYPES = frozenset((ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL))
"""Element types of shape arithmetic."""

DECLARED_TYPE = "trtnode.declared_type"
"""Key of ``ir.Value.meta`` for the ``onnx.TypeProto`` of a value whose type onnx_ir can't hold."""

INFERRED_SHAPE = "trtnode.inferred_shape"
"""Key of ``ir.Value.meta`` for what ONNX's rules say of a shape that another source has completed."""


GIVEN_SIZES = "trtnode.given_sizes"
"""Key of ``ir.Value.meta`` for an input of a model that may hold sizes: True where the user bounds its elements."""


def dimensions(value: ir.Value) -> tuple[Dimension, ...] | None:
    """Return the shape of a value with plain entries; None for an unknown rank."""
    if value.shape is None:
        return None
    return tuple(d if isinstance(d, int) else d.value for d in value.shape)


def is_unknown(value: ir.Value) -> bool:
    """Return whether a value has no type, or is a tensor of unknown rank."""
    return value.type is None or (isinstance(value.type, ir.TensorType) and value.shape is None)


def is_constant(value: ir.Value) -> bool:
    """Return whether a value is an initializer that no request can replace.

    From IR version 4, an initializer that is also a graph input is only a default; see
    https://github.com/onnx/onnx/blob/main/docs/IR.md#graphs.
    """
    return value.is_initializer() and not value.is_graph_input()


def tensor_of(value: ir.Value | None) -> ir.TensorProtocol:
    """Return the data of a constant."""
    assert value is not None
    assert value.const_value is not None
    return value.const_value


def count_elements(tensor: ir.TensorProtocol) -> int:
    """Return the number of elements of a tensor. For one in protobuf, onnx_ir makes a new shape each time."""
    return math.prod(tensor.raw.dims) if isinstance(tensor, ir.serde.TensorProtoTensor) else tensor.size


def comes_from_shape(value: ir.Value) -> bool:
    """Return whether integer operators and constants alone compute a value from Shape or Size."""
    return size_inputs(value) == []


def size_inputs(value: ir.Value) -> list[ir.Value] | None:
    """Return the graph inputs that integer operators compute a value from, beside Shape, Size and constants.

    Returns:
        The inputs, each once; None where anything else goes into the value.
    """
    pending, seen, inputs = [value], set[ir.Value](), []
    while pending:
        current = pending.pop()
        if current.const_value is not None or current in seen:
            continue
        seen.add(current)
        producer = current.producer()
        if current.dtype not in SHAPE_DTYPES or (producer is None and not current.is_graph_input()):
            return None
        if producer is not None and has_subgraphs(producer):
            return None  # bodies may read anything
        if producer is None:
            inputs.append(current)
        elif producer.op_type not in ("Shape", "Size"):
            pending.extend(v for v in producer.inputs if v is not None)
    return inputs


def names_of(values: Iterable[ir.Value]) -> list[str]:
    """Return the names of values; an unnamed one gives an empty name."""
    return [v.name or "" for v in values]


def serialize_imports(versions: Mapping[str, int]) -> list[onnx.OperatorSetIdProto]:
    """Return the opsets of a graph by their domains as protobuf."""
    return [onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in versions.items()]


def serialize_value(value: ir.Value) -> onnx.ValueInfoProto:
    """Return a value's name and type as protobuf."""
    proto = ir.serde.serialize_value(value)
    if DECLARED_TYPE in value.meta:
        proto.type.CopyFrom(value.meta[DECLARED_TYPE])
    return proto


def serialize_inferred(value: ir.Value) -> onnx.ValueInfoProto:
    """Return a value's name and type as protobuf. Its shape is that of ONNX's rules, which native execution trusts."""
    proto = serialize_value(value)
    if INFERRED_SHAPE in value.meta:
        shape = value.meta[INFERRED_SHAPE]
        proto.type.tensor_type.ClearField("shape")
        if shape is not None:
            ir.serde.serialize_shape_into(proto.type, ir.Shape(shape))
    return proto


def holds_map(kind: onnx.TypeProto) -> bool:
    """Return whether a type is a map, or a sequence or optional of maps."""
    if kind.HasField("sequence_type"):
        return holds_map(kind.sequence_type.elem_type)
    if kind.HasField("optional_type"):
        return holds_map(kind.optional_type.elem_type)
    return kind.HasField("map_type")


def input_of(op: ir.Node, index: int) -> ir.Value | None:
    """Return an input of a node; None where it is left out."""
    return op.inputs[index] if index < len(op.inputs) else None


def named_values(op: ir.Node) -> list[ir.Value]:
    """Return the inputs and outputs of a node that have a name."""
    return [v for v in (*op.inputs, *op.outputs) if v is not None and v.name]


def read_values(op: ir.Node) -> Iterable[ir.Value]:
    """Return every value that a node reads: its inputs, then the captures of its subgraphs."""
    inputs = [v for v in op.inputs if v is not None]
    return itertools.chain(inputs, *map(_captured, subgraphs(op))) if op.attributes else inputs


def all_nodes(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """Yield the nodes of a graph, each before those of its subgraphs."""
    for op in graph:
        yield op
        for subgraph in subgraphs(op) if op.attributes else ():  # most nodes of large graphs have none
            yield from all_nodes(subgraph)


def all_values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield every value that a graph defines, then those of its subgraphs."""
    yield from dict.fromkeys((*graph.inputs, *graph.initializers.values()))
    for op in graph:
        yield from op.outputs
        for subgraph in subgraphs(op):
            yield from all_values(subgraph)


def subgraphs(op: ir.Node) -> Iterator[ir.Graph]:
    """Yield the subgraphs of a node (branches of If, bodies of Loop and Scan)."""
    if not op.attributes:  # as most nodes of large graphs
        return
    for attribute in op.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def has_subgraphs(op: ir.Node) -> bool:
    """Return whether a node has subgraphs."""
    return bool(op.attributes) and any(True for _ in subgraphs(op))


def is_sorted(graph: ir.Graph) -> bool:
    """Return whether each node of a graph without subgraphs stands behind those that it reads from."""
    behind: set[ir.Node | None] = {None}
    for op in graph:
        if any(value is not None and value.producer() not in behind for value in op.inputs):
            return False
        if has_subgraphs(op):
            return False
        behind.add(op)
    return True


def is_random(op: ir.Node) -> bool:
    """Return whether a node, or one in its subgraphs, draws random numbers."""
    return op.op_type in RANDOM_OPS or any(is_random(inner) for subgraph in subgraphs(op) for inner in subgraph)


def _captured(subgraph: ir.Graph) -> Iterator[ir.Value]:
    inside = {*subgraph.inputs, *subgraph.initializers.values()}
    for op in subgraph:
        yield from (v for v in read_values(op) if v not in inside)
        inside.update(op.outputs)
    yield from (v for v in subgraph.outputs if v not in inside)
