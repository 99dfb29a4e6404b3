"""Tests that need a GPU with TensorRT: ``make test-gpu`` there. Elsewhere they are skipped."""

from __future__ import annotations

import pathlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnxruntime
import pytest

from engines import CompileOptions, Executable, compile_model, load_executable
from engines.artifact.trust import Trust
from engines.backends.registry import get_backend
from engines.backends.shape_range import Profile, ShapeRange
from engines.cuda.devices import find_gpu
from partitioner import PartitionOptions

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_gpu() is None, reason="no NVIDIA GPU or driver is here"),
    pytest.mark.skipif(
        get_backend("tensorrt").unavailable_reason() is not None, reason="TensorRT or pycuda is not installed"
    ),
]

ROOT = pathlib.Path(__file__).parents[3]
DIGITS = ROOT / "examples" / "digits"
HYBRID = "g (float[N, 64] x) => (float[N, 64] y) { a = Relu(x) b = Softsign(a) c = Exp(b) d = Softsign(c) y = Abs(d) }"
ROWS = ShapeRange(low=(1, 64), best=(4, 64), high=(16, 64))


def load(source: pathlib.Path, folder: pathlib.Path, profile: Profile, *native_ops: str) -> Executable:
    options = CompileOptions(engine="tensorrt", shapes=(profile,), partition=PartitionOptions(native_ops=native_ops))
    compile_model(source, options).save(folder / "compiled.onnx")
    return load_executable(folder / "compiled.onnx", trust=Trust.of((), ("tensorrt",)))


def test_an_engine_answers_as_onnx_runtime_does(tmp_path: pathlib.Path) -> None:
    images = np.load(DIGITS / "test.npz")["image"][:8]
    shapes = ShapeRange(low=(1, 1, 8, 8), best=(8, 1, 8, 8), high=(8, 1, 8, 8))
    executable = load(DIGITS / "digits.onnx", tmp_path, {"image": shapes})
    (expected,) = onnxruntime.InferenceSession(DIGITS / "digits.onnx").run(None, {"image": images})

    (answer,) = executable.run({"image": images}).values()

    assert (executable.description["engine"], executable.description["rejected"]) == ("tensorrt", [])
    np.testing.assert_allclose(answer, expected, rtol=1e-2, atol=1e-3)


def test_requests_of_many_threads_and_shapes_pass_engines_and_native_nodes(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "hybrid.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {HYBRID}'), source)
    executable, session = load(source, tmp_path, {"x": ROWS}, "Softsign"), onnxruntime.InferenceSession(source)
    fallbacks: list[str] = []
    executable.on_fallback = fallbacks.append

    def ask(number: int) -> None:
        x = np.random.default_rng(number).standard_normal((1 + number % 16, 64)).astype(np.float32)
        np.testing.assert_allclose(executable.run({"x": x})["y"], session.run(None, {"x": x})[0], rtol=1e-2, atol=1e-3)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(200)))

    assert executable.description["segments"] == 3
    assert fallbacks == []
