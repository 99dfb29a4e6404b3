"""Converted models have one type an operator, are in order, and compute what they did up to the type's rounding."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtnode.engines.precision.float16 import to_half

NETWORK = """g (float[1,3,8,8] x) => (float[1,4] y)
<float[4,3,3,3] w, float[4,4] m = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6}> {
    c = Conv(x, w) r = Relu(c) p = GlobalAveragePool(r) f = Flatten(p) z = MatMul(f, m) y = Softmax(z)
}"""


def parse(text: str, opset: int = 21, **weights: Any) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {text}')
    for name, values in weights.items():
        kept = [t for t in model.graph.initializer if t.name != name]
        del model.graph.initializer[:]
        model.graph.initializer.extend([*kept, onnx.numpy_helper.from_array(np.asarray(values, np.float32), name)])
    model.graph.value_info.extend(onnx.shape_inference.infer_shapes(model).graph.value_info)
    return model


def network() -> onnx.ModelProto:
    return parse(NETWORK, opset=22, w=np.random.default_rng(1).normal(0, 0.3, (4, 3, 3, 3)))


def assert_sound(model: onnx.ModelProto) -> None:
    """Check as a strongly typed parser does: every type declared is the one that follows, and order."""
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    known = {t.name for t in model.graph.initializer} | {v.name for v in model.graph.input} | {""}
    for node in model.graph.node:
        assert known.issuperset(node.input), node.name
        known.update(node.output)


def types(model: onnx.ModelProto) -> dict[str, str]:
    """Element type of each operator's first result, by operator; Casts left out."""
    infos = {v.name: v for v in (*model.graph.value_info, *model.graph.output)}
    made = ((n.op_type, infos[n.output[0]]) for n in model.graph.node if n.op_type != "Cast")
    return {op: onnx.TensorProto.DataType.Name(v.type.tensor_type.elem_type) for op, v in made}


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_network_is_converted_but_for_what_sums_and_exponentiates(precision: str) -> None:
    half = to_half(network(), precision)

    assert_sound(half)
    found = types(half)
    assert found.pop("Softmax") == "FLOAT"
    assert set(found.values()) == {"FLOAT16" if precision == "fp16" else "BFLOAT16"}
    assert [v.type.tensor_type.elem_type for v in (*half.graph.input, *half.graph.output)] == [
        onnx.TensorProto.FLOAT
    ] * 2


def test_a_converted_network_computes_the_same_up_to_rounding() -> None:
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)}

    expected, actual = run(network(), feeds), run(to_half(network(), "fp16"), feeds)

    np.testing.assert_allclose(actual[0], expected[0], atol=2e-3)


def test_digits_loses_no_accuracy_in_float16(digits: pathlib.Path, digits_test: Mapping[str, np.ndarray]) -> None:
    model, labels = onnx.load(digits), digits_test["label"]
    half = to_half(model, "fp16")

    wrong = [np.count_nonzero(classes(candidate, digits_test["image"]) != labels) for candidate in (model, half)]

    assert_sound(half)
    assert "FLOAT16" in types(half).values()
    assert wrong[1] - wrong[0] <= 0.001 * len(labels)


