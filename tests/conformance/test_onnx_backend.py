"""The onnx package's own backend test suite: whatever plain ONNX Runtime passes must pass compiled as well.

The other cases are compiled too: newer operators than ONNX Runtime knows run in another form or in an engine alone.
Each case is compiled twice: with OpenVINO, and with a simulated TensorRT on a simulated GPU. The latter tests our
labels, rewrites, profiles and execution streams, not TensorRT's results. ``make conformance`` runs all cases; pytest
without ``--conformance=all`` runs a sample.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import pathlib
import unittest
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.backend.base
import onnxruntime
import pytest
from onnx.backend.test.runner import Runner

from engines import CompileOptions, Executable, Worker, compile_model, load_executable
from partitioner import ReasonCode
from simulated_tensorrt import Simulation
from streams import ANYONE, InProcessWorker, profile_of, samples_of

NATIVE_FAILS = "plain onnxruntime does not pass this case"
NO_ENGINE = "no node of this case is labelled for TensorRT"
PASSES_NATIVELY = "passes_natively"
SAMPLE_EVERY = 25


SMALL_FLOATS = {
    f"tensor({name})": onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, name.upper()))
    for name in ("bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
}


def _run_natively(session: onnxruntime.InferenceSession, feeds: dict[str, Any]) -> list[Any]:
    """Run as any user does; through ``OrtValue`` if numpy lacks a type."""
    feeds = {name: np.asarray(v) if isinstance(v, np.generic) else v for name, v in feeds.items()}
    if not any(v.type in SMALL_FLOATS for v in (*session.get_inputs(), *session.get_outputs())):
        return list(session.run(None, feeds))
    values = {name: _to_ort_value(value) for name, value in feeds.items()}
    return [_from_ort_value(value) for value in session.run_with_ort_values(None, values)]


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


class _Prepared:
    """A model behind the suite's own interface: positional inputs, positional outputs."""

    def __init__(self, model: onnx.ModelProto, run: Callable[[dict[str, Any]], Iterable[Any]]) -> None:
        constants = {t.name for t in model.graph.initializer}
        self._names = [v.name for v in model.graph.input if v.name not in constants]
        self._run = run

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        return list(self._run(dict(zip(self._names, inputs, strict=False))))


class _PlainOnnxruntime(onnx.backend.base.Backend):
    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> _Prepared:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return _Prepared(model, lambda feeds: _run_natively(session, feeds))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


class _Compiled(_PlainOnnxruntime):
    """Compiles with OpenVINO, writes the file, reads it back, runs it."""

    folder: pathlib.Path
    worker: Worker
    numbers = itertools.count()

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> _Prepared:
        number = next(cls.numbers)
        source, compiled = cls.folder / f"{number}.onnx", cls.folder / f"{number}.compiled.onnx"
        source.write_bytes(model.SerializeToString())
        compile_model(source, CompileOptions(engine="openvino"), worker=cls.worker).save(compiled)
        source.unlink()
        executable = load_executable(compiled)
        return _Prepared(model, lambda feeds: executable.run(feeds).values())


class _NoEngineError(Exception):
    """No node of a case runs on the simulated GPU."""


class _OnSimulatedGpu(_PlainOnnxruntime):
    """Compiles with the simulated TensorRT for the shapes of the inputs, and runs on the simulated GPU."""

    folder: pathlib.Path

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> _Prepared:
        return _Prepared(model, lambda feeds: cls._load(model, feeds).run(feeds).values())

    @classmethod
    def _load(cls, proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> Executable:
        source, compiled = cls.folder / "model.onnx", cls.folder / "compiled.onnx"
        source.write_bytes(proto.SerializeToString())
        shapes = tuple(filter(None, [profile_of(source, [feeds])]))
        options = CompileOptions(engine="tensorrt", shapes=shapes, samples=samples_of(feeds, cls.folder))
        model = compile_model(source, options, worker=InProcessWorker())
        assert [n for n in model.report.native if n.code == ReasonCode.BUILD_FAILED] == []
        if not model.report.segments:
            raise _NoEngineError
        model.save(compiled)
        return load_executable(compiled, trust=ANYONE)


@functools.cache
def _suite(backend: type[onnx.backend.base.Backend]) -> dict[str, unittest.TestCase]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = Runner(backend, __name__).test_cases.values()
    return {
        name: case(name)
        for case in cases
        for name in unittest.defaultTestLoader.getTestCaseNames(case)
        if name.endswith("_cpu")
    }


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = sorted(_suite(_PlainOnnxruntime))
    asked = metafunc.config.getoption("conformance")
    if asked == "sample" or (asked == "openvino" and "simulate" in metafunc.fixturenames):
        names = [name for name in names if zlib.crc32(name.encode()) % SAMPLE_EVERY == 0]
    metafunc.parametrize("name", names)


@pytest.fixture(scope="session", autouse=True)
def _compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    _Compiled.folder = tmp_path_factory.mktemp("conformance")
    with Worker() as _Compiled.worker, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNX_HOME", str(_Compiled.folder))  # the suite writes inputs of its larger models there
        yield


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
def test_case_passes_compiled_if_it_passes_natively(name: str, record_property: Callable[[str, object], None]) -> None:
    native = _failure(_PlainOnnxruntime, name) is None
    record_property(PASSES_NATIVELY, native)

    failure = _failure(_Compiled, name)

    if failure is not None and native:
        raise failure
    if failure is not None:
        pytest.skip(f"{NATIVE_FAILS}, nor does it compiled: {type(failure).__name__}: {str(failure)[:200]}")


@pytest.mark.conformance
@pytest.mark.filterwarnings("ignore")
def test_case_passes_on_a_simulated_gpu_if_it_passes_natively(
    name: str,
    simulate: Callable[..., Simulation],
    tmp_path: pathlib.Path,
    record_property: Callable[[str, object], None],
) -> None:
    simulate()
    _OnSimulatedGpu.folder = tmp_path

    failure = _failure(_OnSimulatedGpu, name)

    if isinstance(failure, _NoEngineError):
        pytest.skip(NO_ENGINE)
    if failure is not None and _failure(_PlainOnnxruntime, name) is None:
        raise failure
    if failure is not None:
        pytest.skip(f"{NATIVE_FAILS}, nor does it compiled: {type(failure).__name__}: {str(failure)[:200]}")


def _failure(backend: type[onnx.backend.base.Backend], name: str) -> Exception | None:
    try:
        getattr(_suite(backend)[name], name)()
    except Exception as error:
        return error
    return None
