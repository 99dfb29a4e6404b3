"""Plans the execution of a model: stages in order, engines and native parts in turn.

A node that nothing else has a kernel for is a stage of its own, which onnx.reference runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from trtnode.engines.backends.protocols import Engine
from trtnode.engines.backends.reference import Evaluator
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.partitioner.compiled.trtnode import is_trtnode
from trtnode.partitioner.cut.levels import earliest_levels
from trtnode.partitioner.cut.segments import values_leaving, values_read
from trtnode.partitioner.graph.extraction import extract_model
from trtnode.partitioner.graph.view import TRTNODE_DOMAIN, Graph, Node, TensorSpec, subgraph_nodes
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.mapped_weights import ENGINE_PARTS, engine_part
from trtnode.partitioner.passes.result_sizes import ResultSizes

if TYPE_CHECKING:
    from trtnode.engines.cuda.programs import GpuPrograms


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanStage:
    """A part of a model that one call of one library runs.

    Attributes:
        name: The node's name, or ``native_<level>``.
        nodes: The nodes of a native stage, or the one node of another.
        is_engine: True if an engine runs it.
        inputs: Run-time values that it reads, in binding order.
        outputs: Values that later stages or the caller read, in binding order.
        in_reference: True if onnx.reference runs it.
    """

    name: str
    nodes: tuple[Node, ...]
    is_engine: bool
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    in_reference: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPlan:
    """An execution plan whose stages are loaded.

    Attributes:
        stages: In order.
        engines: The engine of each engine stage, by stage name.
        sessions: The session of each native stage, by stage name.
        evaluators: What runs each stage in onnx.reference, by stage name.
        inputs: Of the model, without those whose defaults are constants in the engines.
        outputs: Of the model.
        constants: Values of outputs that no stage computes, and defaults of inputs.
        held_defaults: Defaults that are constants in the engines, by name of the model's input.
        sizes: Results of each engine whose inputs have no fixed shape, by stage name; none where memory has no limit.
        gpu_programs: The whole of it on a GPU's streams; None where its stages are handed arrays of the host.
    """

    stages: tuple[PlanStage, ...]
    engines: Mapping[str, Engine]
    sessions: Mapping[str, NativeSession]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    constants: Mapping[str, np.ndarray]
    held_defaults: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    evaluators: Mapping[str, Evaluator] = dataclasses.field(default_factory=dict)
    sizes: Mapping[str, ResultSizes] = dataclasses.field(default_factory=dict)
    gpu_programs: GpuPrograms | None = None


def plan_stages(graph: Graph, usable: Mapping[str, bool], reference: Collection[str] = ()) -> list[PlanStage]:
    """Order a graph into stages: native 0, engines of level 1, native 1, engines of level 2, and so on.

    Nodes that run in onnx.reference are ordered as engines are.

    Args:
        graph: A model. TrtNodes without a usable engine run natively, as functions.
        usable: True for each TrtNode whose engine can be used, by node identity.
        reference: Results of the nodes that run in onnx.reference.

    Returns:
        Stages of all nodes, each after the stages that it reads from.
    """
    in_reference = [first_result(node) in reference for node in graph.nodes]
    apart = [
        referred or (is_trtnode(node.op) and usable[node.name])
        for node, referred in zip(graph.nodes, in_reference, strict=True)
    ]
    levels = earliest_levels(graph.topology, apart)
    constant = [c and not one for c, one in zip(graph.constant, apart, strict=True)]
    handed_on = _handed_on(graph, apart)
    stages_apart: dict[int, list[PlanStage]] = {}
    native: dict[int, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        if apart[index]:
            stages_apart.setdefault(levels[index], []).append(_stage_apart(node, in_reference=in_reference[index]))
        elif not constant[index] or index in handed_on:
            native.setdefault(levels[index], []).append(index)
    stages: list[PlanStage] = []
    for level in range(max(levels, default=0) + 1):
        stages.extend(stages_apart.get(level, ()))
        if level in native:
            whole = _with_constants(graph, native[level], constant)
            stages.append(_native_stage(graph, f"native_{level}", whole, own=set(native[level])))
    return stages


def first_result(node: Node) -> str:
    """Return the name of the first result of a node, by which files tell nodes that run in onnx.reference."""
    return next((v.name for v in node.op.outputs if v.name), "")


def _handed_on(graph: Graph, apart: Sequence[bool]) -> set[int]:
    """Return the nodes whose results a stage that isn't native, or the caller, reads."""
    reads = (p for index, one in enumerate(apart) if one for p in graph.topology.predecessors[index])
    return {*reads, *graph.topology.producers[graph.topology.leaving].tolist()}


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
    """Return a stage without an engine as a standalone model, whose TrtNodes have their functions and no engines."""
    proto = extract_model(graph, stage.nodes, inputs=stage.inputs, outputs=stage.outputs)
    for node in protobuf_walk.nodes(proto):
        kept = [a for a in node.attribute if engine_part(a.name)[0] not in ENGINE_PARTS]
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


def _stage_apart(node: Node, *, in_reference: bool) -> PlanStage:
    return PlanStage(
        name=node.name,
        nodes=(node,),
        is_engine=not in_reference,
        inputs=node.reads,
        outputs=tuple(v for v in node.op.outputs if v.name),
        in_reference=in_reference,
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
