"""The CUDA context of the process. It is current in a thread only while that thread uses it."""

from __future__ import annotations

import contextlib
import types
import weakref
from typing import Any

from trtnode.engines.errors import BackendMissingError, DeviceLostError, ExecutionError, OutOfRangeError

try:
    from pycuda import driver
except (ImportError, OSError):  # importing needs CUDA's driver library, but no GPU
    driver = None


def has_driver() -> bool:
    """Return whether pycuda is installed and finds CUDA's driver library."""
    return driver is not None


def open_device() -> CudaDevice:
    """Start CUDA on GPU 0. Once a process is enough.

    Raises:
        BackendMissingError: A part of the installation is missing.
    """
    if driver is None:
        raise BackendMissingError(
            "pycuda is not installed here, or finds no CUDA driver. Install it: pip install 'trtnode[cuda]'."
        )
    return CudaDevice(driver)


class CudaDevice:
    """GPU 0. As a context manager it makes its context current in this thread, and translates CUDA's errors.

    The context is the primary one, which TensorRT and ONNX Runtime use as well. It is retained once: memory that is
    allocated under a second object for the same context can't be freed under the first. A thread that ends while the
    context is current in it ends the process, so no thread keeps it.

    Attributes:
        driver: The ``pycuda.driver`` module.
        loss: The reason for which the context can't be used any more; empty while it can.
    """

    def __init__(self, driver: Any) -> None:
        """Start CUDA.

        Args:
            driver: The ``pycuda.driver`` module.

        Raises:
            BackendMissingError: The driver is too old, or there is no GPU.
        """
        try:
            driver.init()
            primary = driver.Device(0).retain_primary_context()
        except driver.Error as error:
            raise BackendMissingError(f"CUDA can't start: {error}. Run nvidia-smi: it must list a GPU.") from error
        self.driver = driver
        self.loss = ""
        self._push = primary.push
        self._pop = driver.Context.pop
        self._error = driver.Error
        # At exit, finalizers run in reverse order: this one after those of all memory under the context.
        weakref.finalize(self, _release, driver, primary)

    def __enter__(self) -> CudaDevice:
        """Make the context current.

        Raises:
            DeviceLostError: It is lost.
        """
        if self.loss:
            raise DeviceLostError(self.loss)
        self._push()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        """Restore the context that was current before."""
        failure = None if error is None else self._failure(error)
        try:
            self._pop()
        except self._error as pop_error:
            failure = self._lose(pop_error)
        if failure is not None:
            raise failure from error

    def _failure(self, error: BaseException) -> ExecutionError | None:
        """Return this package's error for one of CUDA's; also for any other, where the context is lost."""
        if isinstance(error, OutOfRangeError):
            return None  # nothing failed, so there is no reason to wait for other streams
        try:
            self.driver.Context.synchronize()
        except self._error as lost:
            return self._lose(lost)
        if isinstance(error, self.driver.MemoryError):
            return ExecutionError("The GPU's memory is full. Load fewer models, or smaller ones.")
        return ExecutionError(f"CUDA: {error}") if isinstance(error, self._error) else None

    def _lose(self, error: BaseException) -> DeviceLostError:
        """Mark the context as lost: CUDA can't repair it within the process."""
        self.loss = str(error)
        return DeviceLostError(self.loss)


def _release(driver: Any, primary: Any) -> None:
    with contextlib.suppress(driver.Error):
        primary.detach()
