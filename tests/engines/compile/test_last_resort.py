"""Nodes that neither ONNX Runtime nor an engine has a kernel for run in onnx.reference, and nothing else does."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from trtnode.engines.artifact.compiled_model import NATIVE_FALLBACK, REFERENCE_NODES
from trtnode.engines.backends.reference import Evaluator
from trtnode.engines.backends.stage_times import StageTime
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.opening import open_model
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.errors import ExecutionError, LastResortError, ReferenceNeededError
from trtnode.engines.runtime.executor import open_executable
from trtnode.engines.runtime.options import RunOptions
from trtnode.partitioner.model.loading import load_model
from workshop import Workshop, prepare_and_open

DOMAINS = ', "ai.onnx.preview": 1'

ATTENTION = """g (float[1,2,4,8] x, float[8,8] w) => (float[1,2,4,8] y) {
    q = MatMul (x, w)
    a = ai.onnx.preview.FlexAttention (q, x, x)
    r = Relu (a)
    y = Add (r, x)
}"""
"""Only onnx.reference has FlexAttention."""

FEEDS = {
    "x": np.random.default_rng(0).standard_normal((1, 2, 4, 8)).astype(np.float32),
    "w": np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32),
}

FUNCTION = """g (float[1,2,4,8] x) => (float[1,2,4,8] y) {
    a = local.attend (x)
    y = Neg (a)
}
<domain: "local", opset_import: ["": 20, "ai.onnx.preview": 1]>
attend (q) => (r) { t = ai.onnx.preview.FlexAttention (q, q, q) r = Relu (t) }"""
"""A function at another opset than the model's stays a call."""

ROI_ALIGN = """g (float[N,2,8,8] x, float[1,4] rois, int64[1] batch) => (float[1,2,2,2] y) {
    e = Exp (x)
    r = RoiAlign <output_height=2, output_width=2, sampling_ratio=2> (e, rois, batch)
    y = Neg (r)
}"""
"""ONNX Runtime has kernels of RoiAlign for opset 16 to 21 alone; OpenVINO has them for opset 22."""

ROI_FEEDS = {
    "x": np.linspace(-1, 1, 256, dtype=np.float32).reshape(2, 2, 8, 8),
    "rois": np.array([[1, 1, 6, 6]], np.float32),
    "batch": np.zeros(1, np.int64),
}

BRANCHES = """g (bool[] c, float[1,1,2,2] x) => (float[1,1,2,2] y) {
    z = Exp (x)
    y = If (c) <
        then_branch = t () => (a) { a = ai.onnx.preview.FlexAttention (z, x, x) },
        else_branch = e () => (b) { b = Neg (z) }
    >
}"""


@pytest.fixture
def source(workshop: Workshop) -> pathlib.Path:
    return workshop.write(ATTENTION, domains=DOMAINS)


def expected(source: pathlib.Path, feeds: dict[str, np.ndarray] = FEEDS) -> list[np.ndarray]:
    return list(ReferenceEvaluator(str(source)).run(None, feeds))


def test_engines_take_the_nodes_around_it(workshop: Workshop, source: pathlib.Path) -> None:
    compiled = workshop.compile(source)

    assert [len(segment.nodes) for segment in compiled.report.segments] == [1, 2]
    assert [(node.op_type, node.code) for node in compiled.report.native] == [("FlexAttention", "NO_KERNEL")]
    assert "onnx.reference, in Python, which is slow" in compiled.report.native[0].detail
    assert compiled.reference_nodes == ("FlexAttention",)


@pytest.mark.parametrize("engine", ["openvino", "native"])
def test_the_file_stays_valid_and_says_what_it_needs(workshop: Workshop, source: pathlib.Path, engine: str) -> None:
    compiled = workshop.compile(source, engine=engine)

    onnx.checker.check_model(compiled.model)
    properties = {entry.key: entry.value for entry in compiled.model.metadata_props}
    assert json.loads(properties[REFERENCE_NODES]) == {"a": "FlexAttention"}
    assert properties[NATIVE_FALLBACK] == "reference"
    assert [node.op_type for node in compiled.model.graph.node].count("FlexAttention") == 1


@pytest.mark.parametrize("engine", ["openvino", "native"])
def test_the_compiled_file_gives_the_right_answer(workshop: Workshop, source: pathlib.Path, engine: str) -> None:
    executable = open_model(workshop.compile_file(source, engine=engine))

    np.testing.assert_allclose(executable.run(FEEDS)["y"], expected(source)[0], rtol=1e-5, atol=1e-6)
    assert executable.facts.reference_nodes == ["FlexAttention"]


def test_its_stage_is_one_node(workshop: Workshop, source: pathlib.Path) -> None:
    executable = open_model(workshop.compile_file(source))
    times: list[StageTime] = []

    executable.run(FEEDS, times=times)

    assert [(stage.name, stage.is_engine) for stage in times] == [
        ("segment_0", True),
        ("FlexAttention:a", False),
        ("segment_1", True),
    ]


