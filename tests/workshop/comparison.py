"""Answers of plain ONNX Runtime, and their comparison with others."""

from __future__ import annotations

import ctypes
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime

RunPlainly = Callable[[pathlib.Path, Mapping[str, Any]], dict[str, Any]]
AssertSame = Callable[..., None]

SMALL_FLOATS = {
    f"tensor({name})": onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, name.upper()))
    for name in ("bfloat16", "float8e4m3fn", "float8e5m2")
}


def run_plainly(path: pathlib.Path, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Run a file as any user of ONNX Runtime would."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    values = (*session.get_inputs(), *session.get_outputs())
    names = [v.name for v in session.get_outputs()]
    if not any(v.type in SMALL_FLOATS for v in values):
        return dict(zip(names, session.run(None, dict(feeds)), strict=True))
    wrapped = {name: _to_ort_value(value) for name, value in feeds.items()}
    return dict(zip(names, map(_from_ort_value, session.run_with_ort_values(None, wrapped)), strict=True))


def assert_same(actual: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float = 1e-5) -> None:
    """The same names with the same types and shapes, and values that differ by rounding only."""
    assert list(actual) == list(expected)
    for name in expected:
        _assert_equal(actual[name], expected[name], tolerance)


def _assert_equal(actual: Any, expected: Any, tolerance: float) -> None:
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            _assert_equal(one, other, tolerance)
    elif isinstance(expected, np.ndarray) and expected.dtype.kind in "fV":
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        limit = max(tolerance, 1e-3 if expected.dtype.itemsize == 2 else 0.0)
        np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=limit, atol=limit)
    elif isinstance(expected, np.ndarray):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        assert actual.tolist() == expected.tolist()
    else:
        assert actual == expected


def _to_ort_value(array: np.ndarray) -> onnxruntime.OrtValue:
    if array.dtype not in SMALL_FLOATS.values():
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    bits = array.view(f"u{array.dtype.itemsize}")
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, kind)


def _from_ort_value(value: onnxruntime.OrtValue) -> np.ndarray:
    if value.data_type() not in SMALL_FLOATS:
        return np.asarray(value.numpy())
    memory = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(memory, SMALL_FLOATS[value.data_type()]).reshape(value.shape())
