"""Memory of an engine's inputs and results where shapes vary. Large tensors are neither copied in nor copied out.

Large inputs are read where they lie. Large results are written into tensors that OpenVINO enlarges where it must. The
caller gets such a tensor's memory, and a tensor is written again once the caller has dropped every view of it.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trtnode.engines.openvino.library import ov

LARGE_BYTES = 262_144
"""Tensors from this size on are not copied. For smaller ones, a copy costs less than binding other memory."""

KEPT_TENSORS = 3
"""Tensors that are kept for each result. A caller who holds more results gets new memory."""

HEADROOM = 4
"""A new tensor has room for a result that is larger by one part of so many: a decoder's grow by a token in each run."""


class Alias:
    """Memory that numpy arrays refer to, and what keeps it alive.

    Attributes:
        maker: The compiled model that has written it, if one has.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_owner", "maker")

    def __init__(self, array: np.ndarray, owner: object, maker: object = None) -> None:
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}
        self._owner = owner
        self.maker = maker


class Inputs:
    """The inputs of one request, as OpenVINO is to read them."""

    def __init__(self, count: int) -> None:
        self._copies: list[np.ndarray | None] = [None] * count

    def place(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return large arrays themselves, and copies of the others in memory that stays the same."""
        return [self._place(place, array) for place, array in enumerate(arrays)]

    def _place(self, place: int, array: np.ndarray) -> np.ndarray:
        if array.nbytes >= LARGE_BYTES:
            return array if array.flags.writeable else np.asarray(Alias(array, array))  # OpenVINO only reads it
        copy = self._copies[place]
        if copy is None or copy.shape != array.shape:
            copy = self._copies[place] = np.empty_like(array)
        np.copyto(copy, array)
        return copy


class _Tensor:
    """A tensor of OpenVINO that a result is written into."""

    def __init__(self, port: Any, sizes: Sequence[int]) -> None:
        shape = list(sizes)
        axis = next((n for n, size in enumerate(port.get_partial_shape()) if size.is_dynamic), None)
        if axis is not None:
            shape[axis] += -(-shape[axis] // HEADROOM)
        self.tensor = ov.Tensor(port.get_element_type(), ov.Shape(shape))
        self.elements = math.prod(shape)
        self._lent: Callable[[], object] = lambda: None

    def is_free(self, elements: int) -> bool:
        """Return whether the caller has dropped every view, and so many elements need no more memory."""
        return self._lent() is None and self.elements >= elements

    def lend(self, result: np.ndarray, maker: object) -> np.ndarray:
        """Return a result that lies here. It stays until the caller has dropped it."""
        alias = Alias(result, self.tensor, maker)
        self._lent = weakref.ref(alias)
        return np.asarray(alias)


class Results:
    """The results of one request, which belong to the caller."""

    def __init__(self, compiled: Any, request: Any) -> None:
        self._compiled = compiled
        self._request = request
        self._ports = list(compiled.outputs)
        self._large: dict[int, tuple[int, ...]] = {}
        self._bound: list[_Tensor | None] = [None] * len(self._ports)
        self._kept: list[list[_Tensor]] = [[] for _ in self._ports]

    def prepare(self) -> None:
        """Bind tensors that no caller holds, to those results that were large in the last run."""
        for place, shape in self._large.items():
            bound, elements = self._bound[place], math.prod(shape)
            if bound is None or not bound.is_free(elements):
                self._bind(place, shape, elements)

    def take(self) -> list[np.ndarray]:
        """Return the results of a run."""
        return [self._take(place, bound) for place, bound in enumerate(self._bound)]

    def _bind(self, place: int, shape: Sequence[int], elements: int) -> None:
        kept = [one for one in self._kept[place] if one.elements >= elements]
        free = next((one for one in kept if one.is_free(elements)), None)
        if free is None:
            kept.append(free := _Tensor(self._ports[place], shape))
        self._kept[place] = kept[-KEPT_TENSORS:]
        self._bound[place] = free
        self._request.set_output_tensor(place, free.tensor)

    def _take(self, place: int, bound: _Tensor | None) -> np.ndarray:
        result: np.ndarray = (bound.tensor if bound else self._request.get_output_tensor(place)).data
        if result.nbytes < LARGE_BYTES:
            self._large.pop(place, None)
            return result.copy()
        self._large[place] = result.shape
        return bound.lend(result, self._compiled) if bound else result.copy()


def made_by(array: np.ndarray, maker: object) -> bool:
    """Return whether an array is a whole result of a compiled model, as it was lent."""
    return isinstance(array.base, Alias) and array.base.maker is maker
