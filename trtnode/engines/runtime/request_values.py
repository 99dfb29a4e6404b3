"""Values of a request that engines can't answer: other defaults than theirs, NaN and infinity."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy import vdot

from trtnode.engines.backends.protocols import Engine
from trtnode.partitioner.graph.view import TensorSpec

EXPONENT_BITS = {ir.DataType.FLOAT16: 0x7C00, ir.DataType.BFLOAT16: 0x7F80}
"""Exponents that are all ones, which NaN and infinity have, of the types that numpy computes slowly with."""

ONE_PASS_ELEMENTS = 8192
"""Largest array whose squares BLAS adds. OpenBLAS starts threads for more than 10,000, which disturb engines."""

FiniteCheck = tuple[str, Callable[[np.ndarray], bool]]
"""An input that can hold NaN or infinity, and the fastest function that tells whether an array of its type does not."""


def finite_checks(inputs: Sequence[TensorSpec]) -> tuple[FiniteCheck, ...]:
    """Return a check for each input of floats."""
    floats = [(spec.name, spec.dtype) for spec in inputs if spec.dtype is not None and spec.dtype.is_floating_point()]
    return tuple((name, finite_check(dtype)) for name, dtype in floats)


def finite_check(dtype: ir.DataType) -> Callable[[np.ndarray], bool]:
    """Return a function that tells whether an array of a type holds neither NaN nor infinity."""
    exponent = EXPONENT_BITS.get(dtype)
    return _all_finite if exponent is None else functools.partial(_all_below, exponent)


def non_finite_input(
    checks: Sequence[FiniteCheck], feeds: Mapping[str, Any], engines: Collection[Engine] = ()
) -> str | None:
    """Return the name of an input that holds NaN or infinity; None if none does.

    What one of the engines has made isn't read again: NaN in it was born inside the engine.
    """
    for name, is_finite in checks:
        if name in feeds and not any(engine.made(feeds[name]) for engine in engines) and not is_finite(feeds[name]):
            return name
    return None


def _all_finite(array: np.ndarray) -> bool:
    """Add up squares first, which takes a quarter of the time: a finite sum has finite addends."""
    if array.size <= ONE_PASS_ELEMENTS and isfinite(vdot(array, array)):
        return True
    return int(np.count_nonzero(np.isfinite(array))) == array.size  # half the time of all() for small arrays


def _all_below(exponent: int, array: np.ndarray) -> bool:
    return bool((array.view(np.uint16) & 0x7FFF).max(initial=0) < exponent)


def replaced_default(defaults: Mapping[str, np.ndarray], feeds: Mapping[str, Any]) -> str | None:
    """Return the name of an input whose default a request replaces by another value, bit by bit; None if none."""
    for name in defaults.keys() & feeds.keys():
        default, given = defaults[name], feeds[name]
        if (default.dtype, default.shape) != (given.dtype, given.shape) or default.tobytes() != given.tobytes():
            return name
    return None
