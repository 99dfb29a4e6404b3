"""Execution contexts: what one run at a time of a plan needs for itself. Several contexts run at the same time."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from engines.base import Engine
from engines.buffers import Lifetime, allocate
from engines.casts import typed, with_casts
from engines.control_flow import Run, run_flow
from engines.errors import InvalidInputError, OutOfRangeError
from engines.onnxruntime_backend import BoundSession, as_array, runs_as_array
from engines.pipeline import Pipeline
from engines.plan import Stage, last_uses, specs
from engines.results import ResultSlot
from engines.signature import Signature
from engines.stage_times import StageTime
from partitioner import TensorSpec


class Context(Protocol):
    """Runs a pipeline, one request at a time."""

    def run(self, feeds: Mapping[str, Any], times: list[StageTime] | None = None) -> dict[str, Any]:
        """Run on checked inputs. The results belong to the caller; ``times`` gets when each stage ran."""
        ...


def new_context(pipeline: Pipeline) -> Context:
    """The fastest context that fits: lanes of a GPU, else fixed buffers where every shape is known beforehand."""
    if pipeline.on_lanes is not None:
        return pipeline.on_lanes
    boundary = [s for stage in pipeline.stages for s in (*specs(stage.inputs), *specs(stage.outputs))]
    fixed = (
        s.static_shape
        for s in (*boundary, *pipeline.inputs, *pipeline.outputs)
        if s.name not in _only_constants(pipeline)
    )
    plain = not pipeline.flows and all(runs_as_array(s) for s in boundary)
    if plain and all(shape is not None and 0 not in shape for shape in fixed):
        return BoundContext(pipeline)
    return DynamicContext(pipeline)


KEPT_SLOTS = 4
"""Memory for results that a context keeps for later; a caller who holds more results than that gets new memory."""


HAND_OUT_BYTES = 16_384
"""Results from this size on are handed out without a copy; for smaller ones a copy costs less than keeping track."""


class BoundContext:
    """Every boundary tensor has a buffer of its own, bound once; a run copies inputs in, and small results out."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._handed_out = _final_outputs(pipeline)
        self._slots = [ResultSlot(self._handed_out)]
        self._slot = self._slots[0]
        handed_out = {s.name for s in self._handed_out}
        buffers = allocate({n: t for n, t in _lifetimes(pipeline).items() if n not in handed_out})
        self._inputs = [(s.name, buffers[s.name], pipeline.constants.get(s.name)) for s in pipeline.inputs]
        self._slot_used = bool(handed_out)
        others = [s.name for s in pipeline.outputs if s.name not in handed_out]
        self._copied = [(name, buffers[name]) for name in others if name in buffers]
        self._constants = {name: pipeline.constants[name] for name in others if name not in buffers}
        self._order = [s.name for s in pipeline.outputs]
        self._assembled = bool(self._constants) or bool(handed_out and self._copied)
        bound = {**buffers, **self._slot.buffers}
        self._stages = [_bound_stage(pipeline, stage, bound) for stage in pipeline.stages]
        self._runs = [stage.run for stage in self._stages]
        self._plan = pipeline.stages
        self._last = [s for s in self._stages if not handed_out.isdisjoint(s.outputs)]

    def run(self, feeds: Mapping[str, Any], times: list[StageTime] | None = None) -> dict[str, Any]:
        """Run on checked inputs."""
        if self._slot_used and not self._slot.is_free():
            self._change_slot()
        for name, buffer, default in self._inputs:
            array = feeds.get(name, default)
            if not buffer.ndim and array.ndim:
                raise OutOfRangeError("undeclared_shape", f"{name!r} is declared as a scalar; it is {array.shape}.")
            buffer[...] = array
        if times is None:
            for run in self._runs:
                run()
        else:
            for stage, run in zip(self._plan, self._runs, strict=True):
                began = time.perf_counter_ns()
                run()
                times.append(StageTime.since(began, stage))
        results = self._slot.hand_out() if self._slot_used else {n: b.copy() for n, b in self._copied}
        return self._assemble(results) if self._assembled else results

    def _assemble(self, results: dict[str, Any]) -> dict[str, Any]:
        """Add results of the other kinds, and put all in the model's order."""
        results.update((name, buffer.copy()) for name, buffer in self._copied)
        results.update((name, value.copy()) for name, value in self._constants.items())
        return {name: results[name] for name in self._order}

    def _change_slot(self) -> None:
        """Write the next results elsewhere: the caller still holds the last ones."""
        free = next((slot for slot in self._slots if slot.is_free()), None)
        self._slot = free or ResultSlot(self._handed_out)
        if free is None:
            self._slots = [*self._slots[1 - KEPT_SLOTS :], self._slot]
        for stage in self._last:
            stage.write_to(self._slot.buffers)


