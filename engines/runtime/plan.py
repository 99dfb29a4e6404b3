"""Plans the execution of a compiled model: stages in order, engines and native parts in turn."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence, Set

import onnx
import onnx_ir as ir

from partitioner import Graph, Node, extract_model, is_trtnode
from partitioner.cut.levels import earliest_levels
from partitioner.cut.segments import values_leaving, values_read
from partitioner.graph.view import TRTNODE_DOMAIN, subgraph_nodes
from partitioner.model import protobuf_walk


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanStage:
    """A part of a model that one call of one library runs.

    Attributes:
        name: The TrtNode's name, or ``native_<level>``.
        nodes: The one node of an engine stage, or the nodes of a native stage.
        is_engine: True if an engine runs it.
        inputs: Run-time values that it reads, in binding order.
        outputs: Values that later stages or the caller read, in binding order.
    """

    name: str
    nodes: tuple[Node, ...]
    is_engine: bool
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]


def plan_stages(graph: Graph, usable: Mapping[str, bool]) -> list[PlanStage]:
    """Order a compiled graph into stages: native 0, engines of level 1, native 1, engines of level 2, and so on.

    Args:
        graph: A compiled model. TrtNodes without a usable engine run natively, as functions.
        usable: True for each TrtNode whose engine can be used, by node identity.

    Returns:
        Stages of all nodes, each after the stages that it reads from.
    """
    on_engine = [is_trtnode(node.op) and usable[node.name] for node in graph.nodes]
    levels = earliest_levels(graph.topology, on_engine)
    constant = [c and not engine for c, engine in zip(graph.constant, on_engine, strict=True)]
    handed_on = _handed_on(graph, on_engine)
    engines: dict[int, list[Node]] = {}
    native: dict[int, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        if on_engine[index]:
            engines.setdefault(levels[index], []).append(node)
        elif not constant[index] or index in handed_on:
            native.setdefault(levels[index], []).append(index)
    stages: list[PlanStage] = []
    for level in range(max(levels, default=0) + 1):
        stages.extend(_engine_stage(node) for node in engines.get(level, ()))
        if level in native:
            whole = _with_constants(graph, native[level], constant)
            stages.append(_native_stage(graph, f"native_{level}", whole, own=set(native[level])))
    return stages


def _handed_on(graph: Graph, on_engine: Sequence[bool]) -> set[int]:
    """Return the nodes whose results an engine or the caller reads."""
    reads = (p for index, engine in enumerate(on_engine) if engine for p in graph.topology.predecessors[index])
    leaving = (p for p, leaves in zip(graph.producers, graph.topology.leaving, strict=True) if leaves)
    return {*reads, *leaving}


def _with_constants(graph: Graph, nodes: Sequence[int], constant: Sequence[bool]) -> list[int]:
    """Add the constant nodes that some nodes read. ONNX Runtime folds them when it loads the stage."""
    found, pending = set(nodes), list(nodes)
    while pending:
        for p in graph.topology.predecessors[pending.pop()]:
            if constant[p] and p not in found:
                found.add(p)
                pending.append(p)
    return sorted(found)


def native_stage_model(graph: Graph, stage: PlanStage) -> onnx.ModelProto:
    """Return a native stage as a standalone model, whose TrtNodes have their functions and no engines."""
    proto = extract_model(graph, stage.nodes, inputs=stage.inputs, outputs=stage.outputs)
    for node in protobuf_walk.nodes(proto):
        kept = [a for a in node.attribute if a.name not in ("engine", "engine_file", "envelope")]
        if node.domain == TRTNODE_DOMAIN and len(kept) < len(node.attribute):
            del node.attribute[:]
            node.attribute.extend(kept)
    called = {
        op.op_identifier() for op in _with_subgraphs(stage.nodes) if is_trtnode(op)
    }  # extraction brings the others
    functions = graph.model.functions.items()
    proto.functions.extend(ir.serde.serialize_function(f) for key, f in functions if key in called)
    return proto


def _with_subgraphs(nodes: Sequence[Node]) -> Iterable[ir.Node]:
    return (op.op for node in nodes for op in (node, *subgraph_nodes(node)))


def last_uses(stages: Sequence[PlanStage], outputs: frozenset[str]) -> list[tuple[str, ...]]:
    """Return the names of values that nothing reads after each stage, without outputs of the model."""
    last: dict[str, int] = {}
    for index, stage in enumerate(stages):
        for value in (*stage.inputs, *stage.outputs):
            last[value.name or ""] = index
    return [tuple(n for n, at in last.items() if at == index and n not in outputs) for index in range(len(stages))]


def _engine_stage(node: Node) -> PlanStage:
    return PlanStage(
        name=node.name,
        nodes=(node,),
        is_engine=True,
        inputs=node.reads,
        outputs=tuple(v for v in node.op.outputs if v.name),
    )


def _native_stage(graph: Graph, name: str, indices: Sequence[int], *, own: Set[int]) -> PlanStage:
    nodes = [graph.nodes[index] for index in indices]
    ours = {v for index in own for v in graph.nodes[index].op.outputs}
    return PlanStage(
        name=name,
        nodes=tuple(nodes),
        is_engine=False,
        inputs=values_read(nodes),
        outputs=tuple(v for v in values_leaving(graph, nodes) if v in ours),
    )
