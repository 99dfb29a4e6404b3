"""Atomic groups: nodes that no boundary should separate.

- A quantized unit is a node, the DequantizeLinear nodes that feed it alone, and the QuantizeLinear nodes that read it.
  Together they are one integer operation; apart they are three in floating point.
- A shape chain is the arithmetic between Shape and the node whose result it sizes.
  An engine evaluates it at build time; from outside it makes the result's shape depend on a value.

Sequences and optionals never cross a boundary either, because no engine takes a node that reads or makes one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from trtnode.partitioner.cut.labels import ReasonCode, Verdict
from trtnode.partitioner.graph.qdq import DEQUANTIZE, QUANTIZE
from trtnode.partitioner.graph.view import Graph

SHAPE_INPUTS: Mapping[str, Sequence[int]] = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Pad": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (2, 3),
    "Slice": (1, 2, 3, 4),
    "Tile": (1,),
}
"""Inputs that determine the shape of a result, by operator."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AtomicGroup:
    """Nodes that should stay in one place.

    Attributes:
        kind: ``quantized unit`` or ``shape chain``.
        nodes: Numbers of all nodes, in topological order.
        bound: Numbers of the nodes that run natively if any node of the group does.
    """

    kind: str
    nodes: tuple[int, ...]
    bound: tuple[int, ...]


def atomic_groups(graph: Graph) -> tuple[AtomicGroup, ...]:
    """Find every atomic group of a graph. Quantized units are disjoint; shape chains may share nodes."""
    return (*_quantized_units(graph), *_shape_chains(graph))


def keep_groups(graph: Graph, labels: Mapping[str, Verdict], groups: Iterable[AtomicGroup]) -> dict[str, Verdict]:
    """Refuse the bound nodes of each group in which one node runs natively."""
    result = dict(labels)
    groups = tuple(groups)
    changed = bool(groups)
    while changed:
        changed = False
        for group in groups:
            native = next((i for i in group.nodes if not result[graph.nodes[i].name].supported), None)
            bound = [i for i in group.bound if native is not None and result[graph.nodes[i].name].supported]
            for index in bound:
                assert native is not None
                detail = f"It is one {group.kind} with {graph.nodes[native].name!r}, which runs natively."
                result[graph.nodes[index].name] = Verdict(ReasonCode.ATOMIC_GROUP, detail)
                changed = True
    return result


def _quantized_units(graph: Graph) -> Iterable[AtomicGroup]:
    if DEQUANTIZE not in graph.op_types:
        return
    ops = [node.op_type if node.domain == "" else "" for node in graph.nodes]
    predecessors, successors = graph.topology.predecessors, graph.topology.successors
    for core, op in enumerate(ops):
        if op in (QUANTIZE, DEQUANTIZE):
            continue
        before = [p for p in predecessors[core] if ops[p] == DEQUANTIZE and len(successors[p]) == 1]
        after = [s for s in successors[core] if ops[s] == QUANTIZE]
        if before:
            served = after if len(after) == len(successors[core]) else []
            nodes = (*sorted(before), core, *sorted(served))
            yield AtomicGroup(kind="quantized unit", nodes=nodes, bound=nodes)


def _shape_chains(graph: Graph) -> Iterable[AtomicGroup]:
    if not graph.shape_arithmetic:
        return
    numbers = {node.op: index for index, node in enumerate(graph.nodes)}
    arithmetic = graph.shape_arithmetic
    for core, node in enumerate(graph.nodes):
        sizing = SHAPE_INPUTS.get(node.op_type, ()) if node.domain == "" else ()
        inputs = node.op.inputs
        pending = [v for i in sizing if i < len(inputs) and (v := inputs[i]) is not None and v in arithmetic]
        chain: set[ir.Node] = set()
        while pending:
            producer = pending.pop().producer()
            if producer is None or producer in chain or producer.op_type in ("Shape", "Size"):
                continue
            chain.add(producer)
            pending.extend(v for v in producer.inputs if v is not None and v in arithmetic)
        if chain:
            nodes = (*sorted(numbers[op] for op in chain), core)
            yield AtomicGroup(kind="shape chain", nodes=nodes, bound=(core,))
