"""Copies and fills of ``pycuda.driver``, on a simulated GPU.

A copy to or from page-locked memory is late, as all work on a stream. Other host memory is read before the call
returns, and written before it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulated_cuda.errors import INVALID_VALUE, CudaError
from simulated_cuda.gpu import SimulatedGpu
from simulated_cuda.objects import Stream, bytes_of, guarded, queue_of


class Copies:
    """The functions, by their names in pycuda."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu

    @guarded("cuMemcpyHtoD")
    def memcpy_htod(self, dest: Any, src: Any) -> None:
        host = bytes_of(src)
        self._now(lambda: self._write(int(dest), host), (int(dest), host.size))

    @guarded("cuMemcpyHtoDAsync")
    def memcpy_htod_async(self, dest: Any, src: Any, stream: Stream | None = None) -> None:
        host = bytes_of(src)
        if not self._is_page_locked(host):
            host = host.copy()
        self._late(lambda: self._write(int(dest), host), stream, (int(dest), host.size))

    @guarded("cuMemcpyDtoH")
    def memcpy_dtoh(self, dest: Any, src: Any) -> None:
        host = bytes_of(dest, writable=True)
        self._now(lambda: self._read(host, int(src)), (int(src), host.size))

    @guarded("cuMemcpyDtoHAsync")
    def memcpy_dtoh_async(self, dest: Any, src: Any, stream: Stream | None = None) -> None:
        host = bytes_of(dest, writable=True)
        self._late(lambda: self._read(host, int(src)), stream, (int(src), host.size))
        if not self._is_page_locked(host):
            queue_of(self._gpu, stream).finish()
            self._gpu.check()

    @guarded("cuMemcpyDtoDAsync")
    def memcpy_dtod_async(self, dest: Any, src: Any, size: int, stream: Stream | None = None) -> None:
        self._late(lambda: self._move(int(dest), int(src), size), stream, (int(dest), size), (int(src), size))

    @guarded("cuMemsetD8")
    def memset_d8(self, dest: Any, data: int, size: int) -> None:
        self._now(lambda: self._gpu.view(int(dest), size).fill(data), (int(dest), size))

    @guarded("cuMemsetD8Async")
    def memset_d8_async(self, dest: Any, data: int, size: int, stream: Stream | None = None) -> None:
        self._late(lambda: self._gpu.view(int(dest), size).fill(data), stream, (int(dest), size))

    def _now(self, work: Callable[[], None], *ranges: tuple[int, int]) -> None:
        self._check(*ranges)
        self._gpu.drain()
        self._gpu.check()
        work()

    def _late(self, work: Callable[[], None], stream: Stream | None, *ranges: tuple[int, int]) -> None:
        self._check(*ranges)
        queue_of(self._gpu, stream).add(work)

    def _check(self, *ranges: tuple[int, int]) -> None:
        """Refuse addresses outside of device memory at once; memory that is freed later fails late."""
        self._gpu.check()
        if any(self._gpu.memory.view(address, size) is None for address, size in ranges):
            raise CudaError(INVALID_VALUE)

    def _is_page_locked(self, host: np.ndarray) -> bool:
        return self._gpu.page_locked.view(host.ctypes.data, host.size) is not None

    def _write(self, dest: int, host: np.ndarray) -> None:
        np.copyto(self._gpu.view(dest, host.size), host)

    def _read(self, host: np.ndarray, src: int) -> None:
        np.copyto(host, self._gpu.view(src, host.size))

    def _move(self, dest: int, src: int, size: int) -> None:
        self._gpu.view(dest, size)[:] = self._gpu.view(src, size).copy()
