"""A read-only view of an ONNX graph: nodes in topological order, their edges, and which are constant."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence, Set

import onnx_ir as ir

from trtnode.partitioner.graph.node_keys import NodeKey, NodeKeys
from trtnode.partitioner.graph.topology import GRAPH_INPUT, Topology
from trtnode.partitioner.model.values import Dimension, dimensions, is_constant, is_random, read_values, subgraphs

TRTNODE_DOMAIN = "ai.trtnode"
"""Domain of the nodes that carry engines, and of their functions."""

STEPS = "trtnode.steps"
"""Property of a model that was merged of several: the steps, between commas. Names of their nodes begin with them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Name, element type and shape of a value.

    Attributes:
        name: ONNX value name.
        dtype: Element type; None for an untyped value, and for sequences, optionals and maps.
        shape: One entry a dimension: a size, a symbol, or None where nothing is known; None for an unknown rank.
        optional: True if the value has a default (a graph input that is also an initializer).
    """

    name: str
    dtype: ir.DataType | None
    shape: tuple[Dimension, ...] | None
    optional: bool = False

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """Shape if every dimension has a size, else None."""
        if self.shape is None:
            return None
        sizes = tuple(d for d in self.shape if isinstance(d, int))
        return sizes if len(sizes) == len(self.shape) else None

    @property
    def size_bytes(self) -> int:
        """Bytes of a tensor of this type and fixed shape; 0 where either is unknown, and for strings."""
        shape = self.static_shape
        if shape is None or self.dtype is None or self.dtype == ir.DataType.STRING:
            return 0
        return math.ceil(math.prod(shape) * self.dtype.itemsize)

    @classmethod
    def of(cls, value: ir.Value) -> TensorSpec:
        """Return the spec of an onnx_ir value."""
        dense = isinstance(value.type, ir.TensorType)
        return cls(
            name=value.name or "",
            dtype=value.dtype if dense and value.dtype != ir.DataType.UNDEFINED else None,
            shape=dimensions(value),
            optional=value.is_graph_input() and value.is_initializer(),
        )


def describe(spec: TensorSpec) -> str:
    """Return a tensor's type as people write it, such as ``float32[N, 3, 224, 224]``."""
    dtype = (
        "any type" if spec.dtype is None else str(spec.dtype.numpy()) if spec.dtype != ir.DataType.STRING else "string"
    )
    if spec.shape is None:
        return f"{dtype} of any shape"
    return f"{dtype}[{', '.join('?' if d is None else str(d) for d in spec.shape)}]"