class _BoundEngine:
    """An engine stage with fixed buffers."""

    def __init__(self, engine: Engine, stage: Stage, buffers: Mapping[str, np.ndarray]) -> None:
        self.outputs = [s.name for s in specs(stage.outputs)]
        self.run = engine.run
        self._engine = engine
        self._inputs = [buffers[s.name] for s in specs(stage.inputs)]
        self._buffers = dict(buffers)
        self.write_to(buffers)

    def write_to(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Bind outputs to other buffers, where they are among these."""
        self._buffers.update(buffers)
        self._engine.bind(self._inputs, [self._buffers[name] for name in self.outputs])


class DynamicContext:
    """Boundary tensors are made as shapes become known, handed on without copies, and freed after their last use.

    Its steps don't refer to it: in a cycle, engines would outlive their model until Python looks for garbage.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        outputs = [s.name for s in pipeline.outputs]
        self._pipeline = pipeline
        self._outputs = outputs
        self._shared = {s.name for s in pipeline.inputs}.union(pipeline.constants)
        self._staging: dict[str, np.ndarray] = {}
        native = native_only_values(pipeline)
        self._steps = [
            (self._step(stage, native), freed)
            for stage, freed in zip(pipeline.stages, last_uses(pipeline.stages, frozenset(outputs)), strict=True)
        ]

    def run(self, feeds: Mapping[str, Any], times: list[StageTime] | None = None) -> dict[str, Any]:
        """Run on checked inputs."""
        values = {**self._pipeline.constants, **feeds}
        for stage, (step, freed) in zip(self._pipeline.stages, self._steps, strict=True):
            began = time.perf_counter_ns() if times is not None else 0
            step(values)
            if times is not None:
                times.append(StageTime.since(began, stage))
            for name in freed:
                values.pop(name, None)
        return {name: _owned(values[name], shared=name in self._shared) for name in self._outputs}

    def _step(self, stage: Stage, native: set[str]) -> Callable[[dict[str, Any]], None]:
        if stage.name in self._pipeline.flows:
            return self._flow_step(stage)
        return self._engine_step(stage) if stage.is_engine else self._native_step(stage, native)

    def _flow_step(self, stage: Stage) -> Callable[[dict[str, Any]], None]:
        flow = self._pipeline.flows[stage.name]
        runs = {name: _body_run(body.pipeline) for name, body in flow.bodies.items()}
        inputs = [s.name for s in specs(stage.inputs)]

        def step(values: dict[str, Any]) -> None:
            values.update(run_flow(flow, runs, {name: as_array(_plain(values[name])) for name in inputs}))

        return step

    def _engine_step(self, stage: Stage) -> Callable[[dict[str, Any]], None]:
        engine = _forked(self._pipeline, stage)
        names = (s.name for s in specs(stage.inputs))
        inputs = [(n, s.dtype.numpy()) for n, s in zip(names, engine.inputs, strict=True) if s.dtype is not None]
        outputs = [s.name for s in specs(stage.outputs)]
        staging = self._staging

        def step(values: dict[str, Any]) -> None:
            engine.bind([_staged(staging, n, dtype, as_array(_plain(values[n]))) for n, dtype in inputs], None)
            values.update(zip(outputs, (_View(v) for v in engine.run()), strict=True))

        return step

    def _native_step(self, stage: Stage, native: set[str]) -> Callable[[dict[str, Any]], None]:
        session = self._pipeline.sessions[stage.name]
        exotic = not native.isdisjoint(session.inputs) or not native.isdisjoint(session.outputs)

        def step(values: dict[str, Any]) -> None:
            feeds = {name: _plain(values[name]) for name in session.inputs if name in values}  # optionals may be absent
            results = session.run_objects(feeds) if exotic else session.run_tensors(feeds)
            values.update(zip(session.outputs, results, strict=True))

        return step


def _staged(staging: dict[str, np.ndarray], name: str, dtype: np.dtype, array: np.ndarray) -> np.ndarray:
    """Copy an engine's input to memory that stays bound while its shape stays the same."""
    if array.size == 0:
        raise OutOfRangeError("empty_tensor", f"{name!r} has no elements; engines need at least one.")
    buffer = staging.get(name)
    if buffer is None or buffer.shape != array.shape:
        buffer = staging[name] = np.empty(array.shape, dtype)
    np.copyto(buffer, array)
    return buffer


def _body_run(body: Pipeline) -> Run:
    """Runs of a body. What loops carry may change its shape, so it is checked like a request."""
    context, signature = new_context(body), Signature(body.inputs, body.outputs)

    def run(feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        try:
            results = context.run(signature.check(feeds, None))
        except InvalidInputError as error:
            raise OutOfRangeError("undeclared_shape", str(error)) from error
        return [results[s.name] for s in body.outputs]

    return run


@dataclasses.dataclass(frozen=True, slots=True)
class _View:
    """Memory that belongs to an engine and changes with its next run."""

    array: np.ndarray


def native_only_values(pipeline: Pipeline) -> set[str]:
    """Values that only ONNX Runtime's slow path takes: strings, sequences, optionals and maps from or to the caller.

    Such a value comes as a Python object from the caller, so every native stage that reads it must use that path, and
    then whatever else of this kind that stage produces is a Python object too.
    """
    exotic = {s.name for s in (*pipeline.inputs, *pipeline.outputs) if not runs_as_array(s)}
    for stage in pipeline.stages:
        names = {v.name or "" for v in (*stage.inputs, *stage.outputs)}
        if not stage.is_engine and names & exotic:
            exotic |= {s.name for s in specs(stage.outputs) if not runs_as_array(s)}
    return exotic


def _bound_stage(pipeline: Pipeline, stage: Stage, buffers: Mapping[str, np.ndarray]) -> _BoundEngine | BoundSession:
    if stage.is_engine:
        return _BoundEngine(_forked(pipeline, stage), stage, buffers)
    return pipeline.sessions[stage.name].bind(buffers)


def _forked(pipeline: Pipeline, stage: Stage) -> Engine:
    return with_casts(pipeline.engines[stage.name].fork(), stage, pipeline.carried)


def _final_outputs(pipeline: Pipeline) -> list[TensorSpec]:
    """Large outputs that some stage computes and that no stage reads."""
    computed = {v.name for stage in pipeline.stages for v in stage.outputs}
    read = {v.name for stage in pipeline.stages for v in stage.inputs}
    return [s for s in pipeline.outputs if s.name in computed - read and s.size_bytes >= HAND_OUT_BYTES]


def _lifetimes(pipeline: Pipeline) -> dict[str, Lifetime]:
    """When each boundary tensor is alive: from the stage that writes it to the last that reads it."""
    first: dict[str, int] = {s.name: -1 for s in pipeline.inputs if s.name not in _only_constants(pipeline)}
    last: dict[str, int] = dict(first)
    tensors = {s.name: s for s in pipeline.inputs}
    for index, stage in enumerate(pipeline.stages):
        for spec in specs(stage.outputs):
            first[spec.name] = index
        for spec in typed(specs((*stage.inputs, *stage.outputs)), pipeline.carried):
            last[spec.name] = index
            tensors[spec.name] = spec
    last.update({s.name: len(pipeline.stages) for s in pipeline.outputs if s.name in first})
    return {name: Lifetime.of(tensors[name], first=first[name], last=last[name]) for name in first}


def _only_constants(pipeline: Pipeline) -> set[str]:
    """Outputs of the model that are constants."""
    produced = {s.name for s in pipeline.inputs}
    produced.update(v.name or "" for stage in pipeline.stages for v in stage.outputs)
    return {s.name for s in pipeline.outputs} - produced


def _plain(value: Any) -> Any:
    return value.array if isinstance(value, _View) else value


def _owned(value: Any, *, shared: bool) -> Any:
    """A result that belongs to the caller alone: no engine writes to it again, and no other run reads it."""
    if isinstance(value, _View):
        return value.array.copy()
    if hasattr(value, "data_ptr"):
        return value.numpy()
    return copy.deepcopy(value) if shared else value
