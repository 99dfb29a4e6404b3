"""Host buffers for boundary tensors: aligned, and shared by tensors that are never alive at the same time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

import numpy as np

from partitioner import TensorSpec

ALIGNMENT = 64
"""Bytes; one cache line, and the widest vector register that the engine libraries load from."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """When a tensor is alive.

    Attributes:
        dtype: Element type.
        shape: Its sizes.
        first: Index of the stage that writes it; -1 for an input of the model.
        last: Index of the last stage that reads it; the number of stages for an output of the model.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    first: int
    last: int

    @classmethod
    def of(cls, spec: TensorSpec, *, first: int, last: int) -> Lifetime:
        """When a tensor of known type and shape is alive."""
        shape = spec.static_shape
        assert spec.dtype is not None
        assert shape is not None
        return cls(dtype=spec.dtype.numpy(), shape=shape, first=first, last=last)

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor, rounded up to whole cache lines."""
        size = math.prod(self.shape) * self.dtype.itemsize
        return max(-(-size // ALIGNMENT), 1) * ALIGNMENT


def plan_offsets(lifetimes: Mapping[str, Lifetime]) -> tuple[dict[str, int], int]:
    """Place tensors in one block so that tensors alive at the same time never overlap.

    Greedy by size: the largest tensor first, each in the lowest gap that holds it (Pisarchyk and Lee, "Efficient
    memory management for deep neural net inference", 2020).

    Returns:
        The offset of each tensor and the size of the block, both in bytes.
    """
    placed: list[tuple[int, Lifetime]] = []
    offsets: dict[str, int] = {}
    for name, tensor in sorted(lifetimes.items(), key=lambda item: -item[1].size_bytes):
        neighbours = ((o, o + t.size_bytes) for o, t in placed if t.first <= tensor.last and tensor.first <= t.last)
        offset = _lowest_gap(sorted(neighbours), tensor.size_bytes)
        placed.append((offset, tensor))
        offsets[name] = offset
    return offsets, max((offset + tensor.size_bytes for offset, tensor in placed), default=0)


def allocate(lifetimes: Mapping[str, Lifetime]) -> dict[str, np.ndarray]:
    """One buffer a tensor, cut out of one block by ``plan_offsets``."""
    offsets, size = plan_offsets(lifetimes)
    block = np.zeros(size + ALIGNMENT, dtype=np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return {
        name: np.ndarray(tensor.shape, tensor.dtype, buffer=block.data, offset=start + offsets[name])
        for name, tensor in lifetimes.items()
    }


def _lowest_gap(taken: Iterable[tuple[int, int]], size: int) -> int:
    offset = 0
    for start, end in taken:
        if start - offset >= size:
            break
        offset = max(offset, end)
    return offset


def input_buffer(sample: Mapping[str, np.ndarray], spec: TensorSpec) -> np.ndarray:
    """A copy of a value, in the element type of an engine's input or output."""
    assert spec.dtype is not None
    array = sample[spec.name]
    buffer = np.empty(array.shape, spec.dtype.numpy())
    np.copyto(buffer, array)
    return buffer
