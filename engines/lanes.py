"""Lanes: where a GPU's work happens in order. Each has a stream, an arena, and whatever is bound to the two.

A lane is entered by one thread at a time, which does all work of a request itself. A thread of the lane's own would
cost two hops between threads: 25 us a request on a 2.5 GHz processor, as much as everything else together.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from engines.arena import Arena
from engines.base import Engine
from engines.pycuda_backend import CudaDevice

LANES = 2
"""Of a GPU, so that one computes while another copies. Each has execution contexts and an arena of its own."""

DeviceTensor = tuple[int, tuple[int, ...]]
"""A tensor in the GPU's memory: its address and shape. It is row-major, and its address a multiple of 256."""

HostTensors = dict[str, np.ndarray]
DeviceTensors = dict[str, DeviceTensor]


class Freed(Protocol):
    """What holds memory of the GPU, or page-locked memory."""

    def free(self) -> None:
        """Give it back. The context must be current, and the lane idle."""
        ...


class LaneStage(Protocol):
    """A stage of a model on one lane: puts its work on the stream, and waits only for what it reads on the host.

    Attributes:
        reads_host: Names of tensors that must be in the host's memory.
        reads_device: Names of tensors that must be in the GPU's memory.
        writes_host: Names of results in the host's memory.
        writes_device: Names of results in the GPU's memory.
    """

    reads_host: tuple[str, ...]
    reads_device: tuple[str, ...]
    writes_host: tuple[str, ...]
    writes_device: tuple[str, ...]

    def attach(self) -> None:
        """Take part in the lane's arena. The lane must be idle."""
        ...

    def __call__(self, host: HostTensors, device: DeviceTensors) -> None:
        """Run on tensors by name, and add the results to them.

        Raises:
            OutOfRangeError: The stage can't compute with these.
            ExecutionError: The library failed.
        """
        ...

    def free(self) -> None:
        """Give memory back."""
        ...


@runtime_checkable
class LaneEngine(Engine, Protocol):
    """An engine that computes in a GPU's memory.

    Attributes:
        lanes: Where it runs.
        narrowed: Element types that it takes and gives instead of the declared ones, by name of the input or output.
    """

    lanes: Lanes
    narrowed: Mapping[str, np.dtype]

    def on_lane(self, lane: Lane, inputs: Sequence[str], outputs: Sequence[str]) -> LaneStage:
        """A stage of this engine, with the model's names for its inputs and outputs."""
        ...


class Lane:
    """A stream, and what only one run at a time may use.

    Attributes:
        index: From 0.
        device: Its GPU.
        stream: Of pycuda; never the default stream, which TensorRT would wait for.
        handle: The stream as the libraries take it.
        arena: Scratch memory of all execution contexts on this lane.
        retired: What is to be freed when the lane is idle.
    """

    def __init__(self, index: int, device: CudaDevice) -> None:
        self.index = index
        self.device = device
        self.stream: Any = device.driver.Stream(1)  # non-blocking: it doesn't wait for the default stream
        self.handle: int = self.stream.handle
        self.arena = Arena(device.driver)
        self.retired: queue.SimpleQueue[Freed] = queue.SimpleQueue()

    def sweep(self) -> None:
        """Free what is retired. The context must be current, and the lane idle."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.retired.get_nowait().free()


class Lanes:
    """The lanes of one GPU, for all models. Thread-safe."""

    def __init__(self, device: CudaDevice, count: int) -> None:
        self.device = device
        with device:
            self.all = tuple(Lane(index, device) for index in range(count))
        # A SimpleQueue costs a tenth of a semaphore, whose waiting is written in Python.
        self._idle: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        for lane in self.all:
            self._idle.put(lane)
        self._turns = threading.Lock()  # two threads that want several lanes could wait for each other
        weakref.finalize(self, _free_lanes, device, self.all)

    def take(self) -> Lane:
        """Wait for an idle lane. Whoever has it gives it back."""
        return self._idle.get()

    def give_back(self, lane: Lane) -> None:
        """Let others use a lane. All work on its stream must be done."""
        self._idle.put(lane)

    def on_each(self, work: Callable[[Lane], None]) -> None:
        """Do work on every lane in turn, while the others serve. The context is current, and the lane idle.

        Raises:
            DeviceLostError: The context is lost.
            ExecutionError: CUDA failed.
        """
        with self._turns:
            waiting = set(self.all)
            while waiting:
                lane = self._take_one_of(waiting)
                try:
                    with self.device:
                        lane.sweep()
                        work(lane)
                finally:
                    self.give_back(lane)
                waiting.remove(lane)

    def sweep(self) -> None:
        """Free what models have left.

        Raises:
            DeviceLostError: The context is lost.
        """
        self.on_each(lambda _: None)

    def _take_one_of(self, wanted: Container[Lane]) -> Lane:
        aside: list[Lane] = []
        while (lane := self.take()) not in wanted:
            aside.append(lane)
        for other in aside:
            self.give_back(other)
        return lane


def _free_lanes(device: CudaDevice, lanes: Sequence[Lane]) -> None:
    if device.loss:
        return
    with device:
        for lane in lanes:
            lane.sweep()
            lane.stream = None