def classes(model: onnx.ModelProto, images: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.array([np.argmax(session.run(None, {"image": image[np.newaxis]})[0]) for image in images])


def test_nodes_to_keep_stay_float32() -> None:
    half = to_half(network(), "fp16", keep=["r", "z"])

    assert_sound(half)
    assert {op for op, kind in types(half).items() if kind == "FLOAT"} == {"Relu", "MatMul", "Softmax"}


@pytest.mark.parametrize("limits", [(-70000.0, 3.0), (0.0, 40000.0), (-1e-6, 1e-6)])
def test_operators_at_the_limits_of_float16_stay_float32(limits: tuple[float, float]) -> None:
    half = to_half(network(), "fp16", ranges={"r": limits, "c": (-1.0, 1.0)})

    assert_sound(half)
    assert {op for op, kind in types(half).items() if kind == "FLOAT"} == {"Relu", "GlobalAveragePool", "Softmax"}


def test_bfloat16_has_the_range_of_float32() -> None:
    half = to_half(network(), "bf16", ranges={"r": (0.0, 1e30)})

    assert types(half)["Relu"] == "BFLOAT16"


@pytest.mark.parametrize("value", [1e6, -3.4e38, 1e-9])
def test_weights_beyond_float16_keep_their_operator_in_float32(value: float) -> None:
    half = to_half(
        parse("g (float[2] x) => (float[2] y) <float[2] w> { a = Add(x, w) y = Relu(a) }", w=[value, 0]), "fp16"
    )

    assert_sound(half)
    assert types(half) == {"Add": "FLOAT", "Relu": "FLOAT16"}


def test_an_infinite_weight_stays_infinite() -> None:
    half = to_half(parse("g (float[2] x) => (float[2] y) <float[2] w> { y = Add(x, w) }", w=[-np.inf, 1]), "fp16")

    assert types(half) == {"Add": "FLOAT16"}
    assert run(half, {"x": np.float32([1, 2])})[0].tolist() == [-np.inf, 3]


def test_inputs_whose_type_is_fixed_stay_float32() -> None:
    text = "g (float[1,1,2,2] x, float[4] s) => (float[1,1,4,4] y) { y = Resize(x, , s) }"

    half = to_half(parse(text), "fp16")

    assert_sound(half)
    (resize,) = (node for node in half.graph.node if node.op_type == "Resize")
    assert list(resize.input) == ["x__fp16", "", "s"]


def test_a_type_given_by_an_attribute_stays() -> None:
    text = "g (float[2] x) => (float[2] y) { d = Cast<to=11>(x) f = Cast<to=1>(d) y = Relu(f) }"

    half = to_half(parse(text), "fp16")

    assert_sound(half)
    assert run(half, {"x": np.float32([1, -1])})[0].tolist() == [1, 0]


def test_bodies_read_float32() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) {
        a = Relu(x)
        y = If (c) <
            then_branch = t () => (float[2] u) { u = Neg(a) }, else_branch = e () => (float[2] v) { v = Abs(a) }
        >
    }"""

    half = to_half(parse(text), "fp16")

    assert_sound(half)
    assert types(half) == {"Relu": "FLOAT16", "If": "FLOAT"}
    assert run(half, {"x": np.float32([1, -1]), "c": np.array(True)})[0].tolist() == [-1, 0]


def test_quantized_operators_are_left_alone() -> None:
    text = """g (float[2] x) => (float[2] y) <float s = {0.1}, int8 z = {0}> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) a = Relu(d) y = Neg(a)
    }"""

    half = to_half(parse(text), "fp16")

    assert_sound(half)
    assert types(half)["Relu"] == "FLOAT"
    assert types(half)["Neg"] == "FLOAT16"


def test_new_names_collide_with_none() -> None:
    text = "g (float[2] x, float[2] x__fp16) => (float[2] y) { a = Neg(x) y = Add(a, x__fp16) }"

    half = to_half(parse(text), "fp16")

    assert_sound(half)
    assert run(half, {"x": np.float32([1, 2]), "x__fp16": np.float32([5, 5])})[0].tolist() == [4, 3]


UNARY = ("Relu", "Neg", "Abs", "Exp", "Sqrt", "Softmax", "Identity", "Tanh", "Floor")
BINARY = ("Add", "Mul", "Max", "Where", "Greater", "Gemm", "Pow")


@st.composite
def graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Graphs of unary and binary operators over 2 x 2 matrices, some values of which are booleans or constants."""
    floats, lines, numbers = ["x", "w"], [], itertools.count()
    for _ in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from((*UNARY, *BINARY)))
        first, second = draw(st.sampled_from(floats)), draw(st.sampled_from(floats))
        name = f"v{next(numbers)}"
        if op == "Greater":
            lines.append(f"b{name} = Greater({first}, {second}) {name} = Cast<to=1>(b{name})")
        elif op == "Where":
            lines.append(f"b{name} = Less({first}, {second}) {name} = Where(b{name}, {first}, {second})")
        else:
            lines.append(f"{name} = {op}({first}{', ' + second if op in BINARY else ''})")
        floats.append(name)
    outputs = draw(st.lists(st.sampled_from(floats[2:]), min_size=1, max_size=3, unique=True))
    results = ", ".join(f"float[2,2] {name}" for name in outputs)
    weight = draw(st.sampled_from([(1, 2, 3, 4), (1e6, 0, 0, 1), (1e-9, 0, 0, 0)]))
    return parse(
        f"g (float[2,2] x) => ({results}) <float[2,2] w> {{ {' '.join(lines)} }}", w=np.reshape(weight, (2, 2))
    )


@settings(max_examples=60)
@given(model=graphs(), precision=st.sampled_from(["fp16", "bf16"]), data=st.data())
def test_any_conversion_is_of_consistent_types_and_in_order(
    model: onnx.ModelProto, precision: str, data: st.DataObject
) -> None:
    made = [name for node in model.graph.node for name in node.output]
    keep = data.draw(st.sets(st.sampled_from(made)))

    half = to_half(model, precision, keep=keep, ranges={made[0]: (0.0, 1e9)})

    assert_sound(half)
    assert [v.name for v in half.graph.output] == [v.name for v in model.graph.output]
