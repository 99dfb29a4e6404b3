"""A model in a lower precision, as plain ONNX: inside its budget, and of the types that it was asked for."""

from __future__ import annotations

import json
import pathlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from encoders import encoder
from precision import precision_options
from trtnode.engines.backends.names import AskedPrecision
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.conversion.typed_models import REPORT, convert_file
from trtnode.engines.errors import AlreadyCompiledError, EngineError, OverwriteError, PrecisionError
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.precision.bfloat16 import with_float32_kernels
from trtnode.engines.precision.options import Calibration
from workshop import Workshop

STORED = {
    "fp16": TensorProto.FLOAT16,
    "bf16": TensorProto.BFLOAT16,
    "int8": TensorProto.INT8,
    "fp8": TensorProto.FLOAT8E4M3FN,
    "int4": TensorProto.INT4,
}
"""The type of weights in each precision."""

GENERATED = Calibration()
LAYERS = "g (float[N,8] x) => (float[N,8] y) { a = MatMul(x, w) y = Relu(a) }"


def converted(
    workshop: Workshop, source: pathlib.Path, asked: AskedPrecision, *rules: str, **options: Any
) -> tuple[onnx.ModelProto, Mapping[str, Any]]:
    """The typed model, and the report of its search."""
    output = workshop.folder / f"{asked}.onnx"
    wanted = CompileOptions(**vars(precision_options(asked, *rules, **options)))
    report = convert_file(source, output, wanted, worker=workshop.worker)
    return onnx.load(output), report


def weights() -> onnx.TensorProto:
    return numpy_helper.from_array(np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32), "w")


def layers(workshop: Workshop) -> pathlib.Path:
    model = onnx.load(workshop.write(LAYERS))
    model.graph.initializer.append(weights())
    return workshop.write(model)


def interface(model: onnx.ModelProto) -> list[bytes]:
    return [value.SerializeToString(deterministic=True) for value in (*model.graph.input, *model.graph.output)]


def accuracy(model: onnx.ModelProto, test: Mapping[str, np.ndarray]) -> float:
    session = NativeSession(model, name="the typed model")
    return float((session.run({"image": test["image"]})[0].argmax(1) == test["label"]).mean())


@pytest.mark.parametrize("asked", ["fp16", "int8", "fp8", "int4"])
def test_plain_onnxruntime_answers_inside_the_budget(
    asked: AskedPrecision, workshop: Workshop, digits: pathlib.Path, digits_test: Mapping[str, np.ndarray]
) -> None:
    source = onnx.load(digits)

    model, report = converted(workshop, digits, asked, min_top1_agreement=0.98)

    assert report["effective"] == asked
    assert report["figures"]["top1_agreement"] >= 0.98
    assert STORED[asked] in {tensor.data_type for tensor in model.graph.initializer}
    assert interface(model) == interface(source)
    assert abs(accuracy(model, digits_test) - accuracy(source, digits_test)) <= 0.01


def test_bfloat16_is_judged_although_a_processor_has_few_kernels_for_it(
    workshop: Workshop, digits: pathlib.Path
) -> None:
    model, report = converted(workshop, digits, "bf16", calibration=GENERATED)

    onnx.checker.check_model(model, full_check=True)
    assert report["effective"] == "bf16"
    assert report["figures"]["cosine"] > 0.99
    assert TensorProto.BFLOAT16 in {tensor.data_type for tensor in model.graph.initializer}


def test_an_encoder_of_any_length_is_quantized(workshop: Workshop) -> None:
    rng, samples = np.random.default_rng(0), workshop.folder / "words.npz"
    words = rng.integers(0, 50, (16, 3, 5))
    np.savez(samples, ids=words, mask=np.ones_like(words))

    model, report = converted(
        workshop, workshop.write(encoder()), "int8", calibration=Calibration(data=str(samples)), min_cosine=0.98
    )

    kinds = Counter(node.op_type for node in model.graph.node)
    assert report["effective"] == "int8"
    assert kinds["QuantizeLinear"] >= 2
    other = {"ids": rng.integers(0, 50, (2, 9)), "mask": np.ones((2, 9), np.int64)}
    expected, actual = (NativeSession(one, name="an encoder").run(other) for one in (encoder(), model))
    for one, two in zip(expected, actual, strict=True):
        assert np.vdot(one, two) / (np.linalg.norm(one) * np.linalg.norm(two)) > 0.98


def test_rules_keep_nodes_in_float32_and_the_file_says_so(workshop: Workshop, digits: pathlib.Path) -> None:
    model, report = converted(workshop, digits, "int8", "node=conv1:fp32")

    (conv,) = (node for node in model.graph.node if node.name == "conv1")
    assert {t.name: t.data_type for t in model.graph.initializer}[conv.input[1]] == TensorProto.FLOAT
    written = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(written[REPORT]) == report
    assert report["rules"] == ["node=conv1:fp32"]


INDICES = "int64[2,1] rows = {0, 2}, int64[2,8] places = {0,1,2,3,0,1,2,3, 3,2,1,0,3,2,1,0}, int64[1] zero = {0},"
SLICED = "int64[1] eight = {8}, int64[1] one = {1}, int64[1] two = {2}"
STATISTICS = ", ".join(f"float[8] {name} = {{{', '.join('1' * 8)}}}" for name in ("scale", "shift", "mean", "variance"))


