"""The execution plan: a compiled model as stages in order, engines and native parts in turn."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Mapping, Sequence, Set

import onnx
import onnx_ir as ir

from partitioner import Graph, Node, TensorSpec, extract_model, is_trtnode, walk
from partitioner.graph import TRTNODE_DOMAIN, body_nodes
from partitioner.levels import earliest_levels
from partitioner.segments import values_leaving, values_read


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What runs as one call of one library.

    Attributes:
        name: The TrtNode's name, the control-flow node's, or ``native_<level>``.
        nodes: The one node of an engine or control-flow stage, or the nodes of a native stage.
        is_engine: Whether an engine runs it.
        is_flow: Whether it is a control-flow node with engines in its bodies.
        inputs: Run-time values that it reads, in binding order.
        outputs: Values that later stages or the caller read, in binding order.
    """

    name: str
    nodes: tuple[Node, ...]
    is_engine: bool
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    is_flow: bool = False


def plan_stages(graph: Graph, usable: Mapping[str, bool], *, flows: Container[str] = ()) -> list[Stage]:
    """Order a compiled graph into stages: native 0, engines of level 1, native 1, engines of level 2, and so on.

    Args:
        graph: A compiled model. TrtNodes whose engine can't be used run natively, as the functions that they are.
        usable: Whether a TrtNode's engine can be used, by node identity.
        flows: Identities of the control-flow nodes that get a stage of their own, like an engine.

    Returns:
        Stages that leave nothing out, each after everything that it reads.
    """
    on_engine = [node.name in flows or (is_trtnode(node.op) and usable[node.name]) for node in graph.nodes]
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
    stages: list[Stage] = []
    for level in range(max(levels, default=0) + 1):
        stages.extend(_own_stage(node) for node in engines.get(level, ()))
        if level in native:
            whole = _with_constants(graph, native[level], constant)
            stages.append(_native_stage(graph, f"native_{level}", whole, own=set(native[level])))
    return stages


def _handed_on(graph: Graph, on_engine: Sequence[bool]) -> set[int]:
    """Nodes whose results an engine or the caller reads."""
    reads = (p for index, engine in enumerate(on_engine) if engine for p in graph.topology.predecessors[index])
    leaving = (p for p, leaves in zip(graph.producers, graph.topology.leaving, strict=True) if leaves)
    return {*reads, *leaving}


def _with_constants(graph: Graph, nodes: Sequence[int], constant: Sequence[bool]) -> list[int]:
    """Add the constant nodes that some nodes read, which ONNX Runtime then folds when it loads the stage."""
    found, pending = set(nodes), list(nodes)
    while pending:
        for p in graph.topology.predecessors[pending.pop()]:
            if constant[p] and p not in found:
                found.add(p)
                pending.append(p)
    return sorted(found)


def native_stage_model(graph: Graph, stage: Stage) -> onnx.ModelProto:
    """A native stage as a standalone model; TrtNodes in it come with their functions and without their engines."""
    proto = extract_model(graph, stage.nodes, inputs=stage.inputs, outputs=stage.outputs)
    for node in walk.nodes(proto):
        kept = [a for a in node.attribute if a.name not in ("engine", "engine_file", "envelope")]
        if node.domain == TRTNODE_DOMAIN and len(kept) < len(node.attribute):
            del node.attribute[:]
            node.attribute.extend(kept)
    called = {op.op_identifier() for op in _with_bodies(stage.nodes) if is_trtnode(op)}  # extraction brings the others
    functions = graph.model.functions.items()
    proto.functions.extend(ir.serde.serialize_function(f) for key, f in functions if key in called)
    return proto


def _with_bodies(nodes: Sequence[Node]) -> Iterable[ir.Node]:
    return (op.op for node in nodes for op in (node, *body_nodes(node)))


def last_uses(stages: Sequence[Stage], outputs: frozenset[str]) -> list[tuple[str, ...]]:
    """Names of the values that nothing reads after each stage, outputs of the model left out."""
    last: dict[str, int] = {}
    for index, stage in enumerate(stages):
        for value in (*stage.inputs, *stage.outputs):
            last[value.name or ""] = index
    return [tuple(n for n, at in last.items() if at == index and n not in outputs) for index in range(len(stages))]


def specs(values: tuple[ir.Value, ...]) -> tuple[TensorSpec, ...]:
    """Describe values."""
    return tuple(TensorSpec.of(v) for v in values)


def _own_stage(node: Node) -> Stage:
    return Stage(
        name=node.name,
        nodes=(node,),
        is_engine=is_trtnode(node.op),
        is_flow=not is_trtnode(node.op),
        inputs=node.reads,
        outputs=tuple(v for v in node.op.outputs if v.name),
    )


def _native_stage(graph: Graph, name: str, indices: Sequence[int], *, own: Set[int]) -> Stage:
    nodes = [graph.nodes[index] for index in indices]
    ours = {v for index in own for v in graph.nodes[index].op.outputs}
    return Stage(
        name=name,
        nodes=tuple(nodes),
        is_engine=False,
        inputs=values_read(nodes),
        outputs=tuple(v for v in values_leaving(graph, nodes) if v in ours),
    )
