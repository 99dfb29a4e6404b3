"""Compiled models compute in the precision asked for, as far as the accuracy budget allows, and say what they do."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from comparison import RunPlainly
from model_texts import clean, parse
from precision import envelope, precision_options
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.compile.opening import open_model
from trtnode.engines.precision.options import Calibration
from trtnode.engines.precision.rewriting import Setting, transform
from trtnode.partitioner.cut.segments import Segment
from workshop import Workshop


def points(path: pathlib.Path, test: Mapping[str, np.ndarray]) -> float:
    """Share of right answers, in percent."""
    results = open_model(path).run({"image": test["image"]})["probabilities"]
    return 100 * float((results.argmax(1) == test["label"]).mean())


def test_digits_loses_little_in_int8(
    int8: CompiledModel, digits: pathlib.Path, digits_test: Mapping[str, np.ndarray], tmp_path: pathlib.Path
) -> None:
    int8.save(tmp_path / "int8.onnx")

    assert int8.precision_effective == "int8"
    assert points(tmp_path / "int8.onnx", digits_test) >= points(digits, digits_test) - 0.3


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_digits_loses_nothing_in_half_precision(
    workshop: Workshop, digits: pathlib.Path, digits_test: Mapping[str, np.ndarray], precision: str
) -> None:
    path = workshop.compile_file(digits, precision=precision_options(precision))

    effective = get_backend("openvino").precision_support().effective[precision]
    facts = open_model(path).facts
    assert (facts.precision_asked, facts.precision) == (precision, effective)
    assert points(path, digits_test) >= points(digits, digits_test) - 0.1


def test_the_function_of_a_segment_stays_in_its_own_precision(
    int8: CompiledModel,
    digits: pathlib.Path,
    digits_test: Mapping[str, np.ndarray],
    tmp_path: pathlib.Path,
    plain: RunPlainly,
) -> None:
    int8.save(tmp_path / "int8.onnx")
    feeds = {"image": digits_test["image"]}

    expected, actual = plain(digits, feeds), plain(tmp_path / "int8.onnx", feeds)

    np.testing.assert_array_equal(actual["probabilities"], expected["probabilities"])
    assert "QuantizeLinear" not in {node.op_type for f in int8.model.functions for node in f.node}


def test_a_library_that_follows_types_gets_a_float16_model(
    workshop: Workshop, pair: pathlib.Path, vectors: Calibration, in_process: InProcessWorker
) -> None:
    asked = precision_options("fp16", "node=second:fp32", calibration=vectors)

    compiled = workshop.compile(pair, engine="reference", worker=in_process, precision=asked)

    (node,) = compiled.model.graph.node
    engine = onnx.ModelProto.FromString(next(a.t for a in node.attribute if a.name == "engine").raw_data)
    types = {t.data_type for t in engine.graph.initializer}
    assert types == {onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT}
    assert [n.op_type for n in engine.graph.node] == ["Cast", "MatMul", "Relu", "Cast", "MatMul"]
    assert envelope(compiled)["precision_effective"] == "fp16"


def test_a_chain_that_is_float16_itself_gets_an_engine(workshop: Workshop) -> None:
    text = "g (float16[1,64] x) => (float16[1,64] y) { a = MatMul(x, w) r = Relu(a) b = MatMul(r, w) y = Tanh(b) }"
    model = parse(text, w=np.random.default_rng(2).normal(0, 0.2, (64, 64)).astype(np.float16))

    compiled = workshop.compile(workshop.write(model))

    assert [len(s.nodes) for s in compiled.report.segments] == [4]


def test_the_envelope_has_the_plan_and_the_ranges(int8: CompiledModel) -> None:
    found = envelope(int8)

    assert (found["precision_asked"], found["precision_effective"]) == ("int8", "int8")
    assert set(found["node_precisions"].values()) == {"int8"}
    assert "conv1" in found["node_precisions"]
    assert len(found["calibration_sha256"]) == 64


def test_rules_keep_nodes_out_of_int8(workshop: Workshop, pair: pathlib.Path, vectors: Calibration) -> None:
    asked = precision_options("int8", "node=first:fp32", "op=MatMul:int8", calibration=vectors, min_cosine=0.9)

    compiled = workshop.compile(pair, precision=asked)

    assert envelope(compiled)["node_precisions"] == {"first": "fp32", "middle": "int8", "second": "int8"}
    assert compiled.report.as_json()["precision"]["rules"] == ["node=first:fp32", "op=MatMul:int8"]


def test_a_model_that_is_quantized_already_keeps_its_scales(
    workshop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    text = """g (float[1,4] x) => (float[1,4] y) <float s = {0.1}, uint8 z = {128}, float[4,4] w> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = MatMul(d, w)
    }"""
    model = parse(text, w=np.eye(4, dtype=np.float32))

    with caplog.at_level(logging.WARNING):
        compiled = workshop.compile(
            workshop.write(model), precision=precision_options("int8", calibration=Calibration())
        )

    assert "is quantized already, so it keeps its own scales" in caplog.text
    assert compiled.report.as_json()["precision"]["quantized_already"] is True
    assert compiled.precision_effective == "int8"


@pytest.mark.parametrize(
    ("precision", "kept"), [pytest.param("fp16", [], id="has-it"), pytest.param("bf16", ["warp"], id="lacks-it")]
)
def test_a_node_that_only_the_target_lacks_stays_float32(precision: str, kept: list[str]) -> None:
    graph = clean("""g (float[1,2,4,4] x, float[1,2,2,2] grid) => (float[1,2,2,2] y) {
        a = Abs(x)
        [warp] b = GridSample(a, grid)
        y = Neg(b)
    }""")
    segment = Segment(name="s", level=0, nodes=graph.nodes, inputs=graph.inputs, outputs=graph.outputs)
    model, setting = ir.to_proto(graph.model), Setting(asked=precision, nodes=(precision,) * 3)

    transformed = transform(model, segment, setting, get_backend("tensorrt"))

    assert list(transformed.without_kernel) == kept
    types = {v.name: v.type.tensor_type.elem_type for v in transformed.model.graph.value_info}
    (warped,) = (node for node in transformed.model.graph.node if node.op_type == "GridSample")
    assert types[warped.output[0]] == (onnx.TensorProto.FLOAT if kept else onnx.TensorProto.FLOAT16)
