"""Memory for results: an engine writes it, the caller owns it, and it is used again once the caller has let go."""

from __future__ import annotations

import sys
from collections.abc import Sequence

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
        self._layouts = [
            (s.name, s.static_shape, s.dtype.numpy(), owner, _padding(owner))
            for s, owner in zip(outputs, self._owners, strict=True)
            if s.dtype is not None
        ]
        self.buffers = self.hand_out()
        self._unused = self._references()

    @property
    def free(self) -> bool:
        """Whether the caller has let go of everything."""
        return self._references() == self._unused

    def hand_out(self) -> dict[str, np.ndarray]:
        """Arrays over this memory, for the caller to keep."""
        return {name: np.ndarray(shape, dtype, owner, padding) for name, shape, dtype, owner, padding in self._layouts}

    def _references(self) -> list[int]:
        return [sys.getrefcount(owner) for owner in self._owners]


def _padding(owner: bytearray) -> int:
    """Bytes to the first aligned address."""
    return -np.frombuffer(owner, np.uint8).ctypes.data % ALIGNMENT
