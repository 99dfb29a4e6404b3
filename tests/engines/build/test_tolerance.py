"""Results that count as the same, and the sentence about a difference."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from arrays import f32, texts
from trtnode.engines.build.tolerance import accumulates_quantized, find_difference, find_excess


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        pytest.param(f32(1, 2, 3), f32(1, 2, 3), id="equal"),
        pytest.param(f32(1000), f32(1000.9), id="within-a-thousandth"),
        pytest.param(f32(1000, 1e-3), f32(1000, 0), id="small-beside-large"),
        pytest.param(f32(np.nan, np.inf, -np.inf), f32(np.nan, np.inf, -np.inf), id="same-special-values"),
        pytest.param(f32(), f32(), id="no-elements"),
        pytest.param(f32(0), f32(1e-8), id="almost-zero"),
        pytest.param(f32(2e-5, 4e-5), f32(2e-5 + 2**-23, 4e-5 - 2**-23), id="small-results-of-sigmoid"),
        pytest.param(np.array([1, 2]), np.array([1, 2]), id="integers"),
        pytest.param(np.array(True), np.array(True), id="bool"),
        pytest.param(texts("a"), texts("a"), id="strings"),
        pytest.param(np.float16([1]), np.float16([1.0009765625]), id="one-step-of-float16"),
        pytest.param(np.float16([1, 1e-3]), np.float16([1.003, 3e-3]), id="a-few-steps-of-the-largest-float16"),
        pytest.param(
            f32(1).astype(ml_dtypes.bfloat16), f32(1.0078125).astype(ml_dtypes.bfloat16), id="one-of-bfloat16"
        ),
        pytest.param([f32(1), f32(2)], [f32(1), f32(2.0001)], id="sequence"),
        pytest.param([{"a": 1.0}], [{"a": 1.00001}], id="maps"),
        pytest.param([{1: "a"}], [{1: "a"}], id="maps-of-strings"),
        pytest.param([], [], id="empty-sequence"),
        pytest.param(None, None, id="absent-optional"),
        pytest.param(float("nan"), float("nan"), id="nan"),
    ],
)
def test_results_that_agree(expected: Any, actual: Any) -> None:
    assert find_difference(expected, actual) is None
    assert find_difference(expected, expected, quantized=True) is None


@pytest.mark.parametrize(
    ("expected", "actual", "message"),
    [
        pytest.param(f32(1, 2), f32(1), r"its shape is \[1\], not \[2\]", id="shape"),
        pytest.param(f32(1), np.array([1.0]), "its type is float64, not float32", id="type"),
        pytest.param(f32(1, 2, 3), f32(1, 2, 4), r"1 of 3 elements differ, by up to 1 \(largest value 3\)", id="value"),
        pytest.param(f32(1), f32(np.nan), "1 of 1 elements differ", id="nan"),
        pytest.param(f32(np.nan), f32(0), "1 of 1 elements differ", id="nan-lost"),
        pytest.param(f32(np.inf), f32(-np.inf), "1 of 1 elements differ", id="infinity"),
        pytest.param(f32(np.inf, 1), f32(3e38, 1), "1 of 2 elements differ", id="infinity-lost"),
        pytest.param(np.array([1, 2]), np.array([1, 3]), "1 of 2 elements differ", id="integers"),
        pytest.param(np.array([2**53]), np.array([2**53 + 1]), "1 of 1 elements differ", id="large-integers"),
        pytest.param(texts("a", "b"), texts("a", "c"), "1 of 2 elements differ", id="strings"),
        pytest.param(
            f32(1).astype(ml_dtypes.bfloat16), f32(1.1).astype(ml_dtypes.bfloat16), "1 of 1 elements", id="bfloat16"
        ),
        pytest.param(np.float16([1, 0]), np.float16([1, 0.01]), "1 of 2 elements differ", id="float16"),
        pytest.param([f32(1)], [f32(2)], "1 of 1 elements differ", id="sequence"),
        pytest.param([f32(1)], [f32(1), f32(1)], "2 elements", id="length"),
        pytest.param([f32(*range(2000))], [f32(*range(1999), 0)], "1 of 2000 elements", id="long-sequence-element"),
        pytest.param([{"a": 1.0}], [{"a": 2.0}], "1 of 1 elements", id="map"),
        pytest.param([{"a": 1.0}], [{"b": 1.0}], "other keys", id="keys"),
        pytest.param(None, f32(1), "it is a ndarray, not a NoneType", id="optional"),
        pytest.param("a", "b", "it is 'b', not 'a'", id="text"),
    ],
)
def test_results_that_differ(expected: Any, actual: Any, message: str) -> None:
    difference = find_difference(expected, actual)

    assert difference is not None
    assert re.search(message, difference)


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        pytest.param(np.uint8([10, 20, 30]), np.uint8([11, 20, 29]), True, id="one-step"),
        pytest.param(np.uint8([10, 0, 0]), np.uint8([0, 0, 10]), False, id="other-direction"),
        pytest.param(f32(0, 0), f32(0, 0), True, id="zeros"),
        pytest.param(f32(0, 0), f32(1, 0), False, id="zeros-lost"),
        pytest.param(f32(1, 2), f32(np.nan, 2), False, id="nan"),
        pytest.param(f32(np.nan, -np.inf), f32(np.nan, -np.inf), True, id="same-special-values"),
        pytest.param(f32(np.inf, 1), f32(np.inf, 2), False, id="infinity"),
        pytest.param(texts("a"), texts("a"), True, id="labels"),
        pytest.param(texts("a"), texts("b"), False, id="other-labels"),
        pytest.param(np.array([True]), np.array([False]), False, id="bool"),
    ],
)
def test_quantized_results_are_compared_by_direction(expected: np.ndarray, actual: np.ndarray, same: bool) -> None:
    assert (find_difference(expected, actual, quantized=True) is None) == same


@pytest.mark.parametrize(
    ("op_types", "expected"),
    [
        (("QuantizeLinear", "Conv", "DequantizeLinear"), True),
        (("QLinearConv",), True),
        (("QuantizeLinear", "Relu"), False),
        (("Conv", "Relu"), False),
        ((), False),
    ],
)
def test_quantized_sums_are_recognized(op_types: tuple[str, ...], expected: bool) -> None:
    assert accumulates_quantized(op_types) == expected


@pytest.mark.parametrize(
    ("other", "actual", "step", "same"),
    [
        pytest.param([0, 100, 200], [1, 99, 201], 1.0, True, id="one-step-everywhere"),
        pytest.param([0, 100, 200], [0, 100, 190], 1.0, False, id="saturated"),
        pytest.param([4, 96, 203], [8, 107, 193], 1.0, True, id="no-worse-than-native-roundings"),
        pytest.param([0, 100, 200], [0.5, 100, 200], None, True, id="less-than-a-step-of-the-range"),
        pytest.param([0, 100, 200], [8, 100, 200], None, False, id="many-steps-of-the-range"),
    ],
)
def test_quantized_results_may_differ_by_a_step_or_as_native_ones_do(
    other: list[float], actual: list[float], step: float | None, same: bool
) -> None:
    found = find_excess(f32(0, 100, 200), f32(*other), f32(*actual), step=step)

    assert (found is None) == same
