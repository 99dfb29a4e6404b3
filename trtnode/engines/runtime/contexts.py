"""Execution contexts of a plan: the state of one run at a time. Several contexts run at the same time."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from trtnode.engines.artifact.envelope import InputAxis
from trtnode.engines.backends.protocols import Engine
from trtnode.engines.backends.stage_times import StageTime
from trtnode.engines.errors import EMPTY_TENSOR, LARGE_RESULT, LastResortError, OutOfRangeError
from trtnode.engines.inputs.signature import is_defined
from trtnode.engines.onnxruntime.session import BoundSession, as_array, is_tensor, runs_as_array
from trtnode.engines.runtime.buffers import Lifetime, ResultSlot, allocate
from trtnode.engines.runtime.plan import LoadedPlan, PlanStage, last_uses
from trtnode.partitioner.graph.view import TensorSpec, describe, specs
from trtnode.partitioner.passes.result_sizes import ResultSizes


class Context(Protocol):
    """Runs a plan, one request at a time."""

    def run(self, feeds: Mapping[str, Any], times: list[StageTime] | None = None) -> dict[str, Any]:
        """Run on checked inputs. The results belong to the caller; ``times`` receives the time of each stage."""
        ...


def run_keeping(
    context: Context, feeds: Mapping[str, Any], times: list[StageTime] | None, kept: Collection[str]
) -> dict[str, Any]:
    """Run as a context does on inputs that may be tensors of ONNX Runtime; results that are kept may be such, too."""
    if isinstance(context, DynamicContext):
        return context.run(feeds, times, kept)
    return context.run({name: as_array(value) for name, value in feeds.items()}, times)


def new_context(plan: LoadedPlan) -> Context:
    """Return the fastest context that fits: on a GPU, else with fixed buffers where every shape is known.

    One engine that reads large inputs where they lie needs no buffers.
    """
    if plan.gpu_programs is not None:
        return plan.gpu_programs
    boundary = [s for stage in plan.stages for s in (*specs(stage.inputs), *specs(stage.outputs))]
    fixed = (s.static_shape for s in (*boundary, *plan.inputs, *plan.outputs) if s.name not in _only_constants(plan))
    plain = all(runs_as_array(s) for s in boundary)
    if not plain or plan.evaluators or not all(shape is not None and 0 not in shape for shape in fixed):
        return DynamicContext(plan)
    return DynamicContext(plan) if _saves_copies(plan) else BoundContext(plan)


IN_PLACE_BYTES = 262_144
"""Inputs from this size on are read where they lie, if the engine can; binding memory saves more for smaller ones."""


def _saves_copies(plan: LoadedPlan) -> bool:
    """Return whether the plan is one engine that can read large inputs where they lie."""
    engines = [plan.engines.get(stage.name) for stage in plan.stages]
    sizes = (math.prod(s.static_shape or ()) * s.dtype.itemsize for s in plan.inputs if s.dtype is not None)
    return len(engines) == 1 and engines[0] is not None and engines[0].reads_in_place and sum(sizes) >= IN_PLACE_BYTES


KEPT_SLOTS = 4
"""Number of result slots that a context keeps. A caller who holds more results gets new memory."""


HAND_OUT_BYTES = 16_384
"""Results from this size on are handed out without a copy; for smaller ones, a copy costs less than a slot."""


class BoundContext:
    """A context whose boundary tensors have buffers that are bound once. A run copies inputs, and small results."""

    def __init__(self, plan: LoadedPlan) -> None:
        self._handed_out = _final_outputs(plan)
        self._slots = [ResultSlot(self._handed_out)]
        self._slot = self._slots[0]
        handed_out = {s.name for s in self._handed_out}
        buffers = allocate({n: t for n, t in _lifetimes(plan).items() if n not in handed_out})
        self._inputs = [(s.name, buffers[s.name], plan.constants.get(s.name)) for s in plan.inputs]
        self._slot_used = bool(handed_out)
        others = [s.name for s in plan.outputs if s.name not in handed_out]
        self._copied = [(name, buffers[name]) for name in others if name in buffers]
        self._constants = {name: plan.constants[name] for name in others if name not in buffers}
        self._order = [s.name for s in plan.outputs]
        self._assembled = bool(self._constants) or bool(handed_out and self._copied)
        bound = {**buffers, **self._slot.buffers}
        self._stages = [_bound_stage(plan, stage, bound) for stage in plan.stages]
        self._runs = [stage.run for stage in self._stages]
        self._timed = plan.stages
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
            for stage, run in zip(self._timed, self._runs, strict=True):
                began = time.perf_counter_ns()
                run()
                times.append(StageTime.since(began, stage.name, is_engine=stage.is_engine))
        results = self._slot.hand_out() if self._slot_used else {n: b.copy() for n, b in self._copied}
        return self._assemble(results) if self._assembled else results

    def _assemble(self, results: dict[str, Any]) -> dict[str, Any]:
        """Add small results and constants, and put all in the model's order."""
        results.update((name, buffer.copy()) for name, buffer in self._copied)
        results.update((name, value.copy()) for name, value in self._constants.items())
        return {name: results[name] for name in self._order}

    def _change_slot(self) -> None:
        """Bind other memory for results: the caller still holds the last ones."""
        free = next((slot for slot in self._slots if slot.is_free()), None)
        self._slot = free or ResultSlot(self._handed_out)
        if free is None:
            self._slots = [*self._slots[1 - KEPT_SLOTS :], self._slot]
        for stage in self._last:
            stage.write_to(self._slot.buffers)


