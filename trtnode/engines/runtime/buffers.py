"""Host memory of boundary tensors and of results.

Where every shape is fixed, a boundary tensor has one address for life, and a stage's run is one call without arguments.
Boundary tensors that are never alive together share memory.
Results from 16 KB on are handed to the caller without a copy. Their memory is used again once the caller has dropped
every view of it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from trtnode.partitioner.graph.view import TensorSpec

ALIGNMENT = 64
"""Bytes; one cache line, and the widest vector register that the engine libraries load from."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """The stages during which a tensor is alive.

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
        """Return the lifetime of a tensor of known type and shape."""
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
    """Return one buffer for each tensor, cut out of one block by ``plan_offsets``."""
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
    """Return a copy of a value, in the element type of an engine's input or output."""
    assert spec.dtype is not None
    array = sample[spec.name]
    buffer = np.empty(array.shape, spec.dtype.numpy())
    np.copyto(buffer, array)
    return buffer


class ResultSlot:
    """Memory for the results of one run.

    A result can be handed out without a copy as long as nobody writes to it while the caller refers to it. The memory
    of each result is a bytearray. An array that is handed out refers to it, and every view of that array refers to the
    array. So the bytearray's reference count tells whether any view is left.

    Attributes:
        buffers: The arrays that engines write, by name.
    """

    def __init__(self, outputs: Sequence[TensorSpec]) -> None:
        self._owners = [bytearray(s.size_bytes + ALIGNMENT) for s in outputs]
        self._arrays = [(s.name, _array_maker(s, owner)) for s, owner in zip(outputs, self._owners, strict=True)]
        self.buffers = self.hand_out()
        self._references = sum(map(sys.getrefcount, self._owners))

    def is_free(self) -> bool:
        """Return whether the caller has dropped every view."""
        return sum(map(sys.getrefcount, self._owners)) == self._references

    def hand_out(self) -> dict[str, np.ndarray]:
        """Return arrays over this memory, which the caller may keep."""
        results = {}
        for name, array in self._arrays:  # a comprehension would be one call more on the request path
            results[name] = array()
        return results


def _array_maker(spec: TensorSpec, owner: bytearray) -> Callable[[], np.ndarray]:
    shape = spec.static_shape
    assert spec.dtype is not None
    assert shape is not None
    array: Callable[..., np.ndarray] = np.ndarray
    return functools.partial(array, shape, spec.dtype.numpy(), owner, _padding(owner))


def _padding(owner: bytearray) -> int:
    """Return the number of bytes to the first aligned address."""
    return -np.frombuffer(owner, np.uint8).ctypes.data % ALIGNMENT
