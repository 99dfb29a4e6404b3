"""Module objects that stand for pycuda, each on one simulated GPU."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

import numpy as np

from simulated_cuda import errors, objects
from simulated_cuda.copies import Copies
from simulated_cuda.errors import INVALID_VALUE, CudaError
from simulated_cuda.gpu import SimulatedGpu
from simulated_cuda.objects import Device, DeviceAllocation, PagelockedHostAllocation, guarded

CLASSES = ("Context", "DeviceAllocation", "Event", "PagelockedHostAllocation", "Stream")
COPIES = [name for name in vars(Copies) if name.startswith("mem")]
DRIVER_VERSION = 13_000


def make_driver(gpu: SimulatedGpu) -> Any:
    """A module that stands for ``pycuda.driver``."""
    module: Any = types.ModuleType("pycuda.driver", "Simulated: nothing here runs on a GPU.")
    for name in CLASSES:
        setattr(module, name, type(name, (getattr(objects, name),), {"gpu": gpu}))
    module.Device = type("Device", (Device,), {"gpu": gpu, "context_type": module.Context})
    for name in COPIES:
        setattr(module, name, getattr(Copies(gpu), name))
    for kind in (errors.Error, errors.LaunchError, errors.LogicError, errors.MemoryError, errors.RuntimeError):
        setattr(module, kind.__name__, kind)
    _add_functions(module, gpu)
    return module


def make_pycuda(gpu: SimulatedGpu) -> dict[str, Any]:
    """The package and its driver, by module name."""
    package: Any = types.ModuleType("pycuda", "Simulated: nothing here runs on a GPU.")
    package.__path__ = []
    package.VERSION_TEXT = "2026.1+simulated"
    package.driver = make_driver(gpu)
    return {"pycuda": package, "pycuda.driver": package.driver}


def _add_functions(module: Any, gpu: SimulatedGpu) -> None:
    @guarded("cuMemAlloc")
    def mem_alloc(size: int, /) -> DeviceAllocation:
        gpu.check()
        if size <= 0:
            raise CudaError(INVALID_VALUE)
        allocation: DeviceAllocation = module.DeviceAllocation(gpu.allocate(size))
        return allocation

    @guarded("cuMemGetInfo")
    def mem_get_info() -> tuple[int, int]:
        gpu.check()
        return gpu.total_bytes - gpu.memory.size, gpu.total_bytes

    def pagelocked_empty(shape: int | Iterable[int], dtype: Any, order: str = "C", mem_flags: int = 0) -> np.ndarray:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        allocation: PagelockedHostAllocation = module.PagelockedHostAllocation(shape, np.dtype(dtype))
        array = np.asarray(allocation)
        return array if array.dtype == dtype else array.view(dtype)

    module.init = lambda flags=0: None
    module.get_version = lambda: (DRIVER_VERSION // 1000, DRIVER_VERSION % 1000 // 10, 0)
    module.get_driver_version = lambda: DRIVER_VERSION
    module.mem_alloc, module.mem_get_info, module.pagelocked_empty = mem_alloc, mem_get_info, pagelocked_empty
