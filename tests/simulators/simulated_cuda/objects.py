"""The classes of ``pycuda.driver``, on a simulated GPU."""

from __future__ import annotations

import functools
import math
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from simulated_cuda import errors
from simulated_cuda.errors import CudaError, error_of
from simulated_cuda.gpu import Block, SimulatedGpu
from simulated_cuda.streams import StreamQueue, Work


def guarded(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Turns errors of a driver call into pycuda's exceptions."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except CudaError as error:
                raise error_of(name, error.code) from None

        return call

    return decorate


class OfContext:
    """An object of a context. It is freed where that context is current, or by the thread that retained it."""

    gpu: SimulatedGpu

    def __init__(self) -> None:
        self.gpu.check()
        self._context = self.gpu.stack[-1]
        self._alive = True

    def _release(self, free: Callable[[], None]) -> None:
        if not self._alive:
            raise CudaError(errors.INVALID_HANDLE)
        self._alive = False
        if self.gpu.removed:
            return
        if self._context.is_current() or self._context.thread == threading.get_ident():
            free()
        else:
            kind = type(self).__name__
            warnings.warn(f"{kind} in out-of-thread context could not be cleaned up", UserWarning, stacklevel=3)


class Device:
    gpu: SimulatedGpu
    context_type: type[Context]

    @guarded("cuDeviceGet")
    def __init__(self, ordinal: int) -> None:
        if ordinal:
            raise CudaError(errors.INVALID_DEVICE)

    @staticmethod
    def count() -> int:
        return 1

    def name(self) -> str:
        return self.gpu.name

    def compute_capability(self) -> tuple[int, int]:
        return self.gpu.compute_capability

    def retain_primary_context(self) -> Context:
        self.gpu.primary_contexts += 1
        return self.context_type()


class Context:
    gpu: SimulatedGpu

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self._valid = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context)  # there is one primary context

    def __hash__(self) -> int:
        return hash(Context)

    def is_current(self) -> bool:
        """Return whether this very object was pushed last; another one of the same context doesn't count."""
        return bool(self.gpu.stack) and self.gpu.stack[-1] is self

    @property
    def handle(self) -> int:
        return id(self.gpu)

    @guarded("cuCtxPushCurrent")
    def push(self) -> None:
        if not self._valid:
            raise CudaError(errors.INVALID_CONTEXT)
        self.gpu.stack.append(self)
        self.gpu.count_pushed(1)

    @classmethod
    @guarded("context::pop")
    def pop(cls) -> None:
        if not cls.gpu.stack:
            raise CudaError(errors.INVALID_CONTEXT)
        cls.gpu.stack.pop()
        cls.gpu.count_pushed(-1)

    @guarded("context::detach")
    def detach(self) -> None:
        if not self._valid:
            raise CudaError(errors.INVALID_CONTEXT)
        self._valid = False
        if self.is_current() or self.thread == threading.get_ident():
            self.gpu.primary_contexts -= 1

    @classmethod
    @guarded("cuCtxSynchronize")
    def synchronize(cls) -> None:
        cls.gpu.check()
        cls.gpu.drain()
        cls.gpu.check()


class Stream(OfContext):
    @guarded("cuStreamCreate")
    def __init__(self, flags: int = 0) -> None:
        super().__init__()
        self._queue = StreamQueue(self.gpu)
        self.gpu.streams[self.handle] = self._queue

    @property
    def handle(self) -> int:
        return id(self._queue)

    @guarded("cuStreamSynchronize")
    def synchronize(self) -> None:
        self.gpu.check()
        self._queue.finish()
        self.gpu.check()

    @guarded("cuStreamQuery")
    def is_done(self) -> bool:
        """Each question finds the work a step further."""
        self.gpu.check()
        done = self._queue.is_idle
        self._queue.step()
        return done

    @guarded("cuStreamWaitEvent")
    def wait_for_event(self, evt: Event) -> None:
        self.gpu.check()
        if evt.recorded is not None:
            self._queue.add(_nothing, waits_for=evt.recorded)

    def __del__(self) -> None:
        if hasattr(self, "_queue"):
            self._release(self._destroy)

    def _destroy(self) -> None:
        if not self._queue.is_idle:
            self.gpu.misuses.append("a stream was destroyed before its work was done")
        del self.gpu.streams[self.handle]


class Event(OfContext):
    @guarded("cuEventCreate")
    def __init__(self, flags: int = 0) -> None:
        super().__init__()
        self.recorded: Work | None = None
        self.gpu.events.add(id(self))

    @guarded("cuEventRecord")
    def record(self, stream: Stream | None = None) -> Event:
        self.gpu.check()
        self.recorded = queue_of(self.gpu, stream).add(_nothing)
        return self

    @guarded("cuEventSynchronize")
    def synchronize(self) -> Event:
        self.gpu.check()
        if self.recorded is not None:
            self.recorded.stream.finish(self.recorded)
        self.gpu.check()
        return self

    @guarded("cuEventQuery")
    def query(self) -> bool:
        self.gpu.check()
        if self.recorded is None or self.recorded.done:
            return True
        self.recorded.stream.step()
        return False

    def __del__(self) -> None:
        if hasattr(self, "recorded"):
            self._release(lambda: self.gpu.events.discard(id(self)))


class DeviceAllocation(OfContext):
    def __init__(self, block: Block) -> None:
        super().__init__()
        self._block = block

    def __int__(self) -> int:
        return self._block.address

    __index__ = __int__

    @guarded("device_allocation::free")
    def free(self) -> None:
        self._release(lambda: self.gpu.memory.free(self._block))

    def __del__(self) -> None:
        if getattr(self, "_alive", False):
            self.free()


class PagelockedHostAllocation(OfContext):
    """The base of an array of page-locked memory."""

    @guarded("cuMemHostAlloc")
    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        super().__init__()
        self._block = self.gpu.page_locked.allocate(max(math.prod(shape) * dtype.itemsize, 1))
        data = (self._block.address, False)
        self.__array_interface__ = {"data": data, "shape": shape, "typestr": dtype.str, "version": 3}

    @guarded("pagelocked_host_allocation::free")
    def free(self) -> None:
        self._release(lambda: self.gpu.page_locked.free(self._block))

    def __del__(self) -> None:
        if getattr(self, "_alive", False):
            self.free()


def queue_of(gpu: SimulatedGpu, stream: Stream | None) -> StreamQueue:
    return gpu.stream(stream.handle if stream is not None else 0)


def bytes_of(array: Any, *, writable: bool = False) -> np.ndarray:
    """``uint8`` view of a host buffer."""
    host = np.asarray(array) if isinstance(array, np.ndarray) else np.frombuffer(array, np.uint8)
    if not host.flags.forc:
        raise BufferError("the buffer is not contiguous")
    if writable and not host.flags.writeable:
        raise BufferError("the buffer is read-only")
    return host.reshape(-1, order="A").view(np.uint8)


def _nothing() -> None:
    pass
