"""Models that tests write, compile and run, and what plain ONNX Runtime says about them."""

from __future__ import annotations

import ctypes
import itertools
import pathlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from engines import (
    BuildOptions,
    CompiledModel,
    CompileOptions,
    EngineCache,
    Executable,
    PrecisionOptions,
    Worker,
    compile_model,
    load_executable,
    registry,
)
from engines.errors import BuildError
from engines.reference_backend import ReferenceBackend, ReferenceEngine
from partitioner import PartitionOptions

DIGITS = pathlib.Path(__file__).parents[2] / "examples" / "digits"

SMALL_FLOATS = {
    f"tensor({name})": onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, name.upper()))
    for name in ("bfloat16", "float8e4m3fn", "float8e5m2")
}


class Workshop:
    """Writes models, compiles them in the session's worker, and runs them."""

    def __init__(self, folder: pathlib.Path, worker: Worker) -> None:
        self.folder = folder
        self.worker = worker
        self._numbers = itertools.count()

    def write(self, model: str | onnx.ModelProto, *, opset: int = 21, ir: int = 10, domains: str = "") -> pathlib.Path:
        """Write a model; text is a graph in ONNX's own language."""
        if isinstance(model, str):
            model = onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}{domains}]> {model}')
        path = self.folder / f"model_{next(self._numbers)}.onnx"
        onnx.save(model, path)
        return path

    def compile(
        self,
        source: pathlib.Path,
        *,
        engine: str = "openvino",
        native_ops: Sequence[str] = (),
        cache: EngineCache | None = None,
        samples: pathlib.Path | None = None,
        worker: Any = None,
        build: BuildOptions | None = None,
        precision: PrecisionOptions | None = None,
        tune: bool = False,
    ) -> CompiledModel:
        options = CompileOptions(
            engine=engine,
            partition=PartitionOptions(native_ops=tuple(native_ops)),
            samples=samples,
            build=build or BuildOptions(),
            precision=precision or PrecisionOptions(),
            tune=tune,
        )
        return compile_model(source, options, cache=cache, worker=worker or self.worker)

    def compile_file(self, source: pathlib.Path, **options: Any) -> pathlib.Path:
        path = self.folder / f"compiled_{next(self._numbers)}.onnx"
        self.compile(source, **options).save(path)
        return path

    def executable(self, model: str | onnx.ModelProto, *, opset: int = 21, **options: Any) -> Executable:
        return load_executable(self.compile_file(self.write(model, opset=opset), **options))


class InProcessWorker:
    """What a Worker does, without a child: backends that a test registers are visible to it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def call(self, function: Callable[..., Any], timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(function.__name__)
        return function(*args, **kwargs)


class ShiftedEngine(ReferenceEngine):
    """Adds one to everything it computes."""

    def run(self) -> Sequence[np.ndarray]:
        results = [np.asarray(r + np.ones((), r.dtype)) for r in super().run()]
        for buffer, result in zip(self._outputs or (), results, strict=False):
            np.copyto(buffer, result)
        return results if self._outputs is None else self._outputs

    def fork(self) -> ShiftedEngine:
        return ShiftedEngine(self._evaluator, self.inputs, self.outputs)


class UnreliableBackend(ReferenceBackend):
    """The reference, except on nodes that a test names: it refuses some and computes others wrong."""

    name = "unreliable"
    refuses: tuple[str, ...] = ()
    miscomputes: tuple[str, ...] = ()
    shown_as: str | None = None

    def version(self) -> str:
        return self.shown_as or super().version()

    def build(self, model: pathlib.Path, options: BuildOptions) -> bytes:
        for op in self.refuses:
            if any(node.op_type == op for node in onnx.load(model).graph.node):
                raise BuildError(f"{op} is too hard.")
        return super().build(model, options)

    def load(self, engine: bytes, envelope: Any, **options: Any) -> ReferenceEngine:
        loaded = super().load(engine, envelope, **options)
        lies = any(node.op_type in self.miscomputes for node in onnx.ModelProto.FromString(engine).graph.node)
        return ShiftedEngine(loaded._evaluator, loaded.inputs, loaded.outputs) if lies else loaded


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
        return value.numpy()
    memory = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(memory, SMALL_FLOATS[value.data_type()]).reshape(value.shape())


@pytest.fixture
def workshop(tmp_path: pathlib.Path, worker: Worker) -> Workshop:
    return Workshop(tmp_path, worker)


@pytest.fixture(scope="module")
def shared_workshop(tmp_path_factory: pytest.TempPathFactory, worker: Worker) -> Workshop:
    """For models that several tests of a file only read."""
    return Workshop(tmp_path_factory.mktemp("models"), worker)


@pytest.fixture
def in_process() -> InProcessWorker:
    return InProcessWorker()


@pytest.fixture
def plain() -> Callable[[pathlib.Path, Mapping[str, Any]], dict[str, Any]]:
    return run_plainly


@pytest.fixture
def same() -> Callable[..., None]:
    return assert_same


@pytest.fixture
def unreliable(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[UnreliableBackend]]:
    """A backend named ``unreliable``, for workers that run in this process."""
    module = types.ModuleType("unreliable_backend")
    backend = type("Unreliable", (UnreliableBackend,), {})
    module.__dict__["Backend"] = backend
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(registry.BACKENDS, "unreliable", (module.__name__, "Backend"))
    registry.get_backend.cache_clear()
    yield backend
    registry.get_backend.cache_clear()


@pytest.fixture
def fallbacks() -> Callable[[Executable], list[str]]:
    """Collects the reasons for which an executable answers natively."""

    def watch(executable: Executable) -> list[str]:
        reasons: list[str] = []
        executable.on_fallback = reasons.append
        return reasons

    return watch


@pytest.fixture(scope="session")
def digits() -> pathlib.Path:
    return DIGITS / "digits.onnx"


@pytest.fixture(scope="session")
def digits_test() -> Mapping[str, np.ndarray]:
    with np.load(DIGITS / "test.npz") as archive:
        return dict(archive)
