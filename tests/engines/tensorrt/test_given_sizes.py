"""Inputs that hold sizes: engines are built for the values that the user gives, and other requests run natively."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from arrays import floats
from stand_in_workers import InProcessWorker
from streams import ANYONE, Loaded, Machine
from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.runtime.options import RunOptions
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.serving.cli.program import main
from workshop import Workshop

EXPAND = "g (float[1, 8] x, int64[2] s) => (float[A, B] y) { a = Relu(x) b = Expand(a, s) y = Neg(b) }"
GIVEN = {"s": "=1x8,2x8,4x8"}

MODELS: dict[str, tuple[str, dict[str, str]]] = {
    "Reshape": ("g (float[24] x, int64[2] s) => (float[A, B] y) { y = Reshape(x, s) }", {"s": "=4x6"}),
    "Expand": (EXPAND, GIVEN),
    "Slice": (
        "g (float[8, 4] x, int64[2] s, int64[2] e) => (float[A, B] y) { y = Slice(x, s, e) }",
        {"s": "=-8x0,-4x0,-2x0", "e": "=8x4"},
    ),
    "Pad": (
        "g (float[8, 4] x, int64[4] p) => (float[A, B] y) { y = Pad(x, p) }",
        {"p": "=0x0x0x0,1x1x1x1,2x2x2x2"},
    ),
    "Tile": ("g (float[8, 4] x, int64[2] r) => (float[A, B] y) { y = Tile(x, r) }", {"r": "=1x1,1x2,2x2"}),
    "ConstantOfShape": (
        "g (int64[2] s) => (float[A, B] y) { a = ConstantOfShape(s) y = Exp(a) }",
        {"s": "=1x1,1x2,2x2"},
    ),
    "Range": (
        "g (int64 n) => (int64[A] y) <int64 zero = {0}, int64 one = {1}> { a = Range(zero, n, one) y = Add(a, one) }",
        {"n": "=1,4,9"},
    ),
    "TopK": (
        "g (float[4, 64] x, int64[1] k) => (float[A, B] y, int64[A, B] i) { y, i = TopK(x, k) }",
        {"k": "=1,5,64"},
    ),
    "Resize": (
        'g (float[1, 3, 8, 8] x, int64[4] s) => (float[A, B, C, D] y) { y = Resize<mode = "nearest">(x, , , s) }',
        {"s": "=1x3x8x8,1x3x16x16,1x3x32x32"},
    ),
    "sizes computed from an input": (
        "g (float[4, 8] x, int64[1] s) => (float[A, B, C] y) <int64[2] rest = {-1, 4}> "
        "{ all = Concat<axis = 0>(s, rest) y = Reshape(x, all) }",
        {"s": "=1,2,4"},
    ),
}


def profile(given: dict[str, str]) -> dict[str, ShapeRange]:
    return {name: ShapeRange.parse(text) for name, text in given.items()}


@pytest.mark.parametrize(("text", "given"), [pytest.param(*case, id=name) for name, case in MODELS.items()])
def test_the_real_library_builds_an_engine_for_given_values(
    text: str, given: dict[str, str], workshop: Workshop
) -> None:
    pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")
    source = workshop.write(text)

    _, without = partition_model(source, CompileOptions(engine="tensorrt-rtx"))
    compiled = compile_model(
        source, CompileOptions(engine="tensorrt-rtx", shapes=(profile(given),)), worker=workshop.worker
    )

    name = next(iter(given))
    assert any(f"must be given: --shapes {name}:=MIN,OPT,MAX." in node.detail for node in without.native)
    assert [node.detail for node in compiled.report.native] == []
    assert len(compiled.report.segments) == 1


def test_a_compilation_reports_the_sizes_that_an_explanation_does_and_keeps_open_dimensions(workshop: Workshop) -> None:
    pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")
    source = workshop.write("g (float[N,8] x) => (float[N,8] y) { e = Exp(x) y = Neg(e) }")
    options = CompileOptions(engine="tensorrt-rtx", shapes=(profile({"x": "1x8,4x8,16x8"}),))

    _, explained = partition_model(source, options)
    compiled = compile_model(source, options, worker=workshop.worker)

    assert compiled.report.boundary_bytes == explained.boundary_bytes == 2 * 4 * 8 * 4
    assert compiled.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"


def test_a_value_outside_the_bounds_is_answered_natively(machine: Machine, workshop: Workshop) -> None:
    """TensorRT and the GPU are simulated."""
    source, compiled = workshop.write(EXPAND), workshop.folder / "sizes.onnx"
    options = CompileOptions(engine="tensorrt", shapes=(profile(GIVEN),))
    compile_model(source, options, worker=InProcessWorker()).save(compiled)  # type: ignore[arg-type]
    model = Loaded(open_model(compiled, run=RunOptions(trust=ANYONE)), onnxruntime.InferenceSession(source))
    x = floats(1, 8)

    for sizes in ([2, 8], [1, 8], [4, 8], [2, 8]):
        model.check(x=x, s=np.array(sizes))

    assert model.executable.facts.segments == 1
    assert model.fallbacks == []
    model.check(x=x, s=np.array([5, 8]))
    assert model.fallbacks == ["outside_profiles"]


def test_an_input_without_a_fixed_length_is_not_offered_values(workshop: Workshop) -> None:
    source = workshop.write("g (float[24] x, int64[R] s) => (float[A, B] y) { y = Reshape(x, s) }")

    _, report = partition_model(source, CompileOptions(engine="tensorrt"))

    assert [(node.code, "--shapes" in node.detail) for node in report.native] == [(ReasonCode.UNSUPPORTED_INPUT, False)]


def test_values_of_an_input_that_holds_no_sizes_are_refused(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    source = workshop.write(EXPAND)

    code = main(["explain", str(source), "--engine", "tensorrt", "--no-cache", "--shapes", "x:=8"])

    assert code != 0
    assert "input 'x', profile 0: it takes no values: it is float32[1, 8]" in capsys.readouterr().err


def test_the_turn_of_a_loop_is_not_offered_values(workshop: Workshop) -> None:
    source = workshop.write(
        """g (float[4] x, int64 n, bool c) => (float[4] y) {
            y = Loop(n, c, x) <body = body (int64 turn, bool go, float[4] a) => (bool again, float[4] b) {
                again = Identity(go)
                k = Constant<value_ints = [-1]>()
                length = Reshape(turn, k)
                e = Expand(a, length)
                b = Relu(e)
            }>
        }"""
    )

    _, report = partition_model(source, CompileOptions(engine="tensorrt"))

    (node,) = report.native
    assert node.code == ReasonCode.CONTROL_FLOW
    assert node.detail.endswith("must be a constant or come from Shape.")
