"""A read-only view of an ONNX graph: nodes in topological order, who feeds whom, what is constant."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterator, Sequence, Set

import onnx_ir as ir

from partitioner.signatures import Signature, Signatures
from partitioner.topology import GRAPH_INPUT, Topology
from partitioner.values import Dimension, bodies, dimensions, is_constant, is_random, read_values

TRTNODE_DOMAIN = "ai.trtnode"
"""Domain of the nodes that carry engines, and of their functions."""


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


def describe(spec: TensorSpec) -> str:
    """A tensor's type as people write it, for example ``float32[N, 3, 224, 224]``."""
    dtype = (
        "any type" if spec.dtype is None else str(spec.dtype.numpy()) if spec.dtype != ir.DataType.STRING else "string"
    )
    if spec.shape is None:
        return f"{dtype} of any shape"
    return f"{dtype}[{', '.join('?' if d is None else str(d) for d in spec.shape)}]"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator call of the top-level graph.

    Attributes:
        name: Its identity: the ONNX name where that is unique and not empty, else ``op_type:first_output``.
        op: The onnx_ir node.
        opset: Version of the operator's domain that the model imports.
        reads: Every distinct run-time value that the node or one of its bodies reads, captured ones included.
        predecessors: Identities of the nodes that produce ``reads``.
        signature: Equal for nodes that an engine library can't tell apart when it decides whether it takes them.
        index: Its number in its graph.
    """

    name: str
    op: ir.Node
    opset: int
    reads: tuple[ir.Value, ...]
    predecessors: tuple[str, ...]
    signature: Signature
    index: int

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
        tensors: Every run-time value that a node reads or makes, numbered as in ``topology``.
        producers: Number of the node that makes a tensor, or ``topology.GRAPH_INPUT``, by tensor.
        topology: Who feeds whom, by number.
        constant: Whether a node computes the same for every request, from constants alone, by number.
        shape_arithmetic: Values that are computed from dimensions and constants alone.
        op_types: Operators of the nodes.
        names: Identities of the nodes, by number.
        kinds: The first node of each signature, in order.
        kind_of: Place in ``kinds`` of the node with the same signature, by number.
    """

    model: ir.Model
    nodes: tuple[Node, ...]
    tensors: tuple[ir.Value, ...]
    producers: tuple[int, ...]
    topology: Topology
    constant: Sequence[bool]
    shape_arithmetic: Set[ir.Value]
    op_types: Set[str]
    names: tuple[str, ...]
    kinds: tuple[Node, ...]
    kind_of: tuple[int, ...]

    @classmethod
    def of(cls, model: ir.Model) -> Graph:
        """View a model whose nodes are in topological order (``passes.clean_up`` sorts them)."""
        names = _identities(model.graph)
        signatures = Signatures(model.graph.opset_imports)
        numbers: dict[ir.Value, int] = {}
        producers: list[int] = []
        nodes: list[Node] = []
        reads_by_number: list[tuple[int, ...]] = []
        for index, op in enumerate(model.graph):
            reads = tuple(dict.fromkeys(v for v in read_values(op) if not is_constant(v)))
            for value in reads:
                if value not in numbers:
                    numbers[value] = len(producers)
                    producers.append(GRAPH_INPUT)
            for value in op.outputs:
                numbers[value] = len(producers)
                producers.append(index)
            reads_by_number.append(tuple(numbers[v] for v in reads))
            predecessors = tuple(dict.fromkeys(names[p] for v in reads if (p := v.producer()) is not None))
            nodes.append(Node(names[op], op, signatures.opset(op), reads, predecessors, signatures.of(op), index))
        outputs = set(model.graph.outputs)
        topology = Topology.of(
            reads_by_number,
            producers,
            sizes=[_expected_bytes(v) for v in numbers],
            leaving=[v in outputs for v in numbers],
        )
        constant = _constant(reads_by_number, producers, nodes)
        first: dict[Signature, Node] = {}
        for node in nodes:
            first.setdefault(node.signature, node)
        places = {signature: place for place, signature in enumerate(first)}
        return cls(
            model=model,
            nodes=tuple(nodes),
            tensors=tuple(numbers),
            producers=tuple(producers),
            topology=topology,
            constant=constant,
            shape_arithmetic=signatures.shape_arithmetic,
            op_types={node.op_type for node in nodes},
            names=tuple(node.name for node in nodes),
            kinds=tuple(first.values()),
            kind_of=tuple(places[node.signature] for node in nodes),
        )

    @property
    def inputs(self) -> tuple[ir.Value, ...]:
        """Graph inputs, in order."""
        return tuple(self.model.graph.inputs)

    @property
    def outputs(self) -> tuple[ir.Value, ...]:
        """Graph outputs, in order."""
        return tuple(self.model.graph.outputs)


def body_nodes(node: Node) -> Iterator[Node]:
    """The nodes of a node's bodies, and of their nodes' bodies; identities start with those of their parents."""
    assert node.op.graph is not None
    yield from _body_nodes(node.name, node.op, Signatures(node.op.graph.opset_imports))


def _body_nodes(parent: str, op: ir.Node, signatures: Signatures) -> Iterator[Node]:
    for body in bodies(op):
        names = _identities(body)
        for index, inner in enumerate(body):
            name = f"{parent}/{names[inner]}"
            reads = tuple(dict.fromkeys(v for v in read_values(inner) if not is_constant(v)))
            yield Node(name, inner, signatures.opset(inner), reads, (), signatures.of(inner), index)
            yield from _body_nodes(name, inner, signatures)


def _constant(reads: Sequence[Sequence[int]], producers: Sequence[int], nodes: Sequence[Node]) -> list[bool]:
    constant: list[bool] = []
    for node, tensors in zip(nodes, reads, strict=True):
        steady = all(producers[tensor] != GRAPH_INPUT and constant[producers[tensor]] for tensor in tensors)
        constant.append(steady and not is_random(node.op))
    return constant


def _expected_bytes(value: ir.Value) -> int:
    """Bytes of a value, unknown dimensions counted as one; 0 where elements have no fixed size."""
    if not isinstance(value.type, ir.TensorType) or value.dtype in (None, ir.DataType.UNDEFINED, ir.DataType.STRING):
        return 0
    sizes = (d if isinstance(d, int) else 1 for d in value.shape or ())
    return math.ceil(math.prod(sizes) * value.dtype.itemsize)


def _identities(graph: ir.Graph) -> dict[ir.Node, str]:
    counts = collections.Counter(op.name for op in graph if op.name)
    return {op: _identity(op, unique=counts[op.name or ""] == 1) for op in graph}


def _identity(op: ir.Node, *, unique: bool) -> str:
    if unique and op.name:
        return op.name
    first = next((v.name for v in op.outputs if v.name), "")
    return f"{op.op_type}:{first}"
