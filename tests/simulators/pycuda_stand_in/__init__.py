"""The GPU behind the real pycuda where the library beside this file stands for the driver."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from simulated_cuda import CudaError, SimulatedGpu
from simulated_cuda.errors import ILLEGAL_ADDRESS
from simulated_cuda.gpu import Block

DRIVER = "libcuda.so.1"
KINDS = ("device allocations", "page-locked allocations", "streams", "events", "retained contexts", "pushed contexts")
"""Counters of the library, in its order."""

HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@functools.cache
def find_library() -> Any | None:
    """The library that stands for the driver; None where there is another one, or none."""
    try:
        library = ctypes.CDLL(DRIVER)
    except OSError:
        return None
    return library if hasattr(library, "standin_alive") else None


class StandInGpu(SimulatedGpu):
    """The GPU of the simulated TensorRT, by way of the driver that pycuda uses.

    Attributes:
        library: That driver.
    """

    def __init__(self, library: Any) -> None:
        super().__init__()
        self.library = library
        self._call = HostFunction(self._run)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, DriverWork] = {}

    @property
    def stack(self) -> list[Any]:
        """The context that is current in the calling thread, if one is."""
        current = ctypes.c_void_p()
        self.library.cuCtxGetCurrent(ctypes.byref(current))
        return [current.value] if current.value else []

    def check(self) -> None:
        """Return whether a call of this thread can succeed."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._succeed(self.library.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))

    def fail(self, code: int) -> None:
        """Lose the context."""
        self.library.standin_lose(code)

    def allocate(self, size: int) -> Block:
        """Take device memory."""
        address = ctypes.c_void_p()
        self._succeed(self.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
        assert address.value is not None
        return Block(address.value, size, self.view(address.value, size))

    def free(self, block: Block) -> None:
        """Give it back."""
        self._succeed(self.library.cuMemFree_v2(ctypes.c_void_p(block.address)))

    def view(self, address: int, size: int) -> np.ndarray:
        """``uint8[size]`` of device memory."""
        if not self.library.standin_is_device_memory(ctypes.c_void_p(address), ctypes.c_size_t(size)):
            self.fail(ILLEGAL_ADDRESS)
            raise CudaError(ILLEGAL_ADDRESS)
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def stream(self, handle: int) -> Any:
        """A stream by its handle."""
        return DriverStream(self, handle)

    def drain(self) -> None:
        """Finish all work."""
        self._succeed(self.library.cuCtxSynchronize())

    def leaks(self) -> dict[str, int]:
        """Return the number of objects that still exist, by kind."""
        counts = (ctypes.c_int * len(KINDS)).in_dll(self.library, "standin_alive")
        return {kind: count for kind, count in zip(KINDS, counts, strict=True) if count}

    @property
    def misuse(self) -> str:
        """The first thing that a real driver need not notice; empty for none."""
        return bytes((ctypes.c_char * 256).in_dll(self.library, "standin_misuse")).split(b"\0")[0].decode()

    def launch(self, handle: int, work: DriverWork) -> None:
        """Add work to a stream."""
        number = next(self._numbers)
        self._waiting[number] = work
        self._succeed(self.library.cuLaunchHostFunc(ctypes.c_void_p(handle), self._call, ctypes.c_void_p(number)))

    def finish(self, handle: int) -> None:
        """Wait for all work of a stream."""
        self._succeed(self.library.cuStreamSynchronize(ctypes.c_void_p(handle)))

    def _run(self, number: int) -> None:
        work = self._waiting.pop(number)
        try:
            work.run()
        except CudaError as error:
            self.fail(error.code)
        finally:
            work.done = True

    def _succeed(self, code: int) -> None:
        if code:
            raise CudaError(code)


@dataclasses.dataclass(slots=True)
class DriverWork:
    """A kernel on a stream."""

    stream: DriverStream
    run: Callable[[], None]
    done: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class DriverStream:
    """A stream that pycuda has made."""

    gpu: StandInGpu
    handle: int

    def add(self, run: Callable[[], None]) -> DriverWork:
        """Run a kernel after what is on the stream already."""
        work = DriverWork(self, run)
        self.gpu.launch(self.handle, work)
        return work

    def comes_after(self, work: DriverWork) -> bool:
        """Return whether a kernel that is added now runs after another one."""
        return work.done or work.stream == self

    def finish(self) -> None:
        """Wait for all work."""
        self.gpu.finish(self.handle)
