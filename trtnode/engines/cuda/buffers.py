"""Memory of single tensors. It grows to the largest size that is asked for, and stays until it is freed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

DEVICE_ALIGNMENT = 256
"""Bytes. TensorRT requires it of every address, also of a tensor without elements."""


class DeviceBuffer:
    """Memory of the GPU for one tensor.

    Attributes:
        address: Changes only in ``fit``.
    """

    def __init__(self, driver: Any) -> None:
        self.address = 0
        self._allocate = driver.mem_alloc
        self._block: Any = None
        self._capacity = 0

    def fit(self, size: int) -> int:
        """Return the address of memory for this many bytes. The content is lost when it grows."""
        if size > self._capacity or self._block is None:
            capacity = max(-(-size // DEVICE_ALIGNMENT), 1) * DEVICE_ALIGNMENT
            self.free()
            self._block = self._allocate(capacity)
            self.address, self._capacity = int(self._block), capacity
        return self.address

    def free(self) -> None:
        """Give the memory back."""
        block, self._block, self._capacity, self.address = self._block, None, 0, 0
        if block is not None:
            block.free()


class PinnedBuffer:
    """Page-locked memory of the host for one tensor. Only such memory is copied asynchronously.

    Attributes:
        array: The tensor, after ``fit``.
        raw: Its bytes. pycuda copies these, because not all element types have a buffer protocol.
    """

    def __init__(self, driver: Any, dtype: np.dtype) -> None:
        self.array = np.empty(0, dtype)
        self.raw = np.empty(0, np.uint8)
        self._dtype = dtype
        self._allocate = driver.pagelocked_empty
        self._block: Any = None

    def fit(self, shape: tuple[int, ...]) -> None:
        """Make room for a shape. The content is lost."""
        size = math.prod(shape) * self._dtype.itemsize
        if self._block is None or size > self._block.nbytes:
            self.free()
            self._block = self._allocate(max(size, 1), np.uint8)
        self.raw = self._block[:size]
        self.array = self.raw.view(self._dtype).reshape(shape)

    def free(self) -> None:
        """Give the memory back. Nothing may refer to the array any more."""
        block, self._block = self._block, None
        self.array, self.raw = np.empty(0, self._dtype), np.empty(0, np.uint8)
        if block is not None:
            block.base.free()
