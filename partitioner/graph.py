"""A read-only view of an ONNX graph: nodes in topological order, who feeds whom, what is constant."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir

Dimension = int | str | None

TRTNODE_DOMAIN = "ai.trtnode"
"""Domain of the nodes that carry engines, and of their functions."""

DECLARED_TYPE = "trtnode.declared_type"
"""Key of ``ir.Value.meta``: the ``onnx.TypeProto`` of a value whose type onnx_ir can't hold."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Name, element type and shape of a value.

    Attributes:
        name: ONNX value name.
        dtype: Element type; None for a value that is no dense tensor (sequence, optional, map) or is untyped.
        shape: One entry a dimension: a size, a symbol, or None where nothing is known; None for an unknown rank.
        optional: Whether a default stands in for the value (a graph input that is also an initializer).
    """

    name: str
    dtype: ir.DataType | None
    shape: tuple[Dimension, ...] | None
    optional: bool = False

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape if every dimension has a size, else None."""
        if self.shape is None:
            return None
        sizes = tuple(d for d in self.shape if isinstance(d, int))
        return sizes if len(sizes) == len(self.shape) else None

    @property
    def size_bytes(self) -> int:
        """Bytes of a tensor of this type and fixed shape; 0 where either is unknown."""
        shape = self.static_shape
        return 0 if shape is None or self.dtype is None else math.ceil(math.prod(shape) * self.dtype.itemsize)

    @classmethod
    def of(cls, value: ir.Value) -> TensorSpec:
        """Describe a value of an onnx_ir graph."""
        dense = isinstance(value.type, ir.TensorType)
        return cls(
            name=value.name or "",
            dtype=value.dtype if dense and value.dtype != ir.DataType.UNDEFINED else None,
            shape=dimensions(value),
            optional=value.is_graph_input() and value.is_initializer(),
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator call of the top-level graph.

    Attributes:
        name: Its identity: the ONNX name where that is unique and not empty, else ``op_type:first_output``.
        op: The onnx_ir node.
        opset: Version of the operator's domain that the model imports.
        reads: Every distinct run-time value that the node or one of its bodies reads, captured ones included.
        predecessors: Identities of the nodes that produce ``reads``.
    """

    name: str
    op: ir.Node
    opset: int
    reads: tuple[ir.Value, ...]
    predecessors: tuple[str, ...]

    @property
    def op_type(self) -> str:
        """Operator name."""
        return self.op.op_type

    @property
    def domain(self) -> str:
        """Operator domain; the empty string is ONNX's own."""
        return self.op.domain


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A model's top-level graph.

    Attributes:
        model: The onnx_ir model that this view reads.
        nodes: In topological order.
    """

    model: ir.Model
    nodes: tuple[Node, ...]

    @classmethod
    def of(cls, model: ir.Model) -> Graph:
        """View a model whose nodes are in topological order (``passes.clean_up`` sorts them)."""
        names = _identities(model.graph)
        nodes = []
        for op in model.graph:
            reads = tuple(dict.fromkeys(v for v in read_values(op) if not is_constant(v)))
            producers = (v.producer() for v in reads)
            predecessors = tuple(dict.fromkeys(names[p] for p in producers if p is not None))
            opset = op.version or model.graph.opset_imports.get(op.domain, 0)
            nodes.append(Node(names[op], op, opset, reads, predecessors))
        return cls(model, tuple(nodes))

    @property
    def inputs(self) -> tuple[ir.Value, ...]:
        """Graph inputs, in order."""
        return tuple(self.model.graph.inputs)

    @property
    def outputs(self) -> tuple[ir.Value, ...]:
        """Graph outputs, in order."""
        return tuple(self.model.graph.outputs)


def dimensions(value: ir.Value) -> tuple[Dimension, ...] | None:
    """Shape of a value with plain entries: a size, a symbol, or None."""
    if value.shape is None:
        return None
    return tuple(d if isinstance(d, int) else d.value for d in value.shape)


def is_constant(value: ir.Value) -> bool:
    """Whether a value is an initializer that no request can replace.

    From IR version 4 an initializer that is also a graph input is only a default; see
    https://github.com/onnx/onnx/blob/main/docs/IR.md#graphs.
    """
    return value.is_initializer() and not value.is_graph_input()


def names_of(values: Iterable[ir.Value]) -> list[str]:
    """Names of values that are all named."""
    return [v.name or "" for v in values]


def serialize_value(value: ir.Value) -> onnx.ValueInfoProto:
    """A value's name and type as protobuf."""
    proto = ir.serde.serialize_value(value)
    if DECLARED_TYPE in value.meta:
        proto.type.CopyFrom(value.meta[DECLARED_TYPE])
    return proto


def holds_map(kind: onnx.TypeProto) -> bool:
    """Whether a type is a map, or a sequence or optional of maps."""
    if kind.HasField("sequence_type"):
        return holds_map(kind.sequence_type.elem_type)
    if kind.HasField("optional_type"):
        return holds_map(kind.optional_type.elem_type)
    return kind.HasField("map_type")


def read_values(op: ir.Node) -> Iterator[ir.Value]:
    """Every value that a node reads: its inputs, then what its bodies capture from outside."""
    yield from (v for v in op.inputs if v is not None)
    for body in bodies(op):
        yield from _captured(body)


def bodies(op: ir.Node) -> Iterator[ir.Graph]:
    """The subgraphs of a node (branches of If, bodies of Loop and Scan)."""
    for attribute in op.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def _captured(body: ir.Graph) -> Iterator[ir.Value]:
    inside = {*body.inputs, *body.initializers.values()}
    for op in body:
        yield from (v for v in read_values(op) if v not in inside)
        inside.update(op.outputs)
    yield from (v for v in body.outputs if v not in inside)


def _identities(graph: ir.Graph) -> dict[ir.Node, str]:
    counts = collections.Counter(op.name for op in graph if op.name)
    return {op: _identity(op, unique=counts[op.name or ""] == 1) for op in graph}


def _identity(op: ir.Node, *, unique: bool) -> str:
    if unique and op.name:
        return op.name
    first = next((v.name for v in op.outputs if v.name), "")
    return f"{op.op_type}:{first}"