def test_a_model_that_is_not_compiled_runs(source: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    executable = open_model(source)

    np.testing.assert_allclose(executable.run(FEEDS)["y"], expected(source)[0], rtol=1e-5, atol=1e-6)
    assert "onnx.reference, which is slow, runs 1 node (FlexAttention)" in caplog.text


@pytest.mark.parametrize("condition", [True, False])
def test_control_flow_around_it_runs_there_as_a_whole(workshop: Workshop, condition: bool) -> None:
    source = workshop.write(BRANCHES, domains=DOMAINS)
    feeds = {"c": np.array(condition), "x": np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2) / 4}

    executable = open_model(workshop.compile_file(source))

    np.testing.assert_allclose(executable.run(feeds)["y"], expected(source, feeds)[0], rtol=1e-5)
    assert executable.facts.reference_nodes == ["If"]


def test_a_function_around_it_runs_there_as_a_whole(workshop: Workshop) -> None:
    source = workshop.write(FUNCTION, domains=f'{DOMAINS}, "local": 1')
    feeds = {"x": FEEDS["x"]}

    executable = open_model(workshop.compile_file(source))

    np.testing.assert_allclose(executable.run(feeds)["y"], expected(source, feeds)[0], rtol=1e-5, atol=1e-6)
    assert executable.facts.reference_nodes == ["attend"]


def test_an_engine_goes_before_it(workshop: Workshop) -> None:
    source = workshop.write(ROI_ALIGN, opset=22)
    compiled = workshop.compile(source)

    assert compiled.report.native == ()
    assert compiled.reference_nodes == ()
    assert compiled.native_fallback


def test_it_stands_behind_an_engine_that_can_not_answer(workshop: Workshop) -> None:
    source = workshop.write(ROI_ALIGN, opset=22)
    executable = open_model(workshop.compile_file(source))
    np.testing.assert_allclose(executable.run(ROI_FEEDS)["y"], expected(source, ROI_FEEDS)[0], rtol=1e-5)

    with pytest.raises(ExecutionError, match=r"onnx\.reference"):
        executable.run({**ROI_FEEDS, "batch": np.full(1, 2**40)})


@pytest.mark.usefixtures("choosing_engines")
def test_an_engine_stays_whose_nodes_onnxruntime_lacks(workshop: Workshop) -> None:
    compiled = workshop.compile(workshop.write(ROI_ALIGN, opset=22))

    assert [len(segment.nodes) for segment in compiled.report.segments] == [3]


def test_it_must_be_allowed(workshop: Workshop, source: pathlib.Path) -> None:
    compiled = workshop.compile_file(source)

    with pytest.raises(ReferenceNeededError, match=r"1 node \(FlexAttention\).*`reference: true`"):
        workshop.compile(source, reference=False)
    with pytest.raises(ReferenceNeededError, match=r"`reference: true`"):
        open_executable(load_model(compiled), compiled, folder=compiled.parent, run=RunOptions(reference=None))
    with pytest.raises(ReferenceNeededError, match=r"`reference: true`"):
        open_executable(load_model(source), source, folder=source.parent, run=RunOptions(reference=None))


def test_explain_says_it_before_anything_is_built(source: pathlib.Path) -> None:
    _, report = partition_model(source, CompileOptions(engine="openvino"))

    assert [(node.op_type, node.code) for node in report.native] == [("FlexAttention", "NO_KERNEL")]


def test_a_model_is_prepared_for_it_only_where_options_let_it(source: pathlib.Path) -> None:
    executable = prepare_and_open(source, CompileOptions(engine="openvino"))

    np.testing.assert_allclose(executable.run(FEEDS)["y"], expected(source)[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(ReferenceNeededError):
        prepare_and_open(source, CompileOptions(engine="openvino", reference=False))


def test_a_result_that_the_operator_does_not_define_is_refused(source: pathlib.Path) -> None:
    def shorten(_: onnx.ModelProto) -> Evaluator:
        return lambda feeds: [feeds["q"][:, :1]]

    executable = open_executable(load_model(source), source, folder=source.parent, run=RunOptions(reference=shorten))

    with pytest.raises(LastResortError, match=r"float32\[1, 1, 4, 8\] for 'a', which is float32\[1, ?2, ?4, ?8\]"):
        executable.run(FEEDS)


@pytest.mark.parametrize("pads", [0, 1])
def test_automatic_padding_beside_other_padding_is_refused_where_they_differ(workshop: Workshop, pads: int) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 18]> g (float[1,1,4,4] x, float[1,1,3,3] w) => (float[1,1,?,?] y) {{
            a = Conv<auto_pad = "VALID", pads = {[pads] * 4}>(x, w)
            y = Neg(a)
        }}"""
    )
    feeds = {"x": np.ones((1, 1, 4, 4), np.float32), "w": np.ones((1, 1, 3, 3), np.float32)}

    executable = open_model(workshop.write(model))

    if pads:
        with pytest.raises(LastResortError, match=r"float32\[1, 1, 2, 2\] for 'a', which is float32\[1, 1, 4, 4\]"):
            executable.run(feeds)
    else:
        np.testing.assert_array_equal(executable.run(feeds)["y"], np.full((1, 1, 2, 2), -9, np.float32))
