"""Memory for results: an engine writes it, the caller owns it, and it is used again once the caller has let go."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence

import numpy as np

from engines.buffers import ALIGNMENT
from partitioner import TensorSpec


class ResultSlot:
    """Memory for the results of one run.

    A result can be handed out without a copy as long as nobody writes to it while the caller still looks at it. The
    memory of each result is a bytearray; an array that is handed out refers to it, and numpy lets every view refer
    to the first array that stands on no other array. So the bytearray's reference count tells whether anything that
    numpy knows of is left.

    Attributes:
        buffers: What engines write, by name.
    """

    def __init__(self, outputs: Sequence[TensorSpec]) -> None:
        self._owners = [bytearray(s.size_bytes + ALIGNMENT) for s in outputs]
        self._arrays = [(s.name, _array_maker(s, owner)) for s, owner in zip(outputs, self._owners, strict=True)]
        self.buffers = self.hand_out()
        self._references = sum(map(sys.getrefcount, self._owners))

    def is_free(self) -> bool:
        """Whether the caller has let go of everything."""
        return sum(map(sys.getrefcount, self._owners)) == self._references

    def hand_out(self) -> dict[str, np.ndarray]:
        """Arrays over this memory, for the caller to keep."""
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
    """Bytes to the first aligned address."""
    return -np.frombuffer(owner, np.uint8).ctypes.data % ALIGNMENT
