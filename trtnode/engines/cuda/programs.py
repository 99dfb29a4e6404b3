"""A model on execution streams: its stages in order, with the copies between them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trtnode.engines.backends.stage_times import StageTime
from trtnode.engines.cuda.copies import Download, Upload, plan_copies
from trtnode.engines.cuda.streams import DeviceTensors, ExecutionStream, GpuEngine, GpuStage, HostTensors, StreamPool
from trtnode.engines.errors import DeviceLostError, ExecutionError

MakeStage = Callable[[ExecutionStream], GpuStage]


class GpuPrograms:
    """A model that is ready to run on every execution stream. Thread-safe."""

    def __init__(self, streams: StreamPool, stages: Sequence[MakeStage], interface: Interface) -> None:
        """Prepare a model on all streams.

        Args:
            streams: Of the GPU.
            stages: Functions that make the stages for a stream, in order.
            interface: Of the model.

        Raises:
            ExecutionError: The GPU's memory is full, or a library failed.
        """
        self._streams = streams
        self._device = streams.device
        self._programs: dict[int, StreamProgram] = {}
        self._closed = False
        self._retire = weakref.finalize(self, _retire, self._programs)
        try:
            self._open(stages, interface)
        except BaseException:
            self._retire()  # the error may keep this object alive
            raise

    def run(self, feeds: Mapping[str, Any], times: list[StageTime] | None = None) -> dict[str, Any]:
        """Run on checked inputs, when a stream is idle.

        Args:
            feeds: Arrays by name.
            times: Receives the time of each stage. Without it, stages overlap with the host's work.

        Returns:
            Results by name. They belong to the caller.

        Raises:
            OutOfRangeError: The engines can't compute with these inputs.
            DeviceLostError: The GPU's context is lost.
            ExecutionError: A library failed.
        """
        stream = self._streams.take()
        try:
            with self._device:
                if not stream.retired.empty():
                    stream.sweep()
                if self._closed:
                    raise ExecutionError("The model is closed.")
                return self._programs[stream.index].run(feeds, times)
        finally:
            self._streams.give_back(stream)

    def close(self) -> None:
        """Free everything. A run that is under way finishes first."""
        self._closed = True
        self._retire()
        with contextlib.suppress(DeviceLostError):  # memory of a lost context can't be freed
            self._streams.sweep()

    def _open(self, stages: Sequence[MakeStage], interface: Interface) -> None:
        def open_on(stream: ExecutionStream) -> None:
            program = self._programs[stream.index] = StreamProgram(stream, stages, interface)
            program.attach()

        self._streams.on_each(open_on)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """Inputs and outputs of a model, and the types of the tensors between its stages.

    Attributes:
        stages: Name of each stage, and True if it is an engine.
        inputs: Names.
        outputs: Names, in order.
        constants: Values of outputs that no stage computes, and defaults of inputs.
        declared: The element type of each tensor in the host's memory.
        narrowed: The element type in the GPU's memory, where engines lack the declared one.
    """

    stages: tuple[tuple[str, bool], ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, np.ndarray]
    declared: Mapping[str, np.dtype]
    narrowed: Mapping[str, np.dtype]

    def on_device(self, name: str) -> np.dtype:
        """Return the element type of a tensor in the GPU's memory."""
        return self.narrowed.get(name, self.declared[name])


class StreamProgram:
    """A model on one stream. The CUDA context must be current, and the caller must have taken the stream.

    Attributes:
        stream: The stream.
    """

    def __init__(self, stream: ExecutionStream, make_stages: Sequence[MakeStage], interface: Interface) -> None:
        self.stream = stream
        self._stages: list[GpuStage] = []
        self._steps: list[GpuStage | Upload | Download] = []
        self._names = interface.stages
        self._constants = interface.constants
        try:
            self._stages.extend(make(stream) for make in make_stages)
            self._add_steps(interface)
        except BaseException:
            self.free()
            raise
        computed = {name for stage in self._stages for name in stage.writes_host}
        self._results = [(name, name not in computed) for name in interface.outputs]

    def attach(self) -> None:
        """Take scratch memory of the stream's arena. The stream must be idle."""
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
            self.stream.cuda_stream.synchronize()  # work of this run must not overlap the next
            raise
        return {name: host[name].copy() if shared else host[name] for name, shared in self._results}

    def free(self) -> None:
        """Give memory back. The stream must be idle."""
        for step in {*self._stages, *self._steps}:
            step.free()
        self._stages.clear()
        self._steps.clear()

    def _run_timed(self, host: HostTensors, device: DeviceTensors, times: list[StageTime]) -> None:
        """Run the steps, and wait for each stage to end."""
        names = iter(self._names)
        for step in self._steps:
            began = time.perf_counter_ns()
            step(host, device)
            if step in self._stages:
                self.stream.cuda_stream.synchronize()
                name, is_engine = next(names)
                times.append(StageTime(name, is_engine, began, time.perf_counter_ns()))

    def _add_steps(self, interface: Interface) -> None:
        on_host = {*interface.inputs, *interface.constants}
        *before, last = plan_copies(self._stages, on_host, interface.outputs)
        for stage, copies in zip(self._stages, before, strict=True):
            self._steps.extend(Upload(self.stream, name, interface.on_device(name)) for name in copies.up)
            if copies.down:
                self._steps.append(self._download(copies.down, interface))
            self._steps.append(stage)
        self._steps.append(self._download(last.down, interface))

    def _download(self, names: Sequence[str], interface: Interface) -> Download:
        return Download(self.stream, [(n, interface.on_device(n), interface.declared[n]) for n in names])


def _retire(programs: Mapping[int, StreamProgram]) -> None:
    """Leave programs to the next user of their stream: the garbage collector may call this in any thread."""
    for program in programs.values():
        program.stream.retired.put(program.free)


def open_alone(engine: GpuEngine) -> GpuPrograms:
    """Prepare an engine that is a model of its own.

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
    return GpuPrograms(engine.streams, [functools.partial(engine.on_stream, inputs=inputs, outputs=outputs)], interface)
