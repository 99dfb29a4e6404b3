"""The signature of a model, and the check of a caller's inputs against it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.errors import InvalidInputError
from trtnode.partitioner.graph.view import TensorSpec, describe

_Taken = tuple[str, np.dtype, tuple[int, ...]]
"""Name, dtype and shape of an input."""


@dataclasses.dataclass(frozen=True, slots=True)
class Signature:
    """Inputs and outputs of a model, in order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    _expected: dict[str, tuple[TensorSpec, np.dtype | None]] = dataclasses.field(init=False, repr=False, compare=False)
    _required: tuple[str, ...] = dataclasses.field(init=False, repr=False, compare=False)
    _names: frozenset[str] = dataclasses.field(init=False, repr=False, compare=False)
    _last: tuple[_Taken, ...] | None = dataclasses.field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        expected = {s.name: (s, None if s.dtype is None else s.dtype.numpy()) for s in self.inputs}
        object.__setattr__(self, "_expected", expected)
        object.__setattr__(self, "_required", tuple(s.name for s in self.inputs if _is_required(s)))
        object.__setattr__(self, "_names", frozenset(s.name for s in self.outputs))

    def check(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None) -> Mapping[str, Any]:
        """Check a caller's inputs and wanted outputs.

        Returns:
            The inputs, where each value that should be an array is one.

        Raises:
            InvalidInputError: An input or output doesn't fit. The message names it and its declaration.
        """
        if feeds.__class__ is not dict and not isinstance(feeds, Mapping):
            name, given = next((s.name for s in self.inputs), "name"), type(feeds).__name__
            form = f"Give a dictionary of arrays by input name, such as {{{name!r}: array}}, not {given}."
            raise InvalidInputError(f"{form} The model takes {self._listed()}.")
        if outputs is None and self._is_like_last(feeds):
            return feeds
        for name in self._required:
            if name not in feeds:
                raise InvalidInputError(f"Input {name!r} is missing. The model takes {self._listed()}.")
        checked = feeds
        for name, value in feeds.items():
            expected = self._expected.get(name)
            if expected is None:
                raise InvalidInputError(f"There is no input {name!r}. The model takes {self._listed()}.")
            spec, dtype = expected
            if dtype is None:
                continue
            if not isinstance(value, np.ndarray):
                value = _as_array(spec, value)
                checked = {**checked, name: value}
            if value.dtype != dtype or not _fits(spec.shape, value.shape):
                _check(spec, value)
        if outputs is not None and not self._names.issuperset(outputs):
            unknown = next(name for name in outputs if name not in self._names)
            raise InvalidInputError(
                f"There is no output {unknown!r}. The model gives {', '.join(sorted(self._names))}."
            )
        if all(value.__class__ is np.ndarray for value in feeds.values()):
            taken = tuple((name, value.dtype, value.shape) for name, value in feeds.items())
            object.__setattr__(self, "_last", taken)
        return checked

    def _is_like_last(self, feeds: Mapping[str, Any]) -> bool:
        """Return whether the inputs look like the last ones that passed. It is quick, and False may be wrong."""
        last = self._last
        if last is None or len(feeds) != len(last):
            return False
        for name, dtype, shape in last:
            value = feeds.get(name)
            if value.__class__ is not np.ndarray or value.dtype is not dtype or value.shape != shape:
                return False
        return True

    def _listed(self) -> str:
        return ", ".join(f"{s.name} {describe(s)}" for s in self.inputs) or "no inputs"


def _as_array(spec: TensorSpec, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError:
        raise InvalidInputError(f"Input {spec.name!r} must be {describe(spec)}, but is no array.") from None


def _check(spec: TensorSpec, value: np.ndarray) -> None:
    if not is_defined(spec, value):
        given = f"{value.dtype}[{', '.join(map(str, value.shape))}]"
        raise InvalidInputError(f"Input {spec.name!r} must be {describe(spec)}, but is {given}.")


def _is_required(spec: TensorSpec) -> bool:
    return not spec.optional and spec.dtype is not None


def is_defined(spec: TensorSpec, value: np.ndarray) -> bool:
    """Return whether an array has the type and a shape that a tensor may have."""
    return _same_type(spec, value) and _fits(spec.shape, value.shape)


def _same_type(spec: TensorSpec, value: np.ndarray) -> bool:
    if spec.dtype == ir.DataType.STRING:
        return value.dtype.kind in "OU"
    return spec.dtype is not None and value.dtype == spec.dtype.numpy()


@functools.lru_cache(maxsize=1024)
def _fits(declared: tuple[int | str | None, ...] | None, shape: tuple[int, ...]) -> bool:
    """Return whether a tensor may have a shape. Callers repeat their shapes, so the answer is mostly cached."""
    if not declared:
        return True  # ONNX Runtime takes any shape where the model declares a scalar, and so do some exporters
    return len(shape) == len(declared) and all(
        not isinstance(d, int) or d == size for d, size in zip(declared, shape, strict=True)
    )
