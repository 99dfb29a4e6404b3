"""Execution streams: a CUDA stream, an arena of scratch memory, and the execution contexts that use both.

One thread at a time uses a stream, and does all work of a request itself. A thread of the stream's own would cost two
hops between threads for each request, as much as everything else together.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import queue
import threading
import weakref
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from trtnode.engines.backends.protocols import Engine
from trtnode.engines.cuda.context import CudaDevice

STREAMS = 2
"""Number of execution streams of a GPU: one computes while another copies."""

DeviceTensor = tuple[int, tuple[int, ...]]
"""A tensor in the GPU's memory: its address and shape. It is row-major, and its address a multiple of 256."""

HostTensors = dict[str, np.ndarray]
DeviceTensors = dict[str, DeviceTensor]


SetScratch = Callable[[int, int], None]
"""Gives an execution context the address and size, in bytes, of its scratch memory."""


@dataclasses.dataclass(frozen=True, slots=True)
class _User:
    size: int
    place: SetScratch


class Arena:
    """Scratch memory that execution contexts share, because a stream runs one of them at a time.

    Attributes:
        address: Of the block; 0 where there is none.
        size: Bytes. It is the largest need of a user, never the sum.
    """

    def __init__(self, driver: Any) -> None:
        self.address = 0
        self.size = 0
        self._allocate = driver.mem_alloc
        self._block: Any = None
        self._users: dict[Hashable, _User] = {}

    def attach(self, user: Hashable, size: int, place: SetScratch) -> None:
        """Give memory to an execution context. The stream must be idle.

        Args:
            user: Identifies the context.
            size: Bytes that it needs at most.
            place: Called now, and again whenever the block moves.
        """
        if size > self.size:
            self._move(size)
        self._users[user] = _User(size, place)
        if self.size:
            place(self.address, self.size)

    def detach(self, user: Hashable) -> None:
        """Forget an execution context, and give back the memory that it alone needed. The stream must be idle."""
        if self._users.pop(user, None) is None:
            return
        needed = max((other.size for other in self._users.values()), default=0)
        if needed < self.size:
            self._move(needed)

    def _move(self, size: int) -> None:
        """Replace the block. The new one is allocated first, so that a full GPU leaves the old one in use."""
        block = self._allocate(size) if size else None
        if self._block is not None:
            self._block.free()
        self._block, self.address, self.size = block, int(block) if block is not None else 0, size
        for user in self._users.values():
            if size:
                user.place(self.address, size)


class GpuStage(Protocol):
    """A stage of a model on one stream. It enqueues its work, and waits only for tensors that it reads on the host.

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
        """Take scratch memory of the stream's arena. The stream must be idle."""
        ...

    def __call__(self, host: HostTensors, device: DeviceTensors) -> None:
        """Run on tensors by name, and add the results to them.

        Raises:
            OutOfRangeError: The stage can't compute with these tensors.
            ExecutionError: The library failed.
        """
        ...

    def free(self) -> None:
        """Give memory back."""
        ...


class GpuEngine(Engine):
    """An engine that computes in a GPU's memory.

    Attributes:
        streams: The execution streams of its GPU.
        narrowed: Element types that it takes and gives instead of the declared ones, by name of the input or output.
    """

    streams: StreamPool
    narrowed: Mapping[str, np.dtype]

    @abc.abstractmethod
    def on_stream(self, stream: ExecutionStream, inputs: Sequence[str], outputs: Sequence[str]) -> GpuStage:
        """Return a stage of this engine, with the model's names for its inputs and outputs."""


class ExecutionStream:
    """A CUDA stream with the memory that one run at a time may use.

    Attributes:
        index: From 0.
        device: Its GPU.
        cuda_stream: Of pycuda. It is never the default stream, for which TensorRT would wait.
        handle: The number by which libraries take the CUDA stream.
        arena: Scratch memory of all execution contexts on this stream.
        retired: Calls that free memory, for when the stream is idle.
    """

    def __init__(self, index: int, device: CudaDevice) -> None:
        self.index = index
        self.device = device
        self.cuda_stream: Any = device.driver.Stream(1)  # non-blocking: it doesn't wait for the default stream
        self.handle: int = self.cuda_stream.handle
        self.arena = Arena(device.driver)
        self.retired: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def sweep(self) -> None:
        """Free retired memory. The context must be current, and the stream idle."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.retired.get_nowait()()


class StreamPool:
    """The execution streams of one GPU, for all models. Thread-safe."""

    def __init__(self, device: CudaDevice, count: int) -> None:
        self.device = device
        with device:
            self.all = tuple(ExecutionStream(index, device) for index in range(count))
        # A SimpleQueue is cheaper than a semaphore, which is written in Python.
        self._idle: queue.SimpleQueue[ExecutionStream] = queue.SimpleQueue()
        for stream in self.all:
            self._idle.put(stream)
        self._turns = threading.Lock()  # else two threads that take several streams could wait for each other
        weakref.finalize(self, _free_streams, device, self.all)

    def take(self) -> ExecutionStream:
        """Wait for an idle stream. The caller gives it back."""
        return self._idle.get()

    def give_back(self, stream: ExecutionStream) -> None:
        """Let others use a stream. All its work must be done."""
        self._idle.put(stream)

    def on_each(self, work: Callable[[ExecutionStream], None]) -> None:
        """Do work on every stream in turn, with the context current and the stream idle. The others serve meanwhile.

        Raises:
            DeviceLostError: The context is lost.
            ExecutionError: CUDA failed.
        """
        with self._turns:
            waiting = set(self.all)
            while waiting:
                stream = self._take_one_of(waiting)
                try:
                    with self.device:
                        stream.sweep()
                        work(stream)
                finally:
                    self.give_back(stream)
                waiting.remove(stream)

    def sweep(self) -> None:
        """Free memory of closed models.

        Raises:
            DeviceLostError: The context is lost.
        """
        self.on_each(lambda _: None)

    def _take_one_of(self, wanted: Container[ExecutionStream]) -> ExecutionStream:
        aside: list[ExecutionStream] = []
        while (stream := self.take()) not in wanted:
            aside.append(stream)
        for other in aside:
            self.give_back(other)
        return stream


def _free_streams(device: CudaDevice, streams: Sequence[ExecutionStream]) -> None:
    if device.loss:
        return
    with device:
        for stream in streams:
            stream.sweep()
            stream.cuda_stream = None