class _BoundEngine:
    """An engine stage with fixed buffers."""

    def __init__(self, engine: Engine, stage: PlanStage, buffers: Mapping[str, np.ndarray]) -> None:
        self.outputs = [s.name for s in specs(stage.outputs)]
        self.run = engine.run
        self._engine = engine
        self._inputs = [buffers[s.name] for s in specs(stage.inputs)]
        self._buffers = dict(buffers)
        self.write_to(buffers)

    def write_to(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Bind outputs to these buffers; others stay bound."""
        self._buffers.update(buffers)
        self._engine.bind(self._inputs, [self._buffers[name] for name in self.outputs])


class DynamicContext:
    """A context whose boundary tensors are made as shapes become known, and freed after their last use.

    Its steps don't refer to it: in a cycle, engines would outlive their model until Python looks for garbage.
    """

    def __init__(self, plan: LoadedPlan) -> None:
        outputs = [s.name for s in plan.outputs]
        self._plan = plan
        self._outputs = outputs
        self._shared = {s.name for s in plan.inputs}.union(plan.constants)
        self._staging: dict[str, np.ndarray] = {}
        native = native_only_values(plan)
        self._steps = [
            (self._step(stage, native), freed)
            for stage, freed in zip(plan.stages, last_uses(plan.stages, frozenset(outputs)), strict=True)
        ]

    def run(
        self, feeds: Mapping[str, Any], times: list[StageTime] | None = None, kept: Collection[str] = ()
    ) -> dict[str, Any]:
        """Run on checked inputs; outputs that are kept stay as the stage that made them left them, if they can."""
        values = {**self._plan.constants, **feeds}
        for stage, (step, freed) in zip(self._plan.stages, self._steps, strict=True):
            began = time.perf_counter_ns() if times is not None else 0
            step(values)
            if times is not None:
                times.append(StageTime.since(began, stage.name, is_engine=stage.is_engine))
            for name in freed:
                values.pop(name, None)
        return {
            name: values[name]
            if name in kept and is_tensor(values[name])
            else _owned(values[name], shared=name in self._shared)
            for name in self._outputs
        }

    def _step(self, stage: PlanStage, native: set[str]) -> Callable[[dict[str, Any]], None]:
        if stage.in_reference:
            return self._reference_step(stage)
        return self._engine_step(stage) if stage.is_engine else self._native_step(stage, native)

    def _engine_step(self, stage: PlanStage) -> Callable[[dict[str, Any]], None]:
        engine = self._plan.engines[stage.name].fork()
        names = (s.name for s in specs(stage.inputs))
        inputs = [(n, s.dtype.numpy()) for n, s in zip(names, engine.inputs, strict=True) if s.dtype is not None]
        outputs = [s.name for s in specs(stage.outputs)]
        known, equal = self._plan.engines[stage.name].empty_places, equal_places(specs(stage.inputs))
        check = functools.partial(_check_sizes, inputs, known, equal, self._plan.sizes.get(stage.name))
        if engine.reads_in_place:
            return _in_place_step(engine, inputs, outputs, check)
        staging = self._staging

        def step(values: dict[str, Any]) -> None:
            arrays = [as_array(_plain(values[n])) for n, _ in inputs]
            check(arrays)
            buffers = [_staged(staging, *one, array) for one, array in zip(inputs, arrays, strict=True)]
            engine.bind(buffers, None)
            values.update(zip(outputs, (_View(v) for v in engine.run()), strict=True))

        return step

    def _reference_step(self, stage: PlanStage) -> Callable[[dict[str, Any]], None]:
        evaluate = self._plan.evaluators[stage.name]
        inputs, outputs = [s.name for s in specs(stage.inputs)], [s.name for s in specs(stage.outputs)]

        def step(values: dict[str, Any]) -> None:
            results = evaluate({name: _as_object(_plain(values[name])) for name in inputs if name in values})
            arrays = [np.asarray(r) if isinstance(r, np.generic) else r for r in results]
            for spec, array in zip(specs(stage.outputs), arrays, strict=True):
                if isinstance(array, np.ndarray) and not is_defined(spec, array):
                    given = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
                    problem = f"onnx.reference gives {given} for {spec.name!r}, which is {describe(spec)} by definition"
                    raise LastResortError(f"{stage.name}: {problem}. Compute this node before or behind the model.")
            values.update(zip(outputs, arrays, strict=True))

        return step

    def _native_step(self, stage: PlanStage, native: set[str]) -> Callable[[dict[str, Any]], None]:
        session = self._plan.sessions[stage.name]
        exotic = not native.isdisjoint(session.inputs) or not native.isdisjoint(session.outputs)

        def step(values: dict[str, Any]) -> None:
            feeds = {name: _plain(values[name]) for name in session.inputs if name in values}  # optionals may be absent
            results = session.run_objects(feeds) if exotic else session.run_tensors(feeds)
            values.update(zip(session.outputs, results, strict=True))

        return step


def equal_places(inputs: Sequence[TensorSpec]) -> list[tuple[int, int, int, int]]:
    """Return the axes of inputs that the model gives one name, in pairs: input and axis, other input and axis.

    Engines may repeat a size of 1 there, where native execution refuses it. A name that an input has twice means
    nothing: some exporters call all free sizes alike.
    """
    places: dict[str, list[tuple[int, int]]] = {}
    for index, spec in enumerate(inputs):
        for axis, size in enumerate(spec.shape or ()):
            if isinstance(size, str):
                places.setdefault(size, []).append((index, axis))
    telling = (found for found in places.values() if len({index for index, _ in found}) == len(found))
    return [(*first, *other) for first, *others in telling for other in others]


def _in_place_step(
    engine: Engine,
    inputs: Sequence[tuple[str, np.dtype]],
    outputs: Sequence[str],
    check: Callable[[Sequence[np.ndarray]], None],
) -> Callable[[dict[str, Any]], None]:
    def step(values: dict[str, Any]) -> None:
        arrays = [np.asarray(as_array(_plain(values[n])), dtype, order="C") for n, dtype in inputs]
        check(arrays)
        values.update(zip(outputs, engine.run_on(arrays), strict=True))

    return step


def _staged(staging: dict[str, np.ndarray], name: str, dtype: np.dtype, array: np.ndarray) -> np.ndarray:
    """Copy an engine's input to memory that stays bound while its shape stays the same."""
    buffer = staging.get(name)
    if buffer is None or buffer.shape != array.shape:
        buffer = staging[name] = np.empty(array.shape, dtype)
    np.copyto(buffer, array)
    return buffer


def empty_places(arrays: Sequence[np.ndarray]) -> frozenset[InputAxis]:
    """Return the places at which inputs have a size of 0."""
    return frozenset((i, axis) for i, array in enumerate(arrays) for axis, size in enumerate(array.shape) if not size)


def _check_sizes(
    inputs: Sequence[tuple[str, np.dtype]],
    known: Collection[frozenset[InputAxis]],
    equal: Sequence[tuple[int, int, int, int]],
    sizes: ResultSizes | None,
    arrays: Sequence[np.ndarray],
) -> None:
    """Refuse empty inputs that the engine was not compared with, unequal sizes of one name, and too large results."""
    for (name, _), array in zip(inputs, arrays, strict=True):
        if not array.size and empty_places(arrays) not in known:
            raise OutOfRangeError(EMPTY_TENSOR, f"{name!r} has no elements, and its engine was not compared with that.")
    for one, axis, other, its_axis in equal:
        if arrays[one].shape[axis] != arrays[other].shape[its_axis]:
            problem = f"Axis {axis} of {inputs[one][0]!r} and axis {its_axis} of {inputs[other][0]!r}"
            raise OutOfRangeError("unequal_sizes", f"{problem} have one name in the model, and differ.")
    if sizes is not None and not sizes.fit([array.shape for array in arrays]):
        raise OutOfRangeError(LARGE_RESULT, "A result in its engine would take more memory than models may use here.")


@dataclasses.dataclass(frozen=True, slots=True)
class _View:
    """Memory of an engine, which changes with its next run."""

    array: np.ndarray


def native_only_values(plan: LoadedPlan) -> set[str]:
    """Return values that only ONNX Runtime's slow path takes: strings, sequences, optionals and maps of the caller.

    Such a value comes from the caller, or from onnx.reference, as a Python object, so every native stage that reads it
    must use that path. Then all values of this kind that the stage produces are Python objects too.
    """
    referred = [v for stage in plan.stages if stage.in_reference for v in (*stage.inputs, *stage.outputs)]
    exotic = {s.name for s in (*plan.inputs, *plan.outputs, *specs(tuple(referred))) if not runs_as_array(s)}
    for stage in plan.stages:
        names = {v.name or "" for v in (*stage.inputs, *stage.outputs)}
        if not stage.is_engine and names & exotic:
            exotic |= {s.name for s in specs(stage.outputs) if not runs_as_array(s)}
    return exotic


def _bound_stage(plan: LoadedPlan, stage: PlanStage, buffers: Mapping[str, np.ndarray]) -> _BoundEngine | BoundSession:
    if stage.is_engine:
        return _BoundEngine(plan.engines[stage.name].fork(), stage, buffers)
    return plan.sessions[stage.name].bind(buffers)


def _final_outputs(plan: LoadedPlan) -> list[TensorSpec]:
    """Return large outputs that some stage computes and that no stage reads."""
    computed = {v.name for stage in plan.stages for v in stage.outputs}
    read = {v.name for stage in plan.stages for v in stage.inputs}
    return [s for s in plan.outputs if s.name in computed - read and s.size_bytes >= HAND_OUT_BYTES]


def _lifetimes(plan: LoadedPlan) -> dict[str, Lifetime]:
    """Return the lifetime of each boundary tensor: from the stage that writes it to the last that reads it."""
    first: dict[str, int] = {s.name: -1 for s in plan.inputs if s.name not in _only_constants(plan)}
    last: dict[str, int] = dict(first)
    tensors = {s.name: s for s in plan.inputs}
    for index, stage in enumerate(plan.stages):
        for spec in specs(stage.outputs):
            first[spec.name] = index
        for spec in specs((*stage.inputs, *stage.outputs)):
            last[spec.name] = index
            tensors[spec.name] = spec
    last.update({s.name: len(plan.stages) for s in plan.outputs if s.name in first})
    return {name: Lifetime.of(tensors[name], first=first[name], last=last[name]) for name in first}


def _only_constants(plan: LoadedPlan) -> set[str]:
    """Return the names of outputs of the model that are constants."""
    produced = {s.name for s in plan.inputs}
    produced.update(v.name or "" for stage in plan.stages for v in stage.outputs)
    return {s.name for s in plan.outputs} - produced


def _plain(value: Any) -> Any:
    return value.array if isinstance(value, _View) else value


def _as_object(value: Any) -> Any:
    """Return an array for a tensor of ONNX Runtime; other values are Python objects already."""
    return as_array(value) if is_tensor(value) else value


def _owned(value: Any, *, shared: bool) -> Any:
    """Return a result that belongs to the caller alone: no engine writes to it again, and no other run reads it."""
    if isinstance(value, _View):
        return value.array.copy()
    if is_tensor(value):
        return value.numpy()
    return copy.deepcopy(value) if shared else value