@pytest.mark.parametrize("asked", ["fp16", "bf16"])
@pytest.mark.parametrize(
    ("nodes", "kept"),
    [
        pytest.param('b = ScatterND<reduction = "max">(a, rows, u)', ["ScatterND"], id="scatter-nd"),
        pytest.param(
            'b = ScatterElements<reduction = "add">(a, places, u)', ["ScatterElements"], id="scatter-elements"
        ),
        pytest.param(
            "s = SequenceConstruct(a, a) c = ConcatFromSequence<axis = 1>(s) b = Slice(c, zero, eight, one)",
            ["SequenceConstruct", "ConcatFromSequence"],
            id="sequence",
        ),
        pytest.param(
            "b, m, v = BatchNormalization<training_mode = 1>(a, scale, shift, mean, variance)",
            ["BatchNormalization"],
            id="training",
        ),
    ],
)
def test_nodes_without_a_kernel_stay_float32_and_the_report_names_them(
    workshop: Workshop, asked: AskedPrecision, nodes: str, kept: list[str]
) -> None:
    text = f"""g (float[4,8] x) => (float[4,8] y) <{INDICES} {SLICED}, {STATISTICS}> {{
        a = MatMul(x, w) u = Slice(x, zero, two) {nodes} y = MatMul(b, w) }}"""
    model = onnx.load(workshop.write(text))
    model.graph.initializer.append(weights())
    source = workshop.write(model)

    written, report = converted(workshop, source, asked, calibration=GENERATED)

    named = {node.name or f"{node.op_type}:{node.output[0]}" for node in model.graph.node if node.op_type in kept}
    assert set(report["without_kernel"]) == named
    types = onnx.shape_inference.infer_shapes(written).graph.value_info
    known = {value.name: value.type.tensor_type.elem_type for value in types}
    weight = {t.name: t.data_type for t in written.graph.initializer}
    assert all(weight[n.input[1]] == STORED[asked] for n in written.graph.node if n.op_type == "MatMul")
    floats = {known.get(n.input[0], weight.get(n.input[0])) for n in written.graph.node if n.op_type in kept[:1]}
    assert floats == {TensorProto.FLOAT}
    x = {"x": np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32)}
    expected, actual = (NativeSession(one, name="m").run(x)[0] for one in (source, with_float32_kernels(written)))
    np.testing.assert_allclose(actual, expected, atol=0.2)


def test_an_initializer_that_is_an_input_becomes_a_constant(workshop: Workshop) -> None:
    source = onnx.load(layers(workshop))
    source.graph.input.append(onnx.helper.make_tensor_value_info("w", TensorProto.FLOAT, [8, 8]))

    model, _ = converted(workshop, workshop.write(source), "fp16", calibration=GENERATED)

    assert [value.name for value in model.graph.input] == ["x"]
    assert [tensor.data_type for tensor in model.graph.initializer] == [TensorProto.FLOAT16]


def test_results_that_nothing_computes_stay(workshop: Workshop) -> None:
    source = onnx.load(workshop.write(LAYERS.replace("(float[N,8] y)", "(float[N,8] y, float[N,8] x, float[8,8] w)")))
    source.graph.initializer.append(weights())
    x = np.ones((2, 8), np.float32)

    model, _ = converted(workshop, workshop.write(source), "fp16", calibration=GENERATED)

    y, same, w = NativeSession(model, name="typed").run({"x": x})
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(w, numpy_helper.to_array(weights()))
    np.testing.assert_allclose(y, np.maximum(x @ w, 0), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("graph", "limits", "sentence"),
    [
        pytest.param(LAYERS, {"max_abs": 1e-12}, "fp16 breaks the accuracy budget: ", id="outside-the-budget"),
        pytest.param("g (int64[N] x) => (int64[N] y) { y = Add(x, x) }", {}, "fp16 changes no node", id="integers"),
    ],
)
def test_nothing_is_written_where_all_of_it_stays_float32(
    graph: str, limits: Mapping[str, float], sentence: str, workshop: Workshop
) -> None:
    source = layers(workshop) if graph == LAYERS else workshop.write(graph)

    with pytest.raises(PrecisionError, match=sentence):
        converted(workshop, source, "fp16", calibration=GENERATED, **limits)

    assert not (workshop.folder / "fp16.onnx").exists()


def test_wrong_files_are_refused(workshop: Workshop) -> None:
    source = layers(workshop)
    compiled = workshop.compile_file(source)

    with pytest.raises(AlreadyCompiledError):
        converted(workshop, compiled, "fp16", calibration=GENERATED)
    with pytest.raises(PrecisionError, match="int8 needs calibration"):
        converted(workshop, source, "int8", calibration=GENERATED)
    with pytest.raises(OverwriteError):
        convert_file(source, source, CompileOptions(precision="fp16"), worker=workshop.worker)


def test_a_model_that_runs_on_nothing_generated_asks_for_inputs(workshop: Workshop) -> None:
    picky = "g (float[N] x) => (float[7,11] y) <int64[2] sizes = {7, 11}> { s = Reshape(x, sizes) y = Relu(s) }"

    with pytest.raises(EngineError, match="--check-inputs"):
        converted(workshop, workshop.write(picky), "fp16", calibration=GENERATED)
