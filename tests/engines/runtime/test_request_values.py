"""NaN and infinity in the inputs of a request: found in every type and size, and answered natively."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from arrays import floats
from comparison import AssertSame, RunPlainly
from trtnode.engines.compile.opening import open_model
from trtnode.engines.runtime.executor import Executable
from trtnode.engines.runtime.request_values import finite_check
from workshop import Workshop

RELU = "g (float[N,4] x, float[N,4] z) => (float[N,4] y) { a = Relu(x) b = Add(a, z) y = Softmax(b) }"


def is_finite(array: np.ndarray) -> bool:
    return finite_check(ir.DataType.from_numpy(array.dtype))(array)


@pytest.mark.parametrize("size", [1, 7, 20_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_found_wherever_they_are(size: int, dtype: type, value: float) -> None:
    array = np.ones(size, dtype)
    for place in {0, size // 2, size - 1}:
        array[place] = value

        assert not is_finite(array)

        array[place] = 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_the_largest_numbers_are_finite(dtype: type) -> None:
    largest = ml_dtypes.finfo(dtype).max

    assert is_finite(np.array([[largest, -largest]] * 4, dtype))
    assert is_finite(np.array([[largest, -largest]] * 4, dtype)[::2, ::-1])
    assert is_finite(np.array(largest, dtype))
    assert is_finite(np.zeros((0, 4), dtype))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["x", "z"])
@pytest.mark.parametrize("rows", ["N", "2"])
def test_a_request_with_nan_or_infinity_is_answered_natively(
    value: float,
    name: str,
    rows: str,
    shared_workshop: Workshop,
    fallbacks: Callable[[Executable], list[str]],
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    source = shared_workshop.write(RELU.replace("N", rows))
    executable = open_model(shared_workshop.compile_file(source))
    reasons = fallbacks(executable)
    feeds = {"x": floats(2, 4), "z": floats(2, 4, seed=1)}
    executable.run(feeds)
    assert reasons == []

    feeds[name][1, 2] = value

    same(executable.run(feeds), plain(source, feeds))
    assert executable.needs_native(feeds)
    assert reasons == ["non_finite_input"]


def test_engines_answer_where_the_user_says_so_and_where_nothing_else_can(
    workshop: Workshop, fallbacks: Callable[[Executable], list[str]], tmp_path: pathlib.Path
) -> None:
    source = workshop.write(RELU)
    whole, stripped = tmp_path / "whole.onnx", tmp_path / "stripped.onnx"
    compiled = workshop.compile(source)
    compiled.save(whole)
    compiled.without_fallback().save(stripped)
    by_choice, by_need = open_model(whole), open_model(stripped)
    by_choice.nan_natively = False
    feeds = {"x": np.full((2, 4), np.nan, np.float32), "z": floats(2, 4)}

    for executable in (by_choice, by_need):
        reasons = fallbacks(executable)

        assert executable.run(feeds)["y"].shape == (2, 4)
        assert not executable.needs_native(feeds)
        assert reasons == []
