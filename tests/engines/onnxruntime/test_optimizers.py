"""Optimizers of ONNX Runtime that harm a model are off for the models that have their pattern, and only for them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from model_texts import parse
from trtnode.engines.compile.opening import open_model
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.onnxruntime.workarounds.optimizers import DISABLED, PATTERNS, optimizer_options
from workshop import Workshop

LARGE = np.array([[70007, 1, 2], [3, 400000, -70007]], np.int32)

MOVES = {
    "MaxPool": "MaxPool <kernel_shape = [1]> (d)",
    "Reshape": "Reshape (d, flat)",
    "Slice": "Slice (d, zero, one)",
    "Squeeze": "Squeeze (d)",
    "Transpose": "Transpose <perm = [2, 1, 0]> (d)",
    "Unsqueeze": "Unsqueeze (d, zero)",
}


def moved(move: str, opset: int, zero_point: str = "") -> onnx.ModelProto:
    text = f"""<ir_version: 10, opset_import: ["": {opset}]>
        g (int32[1,2,3] x) => (float y)
        <float s = {{0.1}}, int32 z = {{0}}, int64[1] flat = {{-1}}, int64[1] zero = {{0}}, int64[1] one = {{1}}> {{
            d = DequantizeLinear (x, s{zero_point})
            y = {move}
        }}"""
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


CASES = [(move, zero) for move in MOVES for zero in ("", ", z") if (move, zero) != ("Transpose", ", z")]
"""ONNX Runtime refuses the one that is left out, whichever optimizers are off."""


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize(("move", "zero_point"), CASES)
def test_moved_int32_keeps_its_values(move: str, opset: int, zero_point: str) -> None:
    model = moved(MOVES[move], opset, zero_point)

    optimized, plain = (NativeSession(model, optimize=o).run({"x": LARGE[None]})[0] for o in (True, False))

    np.testing.assert_array_equal(optimized, plain)
    assert plain.max() > 255


@pytest.mark.parametrize("zero_point", ["int4 z = {0}", "uint4 z = {3}", "float8e4m3fn z = {0}", "float8e5m2 z = {0}"])
def test_a_relu_before_numbers_of_few_bits_stays(zero_point: str) -> None:
    model = parse(f"""g (float[N] x) => (float[N] y) <float s = {{0.01}}, {zero_point}> {{
            r = Relu (x)
            q = QuantizeLinear (r, s, z)
            y = DequantizeLinear (q, s, z)
        }}""")

    (answer,) = NativeSession(model).run({"x": np.array([-1, -0.5, 0, 0.03], np.float32)})

    np.testing.assert_allclose(answer, [0, 0, 0, 0.03], atol=1e-3)


def nested_ifs(levels: int) -> onnx.ModelProto:
    """Ifs whose conditions are constant, each in the other branch of the next; two of them have a CastLike."""
    chosen = "u = CastLike (one, k) v = Equal (k, u) r = Identity (x)"
    for level in range(levels):
        compared = f"l{level} = CastLike (one, k)" if level == 0 else f"l{level} = Neg (k)"
        chosen = f"""
            {compared} e{level} = Equal (k, l{level})
            r{level} = If (e{level}) <then_branch = t{level} () => (float[N] r) {{ r = Neg (x) }},
                                      else_branch = f{level} () => (float[N] r) {{ {chosen} }}>
            r = Identity (r{level})"""
    return parse(f"g (float[N] x) => (float[N] r) <float one = {{1}}, float k = {{2}}> {{ {chosen} }}")


def test_ifs_within_ifs_that_are_decided_are_loaded_each_time() -> None:
    for _ in range(200):
        (answer,) = NativeSession(nested_ifs(3)).run({"x": np.array([4], np.float32)})
        assert answer == [4]


@pytest.mark.parametrize(("levels", "disabled"), [(1, ""), (2, ""), (3, "ConstantFolding"), (4, "ConstantFolding")])
def test_ifs_are_decided_before_a_run_unless_two_stand_around_one(levels: int, disabled: str) -> None:
    assert optimizer_options(nested_ifs(levels)).get(DISABLED, "") == disabled


@pytest.mark.parametrize("read", ["", ", float[2] m, float[2] v"])
def test_training_gives_equal_requests_equal_answers(read: str) -> None:
    statistics = ", ".join(f"float[2] {name} = {{1, 1}}" for name in ("scale", "shift", "mean", "variance"))
    model = parse(f"""g (float[2,2] x) => (float[2,2] y{read}) <{statistics}> {{
            y, m, v = BatchNormalization<training_mode = 1>(x, scale, shift, mean, variance)
        }}""")
    session = NativeSession(model)

    answers = [session.run({"x": np.array([[1, 2], [3, 6]], np.float32)})[0] for _ in range(3)]

    np.testing.assert_allclose(answers, [[[0, 0], [2, 2]]] * 3, atol=1e-4)


def test_a_chain_of_moves_of_int32_answers_rightly_in_every_mode(workshop: Workshop) -> None:
    source = workshop.write(
        """g (int32[2,3] x) => (float[2,3] y) <float s = {0.1}, int64[2] sizes = {3, 2}> {
            d = DequantizeLinear (x, s)
            r = Reshape (d, sizes)
            y = Transpose <perm = [1, 0]> (r)
        }"""
    )
    expected = (LARGE * np.float32(0.1)).reshape(3, 2).T

    for executable in (open_model(source), open_model(workshop.compile_file(source))):
        np.testing.assert_allclose(executable.run({"x": LARGE})["y"], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "disabled"),
    [
        pytest.param("(int8[2,3] x) { d = DequantizeLinear (x, s) y = Transpose (d) }", [], id="int8"),
        pytest.param(
            "(float[2,3] x) { q = QuantizeLinear (x, s) d = DequantizeLinear (q, s) y = Transpose (d) }",
            [],
            id="quantized-before",
        ),
        pytest.param("(int32[2,3] x) { d = DequantizeLinear (x, s) y = Relu (d) }", [], id="int32-that-is-not-moved"),
        pytest.param("(float[2,3] x) { r = Relu (x) y = QuantizeLinear (r, s) }", [], id="relu-before-uint8"),
        pytest.param(
            "(float[2,3] x) { c = Cast <to = 6> (x) d = DequantizeLinear (c, s) y = Transpose (d) }",
            ["QDQPropagationTransformer"],
            id="a-type-that-the-file-does-not-tell",
        ),
    ],
)
def test_other_models_keep_their_optimizers(text: str, disabled: list[str], workshop: Workshop) -> None:
    inputs, body = text.split(" {")
    source = workshop.write(f"g {inputs} => (float[M,K] y) <float s = {{0.1}}> {{{body}")

    assert set(disabled) <= PATTERNS.keys()
    assert optimizer_options(source).get(DISABLED, "").split(";") == (disabled or [""])
