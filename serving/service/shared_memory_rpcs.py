"""The RPCs about shared memory. The ports have checked the rights to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trtnode.protos import (
    CudaSharedMemoryRegisterRequest,
    CudaSharedMemoryRegisterResponse,
    CudaSharedMemoryStatusRequest,
    CudaSharedMemoryStatusResponse,
    CudaSharedMemoryUnregisterRequest,
    CudaSharedMemoryUnregisterResponse,
    SystemSharedMemoryRegisterRequest,
    SystemSharedMemoryRegisterResponse,
    SystemSharedMemoryStatusRequest,
    SystemSharedMemoryStatusResponse,
    SystemSharedMemoryUnregisterRequest,
    SystemSharedMemoryUnregisterResponse,
)
from trtnode.serving.errors import NotFoundError, UnsupportedError
from trtnode.serving.protocol.shared_memory import SharedMemory

_NO_CUDA = "this server runs no model on a GPU, so it has no CUDA shared memory; use system shared memory"


def memory_methods(memory: SharedMemory) -> dict[str, Callable[[Any], Any]]:
    """Return what answers each of the RPCs, by its name."""

    def status(request: SystemSharedMemoryStatusRequest) -> SystemSharedMemoryStatusResponse:
        entry = SystemSharedMemoryStatusResponse.RegionStatus
        return SystemSharedMemoryStatusResponse(
            regions={
                one.name: entry(name=one.name, key=one.key, offset=one.offset, byte_size=one.byte_size)
                for one in memory.regions(request.name)
            }
        )

    def register(request: SystemSharedMemoryRegisterRequest) -> SystemSharedMemoryRegisterResponse:
        memory.register(request.name, request.key, request.offset, request.byte_size)
        return SystemSharedMemoryRegisterResponse()

    def unregister(request: SystemSharedMemoryUnregisterRequest) -> SystemSharedMemoryUnregisterResponse:
        memory.unregister(request.name)
        return SystemSharedMemoryUnregisterResponse()

    return {
        "SystemSharedMemoryStatus": status,
        "SystemSharedMemoryRegister": register,
        "SystemSharedMemoryUnregister": unregister,
        "CudaSharedMemoryStatus": _cuda_status,
        "CudaSharedMemoryRegister": _cuda_register,
        "CudaSharedMemoryUnregister": _cuda_unregister,
    }


def _cuda_status(request: CudaSharedMemoryStatusRequest) -> CudaSharedMemoryStatusResponse:
    if request.name:
        raise NotFoundError(_NO_CUDA)
    return CudaSharedMemoryStatusResponse()


def _cuda_register(_request: CudaSharedMemoryRegisterRequest) -> CudaSharedMemoryRegisterResponse:
    raise UnsupportedError(_NO_CUDA)


def _cuda_unregister(_request: CudaSharedMemoryUnregisterRequest) -> CudaSharedMemoryUnregisterResponse:
    return CudaSharedMemoryUnregisterResponse()  # what isn't there is no error: clients do it to clean up
