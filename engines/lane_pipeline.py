"""Puts the stages of a compiled model on lanes: its engines, and ONNX Runtime for what is between them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from engines.errors import ModelLoadError
from engines.lane_programs import Interface, LanePrograms, MakeStage
from engines.lanes import Lane, LaneEngine, LaneStage
from engines.native_on_lane import NativeOnGpu, NativeOnHost
from engines.onnxruntime_backend import has_cuda, runs_as_array
from engines.pipeline import Pipeline
from engines.plan import Stage, specs
from partitioner import TensorSpec

logger = logging.getLogger(__name__)


def open_on_lanes(pipeline: Pipeline, native: Mapping[str, onnx.ModelProto]) -> LanePrograms | None:
    """Make a pipeline ready to run on a GPU's lanes.

    Args:
        pipeline: The model.
        native: Its native stages as models, by stage name, for sessions on the GPU.

    Returns:
        None where that is not possible: an engine of it computes on the host, it has control flow with engines in
        its bodies, something else than arrays crosses between its stages, or two engines hold a tensor in two types.

    Raises:
        ExecutionError: The GPU's memory is full, or a library failed.
    """
    engines = [engine for engine in pipeline.engines.values() if isinstance(engine, LaneEngine)]
    boundary = [s for stage in pipeline.stages for s in (*specs(stage.inputs), *specs(stage.outputs))]
    whole = [*boundary, *pipeline.inputs, *pipeline.outputs]
    if not engines or len(engines) < len(pipeline.engines) or pipeline.flows or not all(map(runs_as_array, whole)):
        return None
    held = _held(pipeline)
    if any(len(types) > 1 for types in held.values()):
        return None
    declared = {s.name: s.dtype.numpy() for s in whole if s.dtype is not None}
    narrowed = {name: dtype for name, types in held.items() for dtype in types if dtype != declared[name]}
    interface = Interface(
        stages=tuple((stage.name, stage.is_engine) for stage in pipeline.stages),
        inputs=tuple(s.name for s in pipeline.inputs),
        outputs=tuple(s.name for s in pipeline.outputs),
        constants=pipeline.constants,
        declared=declared,
        narrowed=narrowed,
    )
    makers = [
        _engine_maker(pipeline, stage) if stage.is_engine else _native_maker(pipeline, stage, native, narrowed)
        for stage in pipeline.stages
    ]
    return LanePrograms(engines[0].lanes, makers, interface)


def _engine_maker(pipeline: Pipeline, stage: Stage) -> MakeStage:
    engine = pipeline.engines[stage.name]
    assert isinstance(engine, LaneEngine)
    return functools.partial(engine.on_lane, inputs=_names(specs(stage.inputs)), outputs=_names(specs(stage.outputs)))


def _native_maker(
    pipeline: Pipeline, stage: Stage, native: Mapping[str, onnx.ModelProto], narrowed: Mapping[str, np.dtype]
) -> MakeStage:
    """On the GPU where this ONNX Runtime computes there, else on the host."""
    if not has_cuda():
        return lambda _: NativeOnHost(pipeline.sessions[stage.name])

    def make(lane: Lane) -> LaneStage:
        try:
            return NativeOnGpu(lane, native[stage.name], stage, narrowed)
        except ModelLoadError as error:
            logger.warning("%s runs on the CPU, between copies: %s", stage.name, error)
            return NativeOnHost(pipeline.sessions[stage.name])

    return make


def _held(pipeline: Pipeline) -> dict[str, set[np.dtype]]:
    """Types in which engines hold tensors in the GPU's memory, by the model's names."""
    held: dict[str, set[np.dtype]] = {}
    for stage in pipeline.stages:
        engine = pipeline.engines.get(stage.name)
        if isinstance(engine, LaneEngine):
            names = _names(specs((*stage.inputs, *stage.outputs)))
            for name, spec in zip(names, (*engine.inputs, *engine.outputs), strict=True):
                if spec.dtype is not None:
                    held.setdefault(name, set()).add(engine.narrowed.get(spec.name, spec.dtype.numpy()))
    return held


def _names(tensors: Sequence[TensorSpec]) -> tuple[str, ...]:
    return tuple(spec.name for spec in tensors)
