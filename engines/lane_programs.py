"""A model on lanes: its stages in order, and between them the copies that they need."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engines.errors import DeviceLostError, ExecutionError
from engines.lanes import DeviceTensors, HostTensors, Lane, LaneEngine, Lanes, LaneStage
from engines.stage_times import StageTime
from engines.transfers import Download, Upload, plan_copies

MakeStage = Callable[[Lane], LaneStage]


class LanePrograms:
    """A model that is ready to run on every lane. Thread-safe."""

    def __init__(self, lanes: Lanes, stages: Sequence[MakeStage], interface: Interface) -> None:
        """Put a model on all lanes.

        Args:
            lanes: Where it runs.
            stages: Make a stage for a lane each, in order.
            interface: What the model takes and gives.

        Raises:
            ExecutionError: The GPU's memory is full, or a library failed.
        """
        self._lanes = lanes
        self._device = lanes.device
        self._programs: dict[int, LaneProgram] = {}
        self._closed = False
        self._retire = weakref.finalize(self, _retire, self._programs)
        try:
            self._open(stages, interface)
        except BaseException:
            self._retire()  # whoever keeps the error keeps this object
            raise

    def run(self, feeds: Mapping[str, Any], times: list[StageTime] | None = None) -> dict[str, Any]:
        """Run on checked inputs, when a lane is idle.

        Args:
            feeds: Arrays by name.
            times: Gets when each stage ran. Stages overlap with the host's work unless this asks for their times.

        Returns:
            Results by name. They belong to the caller.

        Raises:
            OutOfRangeError: The engines can't compute with these inputs.
            DeviceLostError: The GPU's context is lost.
            ExecutionError: A library failed.
        """
        lane = self._lanes.take()
        try:
            with self._device:
                if not lane.retired.empty():
                    lane.sweep()
                if self._closed:
                    raise ExecutionError("The model is closed.")
                return self._programs[lane.index].run(feeds, times)
        finally:
            self._lanes.give_back(lane)

    def close(self) -> None:
        """Free everything. A run that is under way finishes first."""
        self._closed = True
        self._retire()
        with contextlib.suppress(DeviceLostError):  # nothing of a lost context can be freed
            self._lanes.sweep()

    def _open(self, stages: Sequence[MakeStage], interface: Interface) -> None:
        def open_on(lane: Lane) -> None:
            program = self._programs[lane.index] = LaneProgram(lane, stages, interface)
            program.attach()

        self._lanes.on_each(open_on)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """What a model takes and gives, and the types of the tensors between its stages.

    Attributes:
        stages: Name of each stage, and whether it is an engine.
        inputs: Names.
        outputs: Names, in order.
        constants: Values of outputs, and defaults of inputs, that no stage computes.
        declared: The element type of each tensor in the host's memory.
        narrowed: Another element type in the GPU's memory, where engines lack the declared one.
    """

    stages: tuple[tuple[str, bool], ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, np.ndarray]
    declared: Mapping[str, np.dtype]
    narrowed: Mapping[str, np.dtype]

    def on_device(self, name: str) -> np.dtype:
        """The element type of a tensor in the GPU's memory."""
        return self.narrowed.get(name, self.declared[name])


class LaneProgram:
    """A model on one lane. The CUDA context must be current, and the lane be the caller's.

    Attributes:
        lane: The lane.
    """

    def __init__(self, lane: Lane, make_stages: Sequence[MakeStage], interface: Interface) -> None:
        self.lane = lane
        self._stages: list[LaneStage] = []
        self._steps: list[LaneStage | Upload | Download] = []
        self._names = interface.stages
        self._constants = interface.constants
        try:
            self._stages.extend(make(lane) for make in make_stages)
            self._add_steps(interface)
        except BaseException:
            self.free()
            raise
        computed = {name for stage in self._stages for name in stage.writes_host}
        self._results = [(name, name not in computed) for name in interface.outputs]

    def attach(self) -> None:
        """Take part in the lane's arena. The lane must be idle."""
        for stage in self._stages:
            stage.attach()

    def run(self, feeds: Mapping[str, Any], times: list[StageTime] | None) -> dict[str, Any]:
        """Run once. The results belong to the caller."""
        host: HostTensors = {**self._constants, **feeds}
        device: DeviceTensors = {}
        try:
            if times is None:
                for step in self._steps:
                    step(host, device)
            else:
                self._run_timed(host, device, times)
        except BaseException:
            self.lane.stream.synchronize()  # what is on the stream already must not meet the next run
            raise
        return {name: host[name].copy() if shared else host[name] for name, shared in self._results}

    def free(self) -> None:
        """Give memory back. The lane must be idle."""
        for step in {*self._stages, *self._steps}:
            step.free()
        self._stages.clear()
        self._steps.clear()

    def _run_timed(self, host: HostTensors, device: DeviceTensors, times: list[StageTime]) -> None:
        """Wait for each stage to end."""
        names = iter(self._names)
        for step in self._steps:
            began = time.perf_counter_ns()
            step(host, device)
            if step in self._stages:
                self.lane.stream.synchronize()
                name, is_engine = next(names)
                times.append(StageTime(name, is_engine, began, time.perf_counter_ns()))

    def _add_steps(self, interface: Interface) -> None:
        on_host = {*interface.inputs, *interface.constants}
        *before, last = plan_copies(self._stages, on_host, interface.outputs)
        for stage, copies in zip(self._stages, before, strict=True):
            self._steps.extend(Upload(self.lane, name, interface.on_device(name)) for name in copies.up)
            if copies.down:
                self._steps.append(self._download(copies.down, interface))
            self._steps.append(stage)
        self._steps.append(self._download(last.down, interface))

    def _download(self, names: Sequence[str], interface: Interface) -> Download:
        return Download(self.lane, [(n, interface.on_device(n), interface.declared[n]) for n in names])


def _retire(programs: Mapping[int, LaneProgram]) -> None:
    """Leave programs to whoever has their lane next: this may be called anywhere, by the garbage collector too."""
    for program in programs.values():
        program.lane.retired.put(program)


def open_alone(engine: LaneEngine) -> LanePrograms:
    """Make an engine that is a model of its own ready to run.

    Raises:
        ExecutionError: The GPU's memory is full, or a library failed.
    """
    inputs, outputs = (tuple(spec.name for spec in specs) for specs in (engine.inputs, engine.outputs))
    interface = Interface(
        stages=(("engine", True),),
        inputs=inputs,
        outputs=outputs,
        constants={},
        declared={s.name: s.dtype.numpy() for s in (*engine.inputs, *engine.outputs) if s.dtype is not None},
        narrowed=engine.narrowed,
    )
    return LanePrograms(engine.lanes, [functools.partial(engine.on_lane, inputs=inputs, outputs=outputs)], interface)
