"""Models that ONNX Runtime refuses as they are, and runs in their native form."""

from __future__ import annotations

import contextlib
import gc
import pathlib
from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from comparison import RunPlainly
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import ModelLoadError
from trtnode.engines.onnxruntime.compatibility import open_native
from trtnode.engines.onnxruntime.limits import native_limits
from trtnode.engines.onnxruntime.session import NativeSession
from workshop import Workshop

FEEDS = {"x": np.linspace(-3, 3, 8, dtype=np.float32).reshape(2, 4)}
X = FEEDS["x"]
SWISH = X / (1 + np.exp(-X))
NEWEST = onnx.defs.onnx_opset_version()
KNOWS_LESS_THAN_ONNX = pytest.mark.skipif(
    "native_limits().opset >= NEWEST", reason="this ONNX Runtime takes the newest opset that there is"
)

FORMS = [
    pytest.param("y = Cast <to=6> (x)", NEWEST, "int32", X.astype(np.int32), id="too-new", marks=KNOWS_LESS_THAN_ONNX),
    pytest.param("y = SwiGLU (x, x)", NEWEST, "float", SWISH * X, id="new-operator"),
    pytest.param("y = Add <broadcast=1, axis=1> (x, b)", 6, "float", X + 1, id="too-old"),
]


def write(workshop: Workshop, text: str, opset: int, kind: str) -> pathlib.Path:
    path: pathlib.Path = workshop.write(
        f"g (float[2,4] x) => ({kind}[2,4] y) <float[4] b = {{1.0, 1.0, 1.0, 1.0}}> {{ {text} }}", opset=opset
    )
    return path


@pytest.mark.parametrize(("text", "opset", "kind", "expected"), FORMS)
def test_a_refused_model_is_opened_in_its_native_form(
    text: str, opset: int, kind: str, expected: np.ndarray, workshop: Workshop
) -> None:
    source = write(workshop, text, opset, kind)

    with pytest.raises(ModelLoadError):
        NativeSession(source)
    (result,) = open_native(source, name="model").run(FEEDS)

    np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize(("text", "opset", "kind", "expected"), FORMS)
def test_a_refused_model_compiles_to_one_that_plain_onnxruntime_loads(
    text: str, opset: int, kind: str, expected: np.ndarray, workshop: Workshop, plain: RunPlainly
) -> None:
    compiled = workshop.compile_file(write(workshop, text, opset, kind))

    np.testing.assert_allclose(plain(compiled, FEEDS)["y"], expected, rtol=1e-5)
    np.testing.assert_allclose(open_model(compiled).run(FEEDS)["y"], expected, rtol=1e-5)


def test_a_refused_model_gets_engines_too(workshop: Workshop) -> None:
    source = workshop.write(
        "g (float[2,4] x) => (float[2,4] y) { e = Exp (x) s = SwiGLU (e, x) y = Neg (s) }", opset=28
    )

    compiled = workshop.compile(source)

    assert compiled.report.model == source.name
    assert len(compiled.report.segments) == 1
    assert {p.key: p.value for p in compiled.model.metadata_props}["trtnode.version"]


def test_an_uncompiled_file_is_loaded_in_its_native_form(workshop: Workshop) -> None:
    source = write(workshop, "y = SwiGLU (x, x)", NEWEST, "float")

    executable = open_model(source)

    np.testing.assert_allclose(executable.run(FEEDS)["y"], SWISH * X, rtol=1e-5)


def test_a_model_that_stays_refused_says_why_onnxruntime_refused_it_first(workshop: Workshop) -> None:
    source = workshop.write("g (float[4] x) => (float[4] y) { y = nowhere.Nothing(x) }", domains=', "nowhere": 1')

    with pytest.raises(ModelLoadError, match="Nothing"):
        open_native(source, name="model")


def test_limits_are_those_of_the_library(workshop: Workshop) -> None:
    limits = native_limits()
    text = "g (float[2,4] x) => (float[2,4] y) { y = Relu (x) }"

    NativeSession(workshop.write(text, opset=limits.opset, ir=limits.ir_version))

    assert (limits.opset, limits.ir_version) >= (21, 10)


def number_of_threads() -> int:
    return sum(1 for _ in pathlib.Path("/proc/self/task").iterdir())


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
def test_a_model_that_is_refused_in_both_forms_leaves_no_session_behind(workshop: Workshop) -> None:
    """A session's weights and threads would stay until the collector looks at old objects, which is rarely."""
    source = workshop.write("g (bfloat16[2] x) => (bfloat16[2] y) { y = Softmax(x) }")
    threads = number_of_threads()

    for _ in range(3):
        with contextlib.suppress(ModelLoadError):
            open_native(source, name="model", threads=3)

    assert number_of_threads() == threads
