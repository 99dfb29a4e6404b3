"""Finds the NVIDIA GPU by CUDA's driver library, without a toolkit or a CUDA context."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable

DRIVER = "libcuda.so.1"
MAJOR, MINOR = 75, 76
"""Numbers of the compute capability among the driver's device attributes (``CUdevice_attribute``)."""
NAME_BYTES = 256


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The first GPU.

    Attributes:
        name: By the driver, for example ``NVIDIA H200``.
        compute_capability: For example ``9.0``.
    """

    name: str
    compute_capability: str


def find_gpu() -> Gpu | None:
    """Describe GPU 0; None where there is no driver, or no GPU that it may use."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(NAME_BYTES)
    calls: tuple[Callable[[], int], ...] = (
        lambda: driver.cuInit(0),
        lambda: driver.cuDeviceGet(ctypes.byref(device), 0),
        lambda: driver.cuDeviceGetName(name, NAME_BYTES, device),
        lambda: driver.cuDeviceGetAttribute(ctypes.byref(major), MAJOR, device),
        lambda: driver.cuDeviceGetAttribute(ctypes.byref(minor), MINOR, device),
    )
    if any(call() for call in calls):  # each gives 0 for success; the first failure ends it
        return None
    return Gpu(name=name.value.decode(errors="replace"), compute_capability=f"{major.value}.{minor.value}")
