"""Tests that need a GPU with TensorRT or TensorRT for RTX: ``make test-gpu`` there. Elsewhere they are skipped."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnxruntime
import pytest

from model_texts import parse
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.backends.shape_range import Profile, ShapeRange
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.cuda.devices import find_gpu
from trtnode.engines.runtime.executor import Executable
from trtnode.engines.runtime.options import RunOptions
from trtnode.partitioner.cut.options import PartitionOptions

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_gpu() is None, reason="no NVIDIA GPU or driver is here"),
]


@pytest.fixture(params=["tensorrt", "tensorrt-rtx"])
def engine(request: pytest.FixtureRequest) -> str:
    """An engine library that runs on this GPU."""
    backend = get_backend(request.param)
    if reason := backend.unavailable_reason() or backend.cannot_run_reason(BuildOptions()):
        pytest.skip(reason)
    return backend.name


ROOT = pathlib.Path(__file__).parents[3]
DIGITS = ROOT / "examples" / "digits"
HYBRID = "g (float[N, 64] x) => (float[N, 64] y) { a = Relu(x) b = Softsign(a) c = Exp(b) d = Softsign(c) y = Abs(d) }"
ROWS = ShapeRange(min=(1, 64), opt=(4, 64), max=(16, 64))


@pytest.fixture
def load(engine: str, tmp_path: pathlib.Path) -> Callable[..., Executable]:
    """Compiles a model for the library, and loads the result."""

    def load(source: pathlib.Path, profile: Profile, *native_ops: str) -> Executable:
        options = CompileOptions(engine=engine, shapes=(profile,), partition=PartitionOptions(native_ops=native_ops))
        compile_model(source, options).save(tmp_path / "compiled.onnx")
        return open_model(tmp_path / "compiled.onnx", run=RunOptions(trust=Trust.of((), (engine,))))

    return load


def test_an_engine_answers_as_onnx_runtime_does(engine: str, load: Callable[..., Executable]) -> None:
    images = np.load(DIGITS / "test.npz")["image"][:8]
    shapes = ShapeRange(min=(1, 1, 8, 8), opt=(8, 1, 8, 8), max=(8, 1, 8, 8))
    executable = load(DIGITS / "digits.onnx", {"image": shapes})
    (expected,) = onnxruntime.InferenceSession(DIGITS / "digits.onnx").run(None, {"image": images})

    (answer,) = executable.run({"image": images}).values()

    assert (executable.facts.engine, executable.facts.rejected) == (engine, ())
    np.testing.assert_allclose(answer, expected, rtol=1e-2, atol=1e-3)


def test_requests_of_many_threads_and_shapes_pass_engines_and_native_nodes(
    load: Callable[..., Executable], tmp_path: pathlib.Path
) -> None:
    source = tmp_path / "hybrid.onnx"
    onnx.save(parse(HYBRID), source)
    executable, session = load(source, {"x": ROWS}, "Softsign"), onnxruntime.InferenceSession(source)
    fallbacks: list[str] = []
    executable.on_fallback = fallbacks.append

    def ask(number: int) -> None:
        x = np.random.default_rng(number).standard_normal((1 + number % 16, 64)).astype(np.float32)
        np.testing.assert_allclose(executable.run({"x": x})["y"], session.run(None, {"x": x})[0], rtol=1e-2, atol=1e-3)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(200)))

    assert executable.facts.segments == 3
    assert fallbacks == []


def test_engine_of_tensorrt_for_rtx_that_was_built_without_a_gpu_is_compared_here(
    engine: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine != "tensorrt-rtx":
        pytest.skip(f"{engine} builds nothing without a GPU")
    source, compiled = tmp_path / "hybrid.onnx", tmp_path / "compiled.onnx"
    onnx.save(parse(HYBRID), source)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("trtnode.engines.tensorrt.backend.find_gpu", lambda: None)
        compile_model(source, CompileOptions(engine=engine, shapes=({"x": ROWS},))).save(compiled)

    executable = open_model(compiled, run=RunOptions(trust=Trust.of((), (engine,))))

    assert (executable.facts.unchecked, executable.facts.rejected) == (0, ())
