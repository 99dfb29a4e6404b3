"""Times the layers of a compiled model, stage by stage. A process of its own runs it, and serves no requests.

Timing slows calls of OpenVINO down, and keeps TensorRT from using CUDA graphs. So engines are loaded for it once more,
and each stage runs alone on its inputs inside the model.
"""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.backends.layer_times import LayerTime
from trtnode.engines.backends.stage_times import StageTime
from trtnode.engines.errors import ExecutionError
from trtnode.engines.onnxruntime.layer_times import time_nodes
from trtnode.engines.runtime.buffers import input_buffer
from trtnode.engines.runtime.engine_loading import open_engine
from trtnode.engines.runtime.executor import open_executable
from trtnode.engines.runtime.options import RunOptions
from trtnode.engines.runtime.plan import PlanStage, native_stage_model, plan_stages
from trtnode.engines.runtime.plan_loading import interface_constants
from trtnode.partitioner.compiled.trtnode import view_with_engines
from trtnode.partitioner.graph.view import Graph, specs
from trtnode.partitioner.model.loading import load_model

RUNS = 11
"""Runs of each stage. A layer's time is the median of all but the first ones."""

WARM_UP = 3

NATIVE = "native"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StageLayers:
    """The layers of one stage.

    Attributes:
        stage: Its name.
        engine: Name and version of the library that runs it as an engine; ``native`` where ONNX Runtime runs it.
        layers: In order, with median times.
        stage_us: Microseconds of the whole stage, without the cost of timing its layers; None where the whole model
            runs natively, as one stage.
    """

    stage: str
    engine: str
    layers: tuple[LayerTime, ...]
    stage_us: float | None


def profile_layers(model: pathlib.Path, feeds: Mapping[str, np.ndarray], threads: int | None) -> list[StageLayers]:
    """Run each stage of a model on its inputs inside the model, and time its layers.

    Args:
        model: Compiled a moment ago, or a source, which is one native stage. Control flow is timed as a whole.
        feeds: An array for each input.
        threads: Threads of each engine and session; None leaves it to the libraries.

    Raises:
        PartitionError: The file is no model.
        EngineError: A stage does not run on these feeds, or its library tells no times of layers.
    """
    graph = view_with_engines(load_model(model))
    totals = _stage_totals(model, feeds, threads)
    values: dict[str, Any] = {**interface_constants(graph), **feeds}
    timed = []
    with TemporaryFolder() as folder:
        for stage in plan_stages(graph, dict.fromkeys(graph.names, True)):
            if stage.is_engine:
                engine, results, runs = _run_engine(graph, stage, values, model.parent, threads)
            else:
                part, engine = native_stage_model(graph, stage), NATIVE
                results, runs = time_nodes(part, values, RUNS, threads=threads, folder=folder)
            values.update(results)
            layers = _medians(runs[WARM_UP:])
            timed.append(StageLayers(stage=stage.name, engine=engine, layers=layers, stage_us=totals.get(stage.name)))
    return timed


def _stage_totals(model: pathlib.Path, feeds: Mapping[str, np.ndarray], threads: int | None) -> dict[str, float]:
    """Return the median time of each stage in us, in runs that don't time layers."""
    executable = open_executable(
        load_model(model), model, folder=model.parent, run=RunOptions(threads=threads, shares_cores=True)
    )
    times: list[StageTime] = []
    for run in range(RUNS):
        if run == WARM_UP:
            times.clear()
        executable.run(feeds, times=times)
    executable.close()
    by_stage: dict[str, list[float]] = {}
    for time in times:
        by_stage.setdefault(time.name, []).append((time.ended_ns - time.began_ns) / 1e3)
    return {name: statistics.median(us) for name, us in by_stage.items()}


def _run_engine(
    graph: Graph, stage: PlanStage, values: Mapping[str, np.ndarray], folder: pathlib.Path, threads: int | None
) -> tuple[str, dict[str, np.ndarray], list[list[LayerTime]]]:
    """Return the name of the library, the outputs, and the layers of each run."""
    envelope, engine = open_engine(
        graph, stage.nodes[0], folder, RunOptions(threads=threads, shares_cores=True), profiled=True
    )
    library = f"{envelope.backend} {envelope.backend_version}"
    engine.bind([input_buffer(values, spec) for spec in engine.inputs], None)
    runs: list[list[LayerTime]] = []
    for _ in range(RUNS):
        results = [np.array(value) for value in engine.run()]
        runs.append(list(engine.layer_times()))
    if not any(runs):
        raise ExecutionError(f"{stage.name}: {library} tells no times of layers. Leave out --layers.")
    return library, dict(zip((spec.name for spec in specs(stage.outputs)), results, strict=True)), runs


def _medians(runs: Iterable[Sequence[LayerTime]]) -> tuple[LayerTime, ...]:
    """Return each layer with its median time; times of a layer within a run are added."""
    layers: dict[str, LayerTime] = {}
    times: dict[str, list[float]] = {}
    for run in runs:
        sums: dict[str, float] = {}
        for layer in run:
            layers.setdefault(layer.name, layer)
            sums[layer.name] = sums.get(layer.name, 0.0) + layer.us
        for name, us in sums.items():
            times.setdefault(name, []).append(us)
    return tuple(dataclasses.replace(layer, us=statistics.median(times[name])) for name, layer in layers.items())
