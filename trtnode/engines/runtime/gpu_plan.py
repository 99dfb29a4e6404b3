"""Prepares a loaded plan for a GPU's execution streams: its engines, and ONNX Runtime between them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from trtnode.engines.cuda.programs import GpuPrograms, Interface, MakeStage
from trtnode.engines.cuda.streams import ExecutionStream, GpuEngine, GpuStage
from trtnode.engines.errors import ModelLoadError
from trtnode.engines.onnxruntime.cuda_session import has_cuda
from trtnode.engines.onnxruntime.session import runs_as_array
from trtnode.engines.runtime.gpu_native_stages import NativeOnGpu, NativeOnHost
from trtnode.engines.runtime.plan import LoadedPlan, PlanStage
from trtnode.partitioner.graph.view import TensorSpec, specs

logger = logging.getLogger(__name__)


def open_gpu_plan(plan: LoadedPlan, native: Mapping[str, onnx.ModelProto]) -> GpuPrograms | None:
    """Prepare a plan for a GPU's execution streams.

    Args:
        plan: All but its ``gpu_programs``.
        native: Its native stages as models, by stage name, for sessions on the GPU.

    Returns:
        None where that is not possible: an engine of it or onnx.reference computes on the host, something else than
        arrays crosses between its stages, or two engines hold a tensor in two types.

    Raises:
        ExecutionError: The GPU's memory is full, or a library failed.
    """
    engines = [engine for engine in plan.engines.values() if isinstance(engine, GpuEngine)]
    boundary = [s for stage in plan.stages for s in (*specs(stage.inputs), *specs(stage.outputs))]
    whole = [*boundary, *plan.inputs, *plan.outputs]
    on_host = bool(plan.evaluators) or len(engines) < len(plan.engines)
    if not engines or on_host or not all(map(runs_as_array, whole)):
        return None
    held = _held(plan)
    if any(len(types) > 1 for types in held.values()):
        return None
    declared = {s.name: s.dtype.numpy() for s in whole if s.dtype is not None}
    narrowed = {name: dtype for name, types in held.items() for dtype in types if dtype != declared[name]}
    interface = Interface(
        stages=tuple((stage.name, stage.is_engine) for stage in plan.stages),
        inputs=tuple(s.name for s in plan.inputs),
        outputs=tuple(s.name for s in plan.outputs),
        constants=plan.constants,
        declared=declared,
        narrowed=narrowed,
    )
    makers = [
        _engine_maker(plan, stage) if stage.is_engine else _native_maker(plan, stage, native, narrowed)
        for stage in plan.stages
    ]
    return GpuPrograms(engines[0].streams, makers, interface)


def _engine_maker(plan: LoadedPlan, stage: PlanStage) -> MakeStage:
    engine = plan.engines[stage.name]
    assert isinstance(engine, GpuEngine)
    return functools.partial(engine.on_stream, inputs=_names(specs(stage.inputs)), outputs=_names(specs(stage.outputs)))


def _native_maker(
    plan: LoadedPlan, stage: PlanStage, native: Mapping[str, onnx.ModelProto], narrowed: Mapping[str, np.dtype]
) -> MakeStage:
    """Make a native stage on the GPU if this ONNX Runtime computes there, else on the host."""
    if not has_cuda():
        return lambda _: NativeOnHost(plan.sessions[stage.name])

    def make(stream: ExecutionStream) -> GpuStage:
        try:
            return NativeOnGpu(stream, native[stage.name], stage, narrowed)
        except ModelLoadError as error:
            logger.warning("%s runs on the CPU, between copies: %s", stage.name, error)
            return NativeOnHost(plan.sessions[stage.name])

    return make


def _held(plan: LoadedPlan) -> dict[str, set[np.dtype]]:
    """Return the types in which engines hold tensors in the GPU's memory, by the model's names."""
    held: dict[str, set[np.dtype]] = {}
    for stage in plan.stages:
        engine = plan.engines.get(stage.name)
        if isinstance(engine, GpuEngine):
            names = _names(specs((*stage.inputs, *stage.outputs)))
            for name, spec in zip(names, (*engine.inputs, *engine.outputs), strict=True):
                if spec.dtype is not None:
                    held.setdefault(name, set()).add(engine.narrowed.get(spec.name, spec.dtype.numpy()))
    return held


def _names(tensors: Sequence[TensorSpec]) -> tuple[str, ...]:
    return tuple(spec.name for spec in tensors)