@dataclasses.dataclass(slots=True, eq=False)  # frozen, it would take four times as long to make
class Node:
    """One operator call of the top-level graph. Nobody changes it.

    Attributes:
        name: Identity of the node: its ONNX name if that is unique and not empty, else ``op_type:first_output``.
        op: The onnx_ir node.
        reads: Distinct run-time values that the node or one of its subgraphs reads, captured ones included.
        key: Key that the node shares with all nodes that an engine library can't tell apart from it.
        index: Number of the node in its graph.
    """

    name: str
    op: ir.Node
    reads: tuple[ir.Value, ...]
    key: NodeKey
    index: int

    @property
    def op_type(self) -> str:
        """Operator name."""
        return self.op.op_type

    @property
    def domain(self) -> str:
        """Operator domain; ONNX's own is the empty string."""
        return self.op.domain

    @property
    def opset(self) -> int:
        """Version of the operator's domain that the model imports."""
        return self.key.opset


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A model's top-level graph.

    Attributes:
        model: The onnx_ir model that this view reads.
        nodes: The nodes in topological order.
        tensors: Every run-time value that a node reads or makes, numbered as in ``topology``.
        topology: Edges by number.
        constant: True if a node computes from constants alone, the same for every request, by number.
        shape_arithmetic: Values computed from dimensions and constants alone.
        op_types: Operators of the nodes.
        names: Identities of the nodes, by number.
        kinds: The first node of each key, in order.
        kind_of: Place in ``kinds`` of the node with the same key, by number.
    """

    model: ir.Model
    nodes: tuple[Node, ...]
    tensors: tuple[ir.Value, ...]
    topology: Topology
    constant: Sequence[bool]
    shape_arithmetic: Set[ir.Value]
    op_types: Set[str]
    names: tuple[str, ...]
    kinds: tuple[Node, ...]
    kind_of: tuple[int, ...]

    @property
    def steps(self) -> dict[str, str]:
        """The step of each node by identity, in order, where a model was merged of several; other nodes have none."""
        known = set(self.model.metadata_props.get(STEPS, "").split(",")) - {""}
        return {name: step for name in self.names if (step := name.partition("/")[0]) in known}

    @classmethod
    def of(cls, model: ir.Model) -> Graph:
        """Return the view of a model whose nodes are in topological order (``passes.clean_up`` sorts them)."""
        keys = NodeKeys(model.graph.opset_imports)
        nodes: list[Node] = []
        numbers: dict[ir.Value, int] = collections.defaultdict(itertools.count().__next__)
        makers: dict[int, int] = {}
        reads: list[tuple[int, ...]] = []
        constant: list[bool] = []
        steady: set[ir.Value] = set()
        for index, (op, name) in enumerate(_identities(model.graph).items()):
            values, outputs = _run_time_reads(op), op.outputs
            nodes.append(Node(name, op, values, keys.of(op), index))
            reads.append(tuple([numbers[value] for value in values]))
            for value in outputs:
                makers[numbers[value]] = index
            constant.append(steady.issuperset(values) and not is_random(op))
            if constant[-1]:
                steady.update(outputs)
        leaving = set(model.graph.outputs)
        topology = Topology.of(
            reads,
            [makers.get(tensor, GRAPH_INPUT) for tensor in range(len(numbers))],
            sizes=[expected_bytes(v) for v in numbers],
            leaving=[v in leaving for v in numbers],
        )
        first: dict[NodeKey, Node] = {}
        for node in nodes:
            first.setdefault(node.key, node)
        places = {key: place for place, key in enumerate(first)}
        return cls(
            model=model,
            nodes=tuple(nodes),
            tensors=tuple(numbers),
            topology=topology,
            constant=constant,
            shape_arithmetic=keys.shape_arithmetic,
            op_types={node.op_type for node in first.values()},
            names=tuple(node.name for node in nodes),
            kinds=tuple(first.values()),
            kind_of=tuple(places[node.key] for node in nodes),
        )

    @property
    def inputs(self) -> tuple[ir.Value, ...]:
        """Graph inputs, in order."""
        return tuple(self.model.graph.inputs)

    @property
    def outputs(self) -> tuple[ir.Value, ...]:
        """Graph outputs, in order."""
        return tuple(self.model.graph.outputs)


def subgraph_nodes(node: Node) -> Iterator[Node]:
    """Yield the nodes of a node's subgraphs, recursively. Identities begin with those of their parents."""
    assert node.op.graph is not None
    yield from _subgraph_nodes(node.name, node.op, NodeKeys(node.op.graph.opset_imports))


def _subgraph_nodes(parent: str, op: ir.Node, keys: NodeKeys) -> Iterator[Node]:
    for subgraph in subgraphs(op):
        names = _identities(subgraph)
        for index, inner in enumerate(subgraph):
            name = f"{parent}/{names[inner]}"
            yield Node(name, inner, _run_time_reads(inner), keys.of(inner), index)
            yield from _subgraph_nodes(name, inner, keys)


def _run_time_reads(op: ir.Node) -> tuple[ir.Value, ...]:
    reads = [v for v in read_values(op) if not is_constant(v)]
    return tuple(reads if len(reads) < 2 else dict.fromkeys(reads))


def expected_bytes(value: ir.Value) -> int:
    """Return the bytes of a value; an unknown dimension counts as one, elements without fixed size as 0."""
    kind, shape = value.type, value.shape
    return _bytes_of(kind.dtype, () if shape is None else shape.dims) if isinstance(kind, ir.TensorType) else 0


@functools.lru_cache(maxsize=1024)
def _bytes_of(dtype: ir.DataType, sizes: Sequence[object]) -> int:
    if dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING):
        return 0
    return math.ceil(math.prod(d for d in sizes if isinstance(d, int)) * dtype.itemsize)


def _identities(graph: ir.Graph) -> dict[ir.Node, str]:
    ops = list(graph)
    names = [op.name or "" for op in ops]
    unusable = {name for name, count in collections.Counter(names).items() if count > 1 or not name}
    return {op: _named_by_result(op) if name in unusable else name for op, name in zip(ops, names, strict=True)}


def _named_by_result(op: ir.Node) -> str:
    first = next((v.name for v in op.outputs if v.name), "")
    return f"{op.op_type}:{first}"


def specs(values: tuple[ir.Value, ...]) -> tuple[TensorSpec, ...]:
    """Return the specs of values."""
    return tuple(TensorSpec.of(v) for v in values)
