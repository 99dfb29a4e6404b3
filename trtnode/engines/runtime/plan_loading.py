"""Loads the stages of a plan: sessions for the native ones, and evaluators for those in onnx.reference."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from trtnode.engines.backends.protocols import Engine
from trtnode.engines.inputs.signature import Signature
from trtnode.engines.onnxruntime.compatibility import open_native
from trtnode.engines.onnxruntime.memory_limit import limit_bytes
from trtnode.engines.onnxruntime.subgraph_weights import move_weights_inside
from trtnode.engines.runtime.gpu_plan import open_gpu_plan
from trtnode.engines.runtime.plan import LoadedPlan, PlanStage, native_stage_model, plan_stages
from trtnode.engines.runtime.reference_nodes import LastResort
from trtnode.partitioner.compiled.trtnode import replaced_nodes
from trtnode.partitioner.graph.view import Graph, specs
from trtnode.partitioner.model.default_values import held_defaults
from trtnode.partitioner.passes.result_sizes import ResultSizes


def load_plan(
    graph: Graph,
    signature: Signature,
    engines: Mapping[str, Engine],
    *,
    threads: int | None = None,
    memory_pattern: bool = True,
    resort: LastResort | None = None,
) -> LoadedPlan:
    """Plan the stages of a model and load them.

    Args:
        graph: The model; TrtNodes without an engine run natively.
        signature: Of the model.
        engines: By name of the TrtNode.
        threads: Threads of each session; None leaves it to the library.
        memory_pattern: As of ``NativeSession``.
        resort: The nodes that run in onnx.reference; None runs none there.

    Raises:
        ModelLoadError: ONNX Runtime refuses a native stage.
        EngineError: onnx.reference refuses a node, or a GPU lacks memory.
    """
    stages = plan_stages(graph, {n.name: n.name in engines for n in graph.nodes}, resort.nodes if resort else ())
    models = {s.name: native_stage_model(graph, s) for s in stages if not s.is_engine}
    referred = {s.name for s in stages if s.in_reference}
    native = {name: model for name, model in models.items() if name not in referred}
    for model in native.values():
        move_weights_inside(model)
    open_stage = functools.partial(open_native, threads=threads, memory_pattern=memory_pattern)
    held = _arrays(held_defaults(graph.model.graph))
    plan = LoadedPlan(
        stages=tuple(stages),
        engines=engines,
        sessions={name: open_stage(model, name=name) for name, model in native.items()},
        evaluators={name: resort.open(models[name]) for name in referred} if resort else {},
        inputs=tuple(spec for spec in signature.inputs if spec.name not in held),
        outputs=signature.outputs,
        constants=interface_constants(graph),
        held_defaults=held,
        sizes=dict(_result_sizes(graph, stages)),
    )
    if not all(hasattr(engine, "on_stream") for engine in engines.values()):
        return plan  # what a GPU needs isn't imported for engines of the processor
    return dataclasses.replace(plan, gpu_programs=open_gpu_plan(plan, native))


def _result_sizes(graph: Graph, stages: Iterable[PlanStage]) -> Iterator[tuple[str, ResultSizes]]:
    """Yield the results of each engine that a request's shapes decide about, where memory has a limit."""
    limit = limit_bytes()
    for stage in stages if limit is not None else ():
        call = stage.nodes[0].op
        function = replaced_nodes(graph.model, call) if stage.is_engine else None
        if limit is not None and function is not None and any(s.static_shape is None for s in specs(stage.inputs)):
            yield stage.name, ResultSizes(call, function, limit)


def signature_of(graph: Graph) -> Signature:
    """Return the signature of a model. Before IR version 4, initializers are listed as inputs, and are none."""
    inputs = graph.inputs if graph.model.ir_version >= 4 else tuple(v for v in graph.inputs if not v.is_initializer())
    return Signature(specs(inputs), specs(graph.outputs))


def interface_constants(graph: Graph) -> dict[str, np.ndarray]:
    """Return the values of outputs, and the defaults of inputs, that are initializers."""
    return _arrays(v for v in (*graph.inputs, *graph.outputs) if v.is_initializer())


def _arrays(values: Iterable[ir.Value]) -> dict[str, np.ndarray]:
    return {v.name or "": v.const_value.numpy() for v in values if v.const_value is not None}
