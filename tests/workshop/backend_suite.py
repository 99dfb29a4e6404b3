"""The onnx package's backend test suite, with plain ONNX Runtime behind it."""

from __future__ import annotations

import ctypes
import functools
import unittest
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.backend.base
import onnxruntime
from onnx.backend.test.runner import Runner

SAMPLE_EVERY = 25

SMALL_FLOATS = {
    f"tensor({name})": onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, name.upper()))
    for name in ("bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
}


class Prepared:
    """A model behind the suite's own interface: positional inputs, positional outputs."""

    def __init__(self, model: onnx.ModelProto, run: Callable[[dict[str, Any]], Iterable[Any]]) -> None:
        constants = {t.name for t in model.graph.initializer}
        self._names = [v.name for v in model.graph.input if v.name not in constants]
        self._run = run

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        return list(self._run(dict(zip(self._names, inputs, strict=False))))


class PlainOnnxruntime(onnx.backend.base.Backend):
    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Prepared:
        content = model.SerializeToString()
        return Prepared(model, lambda feeds: run_natively(content, feeds))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def run_natively(model: bytes | str, feeds: Mapping[str, Any]) -> list[Any]:
    """Run a model, or a file, as any user does; through ``OrtValue`` if numpy lacks a type."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feeds = {name: np.asarray(v) if isinstance(v, np.generic) else v for name, v in feeds.items()}
    if not any(v.type in SMALL_FLOATS for v in (*session.get_inputs(), *session.get_outputs())):
        return list(session.run(None, feeds))
    values = {name: _to_ort_value(value) for name, value in feeds.items()}
    return [_from_ort_value(value) for value in session.run_with_ort_values(None, values)]


@functools.cache
def suite(backend: type[onnx.backend.base.Backend]) -> dict[str, unittest.TestCase]:
    """Return the suite's cases for a backend, by name. The first call computes their results."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = Runner(backend, __name__).test_cases.values()
    return {
        name: case(name)
        for case in cases
        for name in unittest.defaultTestLoader.getTestCaseNames(case)
        if name.endswith("_cpu")
    }


def failure(backend: type[onnx.backend.base.Backend], name: str) -> Exception | None:
    """Run a case, and return what it raises."""
    try:
        getattr(suite(backend)[name], name)()
    except Exception as error:
        return error
    return None


def sample(names: Iterable[str], every: int = SAMPLE_EVERY) -> list[str]:
    """Return some of the names, and always the same."""
    return [name for name in names if zlib.crc32(name.encode()) % every == 0]


def _to_ort_value(array: np.ndarray) -> onnxruntime.OrtValue:
    if array.dtype not in SMALL_FLOATS.values():
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(f"u{array.dtype.itemsize}"), kind)


def _from_ort_value(value: onnxruntime.OrtValue) -> np.ndarray:
    if value.data_type() not in SMALL_FLOATS:
        return value.numpy()
    memory = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(memory, SMALL_FLOATS[value.data_type()]).reshape(value.shape())
