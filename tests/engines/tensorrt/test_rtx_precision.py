"""Reduced precisions for GPUs that are not here: built by TensorRT for RTX, evaluated in ONNX Runtime."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto

from model_texts import parse
from precision import envelope, precision_options
from rtx_judges import asked
from simulated_tensorrt import Simulation
from stand_in_workers import InProcessWorker
from trtnode.engines.backends.names import TARGET_NAMES
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.errors import BuildError, PrecisionError
from trtnode.engines.precision.options import Calibration
from trtnode.engines.precision.rewriting import Setting, transform
from trtnode.engines.quantization.calibrator import calibrate
from trtnode.engines.quantization.dataset import CalibrationDataset
from trtnode.engines.quantization.table import CalibrationTable
from trtnode.partitioner.cut.segments import Segment
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import clean_up
from trtnode.serving.cli.program import main
from workshop import Workshop

pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")

DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits"
MODEL = str(DIGITS / "digits.onnx")
SHAPES = ("--shapes", "image:1x1x8x8,8x1x8x8,512x1x8x8")
CALIBRATION = ("--calibration", str(DIGITS / "calibration.npz"))
LACKING = {"bf16": ["sm75"], "fp8": ["sm75", "sm80", "sm86"], "int4": ["sm75"]}

IMAGES = "g (float[1,16,8,8] x) => (float[1,8,8,8] y) { a = Conv<pads = [1,1,1,1]>(x, w) b = Relu(a) y = Conv(b, v) }"
MATRICES = "g (float[2,64] x) => (float[2,8] y) { a = MatMul(x, w) b = Relu(a) y = MatMul(b, v) }"

Compile = Callable[..., int]


@pytest.fixture
def compile_digits(tmp_path: pathlib.Path) -> Compile:
    """Runs ``trtnode compile`` on the example for TensorRT for RTX, and returns its exit code."""
    command = ["compile", MODEL, "-o", str(tmp_path / "out.onnx"), "--engine", "tensorrt-rtx", "--no-cache", "--json"]
    return lambda *options: main([*command, *SHAPES, *options])


@pytest.mark.parametrize(
    ("options", "precision"),
    [
        pytest.param(["fp16"], "fp16", id="fp16"),
        pytest.param(["bf16"], "bf16", id="bf16"),
        pytest.param(["int8", *CALIBRATION], "int8", id="int8"),
        pytest.param(["fp8", *CALIBRATION], "fp8", id="fp8"),
        pytest.param(["int4", *CALIBRATION], "int4", id="int4"),
        pytest.param(["fp16", "--max-abs", "1e-9"], "fp32", id="outside-the-budget"),
    ],
)
def test_accuracy_is_measured_on_the_rewritten_model_run_natively(
    options: list[str], precision: str, compile_digits: Compile, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compile_digits("--targets", "sm89", "--precision", *options) == 0

    facts = json.loads(capsys.readouterr().out)["precision"]
    (first, *_) = facts["tried"]
    assert (facts["effective"], facts["evaluated_on"]) == (precision, "the rewritten model, run natively")
    assert (first["precision"], first["samples"] > 0) == (options[0], True)
    assert first["max_abs"] > 1e-9  # what was measured is the reduced precision, not the source


@dataclasses.dataclass(frozen=True)
class Example:
    """A model as one segment, its ranges, and the samples that they come from."""

    data: Calibration
    proto: onnx.ModelProto
    segment: Segment
    table: CalibrationTable

    @classmethod
    def of(cls, graph: str, folder: pathlib.Path, **weights: tuple[int, ...]) -> Example:
        rng, path = np.random.default_rng(8), folder / "float32.onnx"
        values = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in weights.items()}
        model = parse(graph, opset=22, **values)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        np.savez(folder / "samples.npz", x=rng.normal(size=(8, *shape)).astype(np.float32))
        graph_view = clean_up(load_model(path))
        parts = {"nodes": graph_view.nodes, "inputs": graph_view.inputs, "outputs": graph_view.outputs}
        table = calibrate(path, CalibrationDataset(folder / "samples.npz"))
        data = Calibration(data=str(folder / "samples.npz"))
        return cls(data, onnx.load(path), Segment(name="segment_0", level=0, **parts), table)

    def written_in(self, precision: str) -> onnx.ModelProto:
        setting = Setting(asked=precision, nodes=(precision,) * len(self.segment.nodes), table=self.table)
        written = transform(self.proto, self.segment, setting, get_backend("tensorrt-rtx"))
        assert (written.effective, written.is_float32) == (precision, False)
        return written.model


def corners(precision: str) -> list[str]:
    """Return the targets that lack a precision, and the first and the last that have it."""
    lacking = LACKING.get(precision, [])
    having = [target for target in TARGET_NAMES if target not in lacking]
    return [*lacking, having[0], having[-1]]


@pytest.mark.parametrize(
    ("precision", "target"),
    [(precision, target) for precision in ("fp16", "bf16", "int8", "fp8", "int4") for target in corners(precision)],
)
def test_model_that_the_precision_stage_writes_is_built_for_each_target_that_has_it(
    precision: str, target: str, tmp_path: pathlib.Path
) -> None:
    if precision == "int4":
        example = Example.of(MATRICES, tmp_path, w=(64, 32), v=(32, 8))
    else:
        example = Example.of(IMAGES, tmp_path, w=(16, 16, 3, 3), v=(8, 16, 1, 1))
    path = tmp_path / "segment.onnx"
    onnx.save(example.written_in(precision), path)
    backend = get_backend("tensorrt-rtx")

    if target in LACKING.get(precision, ()):
        with pytest.raises(BuildError):
            backend.build(path, asked(target))
        assert precision in backend.precision_support(asked(target)).lacking
    else:
        assert len(backend.build(path, asked(target))) > 1000
        assert precision in backend.precision_support(asked(target)).effective


@pytest.mark.parametrize(
    ("precision", "rule", "effective", "types"),
    [
        ("int8", "node=second:fp8", "fp8", {TensorProto.INT8, TensorProto.FLOAT8E4M3FN}),
        ("fp16", "node=second:int4", "int4", {TensorProto.FLOAT16, TensorProto.INT4}),
    ],
)
def test_nodes_of_several_precisions_share_an_engine(
    precision: str, rule: str, effective: str, types: set[int], workshop: Workshop
) -> None:
    named = "g (float[2,64] x) => (float[2,8] y) { [first] a = MatMul(x, w) b = Relu(a) [second] y = MatMul(b, v) }"
    example = Example.of(named, workshop.folder, w=(64, 32), v=(32, 8))
    plan = precision_options(precision, rule, calibration=example.data, min_cosine=0.5)

    compiled = workshop.compile(
        workshop.write(example.proto), engine="tensorrt-rtx", build=asked("sm89"), precision=plan
    )

    found = envelope(compiled)
    assert (found["node_precisions"]["first"], found["node_precisions"]["second"]) == (precision, effective)
    assert found["precision_effective"] == effective
    setting = Setting(asked=precision, nodes=(precision, precision, effective), table=example.table)
    written = transform(example.proto, example.segment, setting, get_backend("tensorrt-rtx")).model
    assert types <= {tensor.data_type for tensor in written.graph.initializer}


@pytest.mark.parametrize(
    ("samples", "problem"), [(0, "fp8 needs calibration: give samples"), (7, "fp8 needs at least 8 samples, and there")]
)
def test_float8_needs_the_calibration_of_int8(
    samples: int, problem: str, pair: pathlib.Path, workshop: Workshop, tmp_path: pathlib.Path
) -> None:
    np.savez(tmp_path / "few.npz", x=np.ones((samples, 1, 4), np.float32))
    few = Calibration(data=str(tmp_path / "few.npz") if samples else None)

    with pytest.raises(PrecisionError, match=problem) as caught:
        workshop.compile(
            pair, engine="tensorrt-rtx", build=asked("sm89"), precision=precision_options("fp8", calibration=few)
        )
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("opset", [9, 12, 17])
def test_bfloat16_is_computed_in_a_model_of_an_opset_that_has_none(opset: int, workshop: Workshop) -> None:
    images = "g (float[1,3,6,6] x) => (float[1,4,4,4] y) <float[4,3,3,3] w> { a = Conv(x, w) y = Relu(a) }"
    weights = np.random.default_rng(2).normal(size=(4, 3, 3, 3)).astype(np.float32)
    model = parse(images, opset=opset, ir_version=8, w=weights)
    del model.graph.value_info[:]

    plan = precision_options("bf16", calibration=Calibration())
    compiled = workshop.compile(workshop.write(model), engine="tensorrt-rtx", precision=plan)

    figures = compiled.report.as_json()["precision"]["figures"]
    assert compiled.precision_effective == "bf16"
    assert 1e-4 < figures["max_abs"] < 0.1  # as if nothing were rounded, it would be zero


@pytest.mark.parametrize(
    ("precision", "target", "said"),
    [
        ("bf16", "sm75,sm86", "has no bf16 here: sm75 can't compute that; sm80, sm86, sm89, sm120, sm121 can."),
        ("fp8", "sm80,sm86,sm89", "has no fp8 here: sm80 and sm86 can't compute that; sm89, sm120, sm121 can."),
        ("fp8", None, "has no fp8 here: sm80 and sm86 can't compute that; sm89, sm120, sm121 can."),
        ("int4", "sm75", "has no int4 here: sm75 can't compute that"),
    ],
)
def test_precision_that_a_target_lacks_is_refused_before_anything_is_done(
    precision: str, target: str | None, said: str, compile_digits: Compile, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = ["--targets", target] if target else []

    assert compile_digits("--precision", precision, *CALIBRATION, *targets) == 2

    message = capsys.readouterr().err
    assert message.startswith(f"trtnode: The engine tensorrt-rtx {said}")
    assert "Build for targets that can (--targets, or tensorrt.targets in servable.yaml)" in message
    assert message.count("\n") == 1


def test_rule_about_some_nodes_is_held_to_the_targets_too(
    compile_digits: Compile, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compile_digits("--targets", "sm75", "--precision-rules", "op=Conv:bf16") == 2
    assert "has no bf16 here: sm75 can't compute that" in capsys.readouterr().err


@pytest.mark.parametrize(("target", "fallback"), [("sm75", "fp16"), ("sm80", "bf16")])
def test_fallback_of_int8_is_one_that_every_target_has(target: str, fallback: str, workshop: Workshop) -> None:
    """No plan is accurate enough, so all are tried."""
    example = Example.of(IMAGES, workshop.folder, w=(16, 16, 3, 3), v=(8, 16, 1, 1))

    compiled = workshop.compile(
        workshop.write(example.proto),
        engine="tensorrt-rtx",
        build=asked(target, "sm89"),
        precision=precision_options("int8", calibration=example.data, max_abs=0.0),
    )

    tried = compiled.report.as_json()["precision"]["tried"]
    assert [trial["precision"] for trial in tried if not trial["moved_back"]] == ["int8", fallback]


def test_compiled_model_runs_natively_where_a_target_lacks_the_type(
    compile_digits: Compile, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compile_digits("--targets", "sm75") == 0

    facts = json.loads(capsys.readouterr().out)
    assert (facts["segments"], facts["engines_built"]) == (2, 2)  # before and behind the Gemm
    assert [one["node"] for one in facts["report"]["native"]] == ["gemm"]


def quantized_file(workshop: Workshop, dtype: Any) -> pathlib.Path:
    """A matrix product whose weights, and activations unless these are int4, are quantized in the file."""
    rng = np.random.default_rng(9)
    weights = rng.normal(size=(64, 8)).clip(-3, 3).astype(dtype)
    steps = np.full((4, 8), 0.1, np.float32)
    text = (
        "g (float[2,64] x) => (float[2,8] y) { d = DequantizeLinear<axis = 0, block_size = 16>(w, s) y = MatMul(x, d) }"
    )
    constants = {"w": weights, "s": steps}
    if dtype != ml_dtypes.int4:
        text = (
            "g (float[2,64] x) => (float[2,8] y) { q = QuantizeLinear(x, a, z) e = DequantizeLinear(q, a, z)"
            " d = DequantizeLinear(w, a, z) y = MatMul(e, d) }"
        )
        constants = {"w": weights, "a": np.array(0.1, np.float32), "z": np.zeros((), dtype)}
    model = parse(text)
    model.graph.initializer.extend(ir.to_proto(ir.tensor(array, name=name)) for name, array in constants.items())
    return workshop.write(model)


@pytest.mark.parametrize(
    ("dtype", "targets", "in_engines", "lacking"),
    [
        pytest.param(ml_dtypes.int4, (), 2, "", id="int4"),
        pytest.param(ml_dtypes.float8_e4m3fn, ("sm89", "sm120"), 4, "", id="fp8"),
        pytest.param(ml_dtypes.float8_e4m3fn, ("sm86", "sm89"), 0, "is float8e4m3fn: sm86 can't", id="fp8-for-ampere"),
        pytest.param(ml_dtypes.float8_e4m3fn, (), 0, "is float8e4m3fn: sm80 and sm86 can't", id="fp8-for-all"),
    ],
)
def test_model_that_is_quantized_in_the_file_is_labelled_and_built(
    dtype: Any, targets: tuple[str, ...], in_engines: int, lacking: str, workshop: Workshop
) -> None:
    report = workshop.compile(quantized_file(workshop, dtype), engine="tensorrt-rtx", build=asked(*targets)).report

    refused = [node for node in report.native if node.code == "UNSUPPORTED_DTYPE"]
    assert sum(len(segment.nodes) for segment in report.segments) == in_engines
    assert [node.op_type for node in refused] == ["QuantizeLinear", *["DequantizeLinear"] * 2] * bool(lacking)
    assert all(lacking in node.detail for node in refused)


def test_one_calibration_table_serves_all_three_libraries(
    workshop: Workshop, pair: pathlib.Path, vectors: Calibration, simulate: Callable[..., Simulation]
) -> None:
    table = workshop.folder / "ranges.json"
    assert main(["calibrate", str(pair), "--data", str(vectors.data), "-o", str(table)]) == 0
    plan = precision_options("int8", calibration=Calibration(ranges=table), min_cosine=0.5)

    envelopes = [envelope(workshop.compile(pair, engine=name, precision=plan)) for name in ("openvino", "tensorrt-rtx")]
    simulate()
    in_process = InProcessWorker()
    envelopes.append(envelope(workshop.compile(pair, engine="tensorrt", precision=plan, worker=in_process)))

    assert [one["backend"] for one in envelopes] == ["openvino", "tensorrt-rtx", "tensorrt"]
    assert {one["precision_effective"] for one in envelopes} == {"int8"}
    assert len({one["calibration_sha256"] for one in envelopes}) == 1
