"""Error codes of the driver, and the exceptions that pycuda makes of them."""

from __future__ import annotations

INVALID_VALUE, OUT_OF_MEMORY = 1, 2
NO_DEVICE, INVALID_DEVICE = 100, 101
INVALID_CONTEXT, INVALID_HANDLE = 201, 400
ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, LAUNCH_FAILED = 700, 702, 719

TEXTS = {
    INVALID_VALUE: "invalid argument",
    OUT_OF_MEMORY: "out of memory",
    NO_DEVICE: "no CUDA-capable device is detected",
    INVALID_DEVICE: "invalid device ordinal",
    INVALID_CONTEXT: "invalid device context",
    INVALID_HANDLE: "invalid resource handle",
    ILLEGAL_ADDRESS: "an illegal memory access was encountered",
    LAUNCH_TIMEOUT: "the launch timed out and was terminated",
    LAUNCH_FAILED: "unspecified launch failure",
}
"""Texts of ``cuGetErrorString``."""


class CudaError(Exception):
    """A call of the driver that does not succeed; not yet an exception of pycuda."""

    def __init__(self, code: int) -> None:
        super().__init__(TEXTS[code])
        self.code = code


class Error(Exception):
    """Base of pycuda's exceptions."""


class MemoryError(Error):  # noqa: A001  (pycuda's names)
    pass


class LogicError(Error):
    pass


class LaunchError(Error):
    pass


class RuntimeError(Error):  # noqa: A001
    pass


KINDS = {
    OUT_OF_MEMORY: MemoryError,
    NO_DEVICE: RuntimeError,
    LAUNCH_TIMEOUT: LaunchError,
    LAUNCH_FAILED: LaunchError,
}
"""The others are logic errors."""


def error_of(call: str, code: int) -> Error:
    """Return pycuda's exception for an error code."""
    return KINDS.get(code, LogicError)(f"{call} failed: {TEXTS[code]}")
