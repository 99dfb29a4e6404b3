"""Compares an engine's results with native ones, up to the rounding of a different order of operations."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

RELATIVE = 1e-3
"""Allowed difference as a part of the expected element, as in the onnx package's own tests."""

OF_LARGEST = 1e-4
"""Allowed difference as a part of the tensor's largest element, because sums lose the digits of their small terms."""

ABSOLUTE = 2.0**-22
"""Allowed difference of any element. Sigmoid and its like are computed around 0.5, so small results lose their digits:
two processors' kernels differ by 2^-23."""

HALF_STEPS = 4
"""The same for float16 and bfloat16, in steps of the type at the largest element. Engines compute a chain in float32
and round its result alone; native execution rounds between any two operators."""

QUANTIZED_COSINE = 0.97
"""Smallest cosine of quantized results. They have no single right value: each runtime rounds sums differently."""

NOISE_FACTOR = 3
"""Allowed error of quantized results, as a multiple of that between two native computations that are both right."""

STEPS = 255
"""Steps of a quantized tensor, if it uses all of its range."""

SUMMING_OPS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "QLinearConv", "QLinearMatMul"})


def accumulates_quantized(op_types: Iterable[str]) -> bool:
    """Return whether nodes of these types quantize sums, so that one step of difference spreads from node to node.

    ONNX Runtime quantizes what is multiplied by a dequantized weight, too.
    """
    found = set(op_types)
    return any("uantizeLinear" in op or "QLinear" in op for op in found) and not found.isdisjoint(SUMMING_OPS)


def find_excess(expected: Any, other: Any, actual: Any, *, step: float | None) -> str | None:
    """Compare a quantized result with two native ones, whose difference is that of roundings alone.

    Sums that saturate differ by more. The error is the root of the mean square.

    Args:
        expected: Result of native execution in integers.
        other: Result of native execution in floating point between DequantizeLinear and QuantizeLinear.
        actual: Result of the engine, like ``expected`` in shape and type.
        step: The difference between two neighbours among quantized values; None if it is not known.

    Returns:
        None if the engine's error is at most one step, or not much more than that of the other; else a sentence.
    """
    if not isinstance(expected, np.ndarray) or expected.dtype.kind not in "fiu" or not expected.size:
        return None
    right, engine = expected.astype(np.float64), actual.astype(np.float64)
    if not np.isfinite(right).all():
        return None
    noise, error = (float(np.sqrt(np.mean(np.square(v - right)))) for v in (other.astype(np.float64), engine))
    if step is None:
        step = 1.0 if expected.dtype.kind in "iu" else float(np.ptp(right)) / STEPS
    if error <= max(step, NOISE_FACTOR * noise):
        return None
    return f"its error is {error:.3g}, where one step is {step:.3g} and native roundings make up {noise:.3g}"


def find_difference(expected: Any, actual: Any, *, quantized: bool = False) -> str | None:
    """Compare one result.

    Args:
        expected: Result of native execution.
        actual: Result of the engine.
        quantized: True if the nodes quantize sums. Then only the direction of the result is compared.

    Returns:
        None if they agree, else a sentence.
    """
    if not isinstance(expected, np.ndarray):
        return _compare_objects(expected, actual, quantized)
    if expected.shape != actual.shape:
        return f"its shape is {list(actual.shape)}, not {list(expected.shape)}"
    if expected.dtype != actual.dtype:
        return f"its type is {actual.dtype}, not {expected.dtype}"
    floats = expected.dtype.kind in "fV" and ir.DataType.from_numpy(expected.dtype).is_floating_point()
    if quantized and (floats or expected.dtype.kind in "iu"):
        return _compare_direction(expected, actual)
    if not floats:
        wrong = int(np.count_nonzero(expected != actual))
        return f"{wrong} of {expected.size} elements differ" if wrong else None
    return _compare_floats(expected, actual)


def _compare_objects(expected: Any, actual: Any, quantized: bool) -> str | None:
    """Compare sequences and maps element by element."""
    if type(expected) is not type(actual):
        return f"it is a {type(actual).__name__}, not a {type(expected).__name__}"
    if isinstance(expected, float):
        return find_difference(np.array(expected), np.array(actual), quantized=quantized)
    if not isinstance(expected, list | dict):
        return None if expected == actual else f"it is {actual!r}, not {expected!r}"
    keys = range(len(expected)) if isinstance(expected, list) else expected.keys()
    if len(expected) != len(actual) or (isinstance(expected, dict) and expected.keys() != actual.keys()):
        return f"it has {len(actual)} elements or other keys, not {len(expected)}"
    problems = (find_difference(expected[key], actual[key], quantized=quantized) for key in keys)
    return next((problem for problem in problems if problem), None)


def _compare_floats(expected: np.ndarray, actual: np.ndarray) -> str | None:
    if expected.dtype.itemsize >= np.dtype(np.float32).itemsize:
        with np.errstate(invalid="ignore", over="ignore"):
            worst, largest = (float(np.abs(values).max(initial=0)) for values in (actual - expected, expected))
        if worst <= OF_LARGEST * largest < math.inf:
            return None  # the rest takes five times as long
    reference, result = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.abs(reference[np.isfinite(reference)])
    largest = float(finite.max()) if finite.size else 0.0
    step = float(ml_dtypes.finfo(expected.dtype).eps)  # type: ignore[no-untyped-call]
    of_largest = {8: OF_LARGEST, 4: OF_LARGEST, 2: HALF_STEPS * step}.get(expected.dtype.itemsize, 0.0)
    relative, absolute = max(RELATIVE, step), of_largest * largest + ABSOLUTE
    close = np.isclose(result, reference, rtol=relative, atol=absolute, equal_nan=True)
    if close.all():
        return None
    with np.errstate(over="ignore"):  # infinities of different sign
        worst = float(np.nanmax(np.abs(np.where(close, 0, np.nan_to_num(result) - np.nan_to_num(reference)))))
    return f"{int((~close).sum())} of {close.size} elements differ, by up to {worst:.3g} (largest value {largest:.3g})"


def _compare_direction(expected: np.ndarray, actual: np.ndarray) -> str | None:
    if np.array_equal(expected, actual, equal_nan=True):
        return None
    a, b = expected.astype(np.float64).ravel(), actual.astype(np.float64).ravel()
    with np.errstate(invalid="ignore"):  # infinities have no direction
        norms = float(np.linalg.norm(a) * np.linalg.norm(b))
        cosine = float(a @ b) / norms if norms else 0.0
    return None if cosine >= QUANTIZED_COSINE else f"the cosine with the native result is {cosine:.4f}"
