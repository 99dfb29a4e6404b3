"""An operator outside ONNX runs natively, and the nodes behind it stay in engines."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable

import pytest

from arrays import floats
from comparison import AssertSame, RunPlainly
from stand_in_workers import InProcessWorker
from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.runtime.executor import Executable
from trtnode.partitioner.cut.report import Report
from workshop import Workshop

DOMAINS = ', "com.microsoft": 1, "ai.onnx.ml": 3'
GELU = """g (float[N,4] x) => (float[A,B] y) {
    a = Exp(x) [gelu] b = com.microsoft.FastGelu(a) c = Neg(b) d = Tanh(c) y = Relu(d)
}"""
SCALED = """g (float[N,3] x) => (float[A,B] y) {
    a = Neg(x) [scaler] b = ai.onnx.ml.Scaler <offset = [1.0, 2.0, 3.0], scale = [2.0, 2.0, 2.0]> (a)
    c = Exp(b) d = Transpose(c) y = Relu(d)
}"""
HEAD = """g (float[N,3] x) => (float[A,B] y) <int64[1] first = {0}, int64[1] two = {2}> {
    a = Slice(x, first, two)
    [scaler] b = ai.onnx.ml.Scaler <offset = [1.0, 2.0, 3.0], scale = [2.0, 2.0, 2.0]> (a)
    y = Neg(b)
}"""
"""Two rows at most: each size that is tried gives two, and a request of one row gives one."""


def explained(source: pathlib.Path, engine: str, worker: InProcessWorker) -> Report:
    return partition_model(source, CompileOptions(engine=engine), worker=worker)[1]  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["openvino", "reference"])
@pytest.mark.parametrize(
    ("graph", "native"),
    [
        pytest.param(GELU, "gelu", id="rule-of-the-runtime"),
        pytest.param(SCALED, "scaler", id="nobody-has-a-rule"),
    ],
)
def test_nodes_behind_a_foreign_operator_stay_in_engines(
    graph: str, native: str, engine: str, workshop: Workshop, in_process: InProcessWorker
) -> None:
    source = workshop.write(graph, domains=DOMAINS)

    report = explained(source, engine, in_process)
    compiled = workshop.compile(source, engine=engine, worker=in_process).report

    assert [node.node for node in report.native] == [node.node for node in compiled.native] == [native]
    assert [len(s.nodes) for s in report.segments] == [len(s.nodes) for s in compiled.segments] == [1, 3]
    assert report.unknown_shapes == ()


def test_profiles_of_an_engine_behind_a_foreign_operator_follow_from_runs(
    workshop: Workshop, worker: SubprocessWorker
) -> None:
    rows = {"x": ShapeRange(min=(1, 3), opt=(4, 3), max=(9, 3))}
    options = CompileOptions(engine="tensorrt-rtx", shapes=(rows,))

    compiled = compile_model(workshop.write(SCALED, domains=DOMAINS), options, worker=worker)

    assert [len(segment.nodes) for segment in compiled.report.segments] == [1, 3]
    native = [node for node in compiled.model.graph.node if node.op_type == "TrtNode"]
    envelopes = [next(a.s for a in node.attribute if a.name == "envelope") for node in native]
    assert json.loads(envelopes[1])["profiles"] == [{"b": {"min": [1, 3], "opt": [4, 3], "max": [9, 3]}}]


def test_dimensions_that_vary_behind_a_foreign_operator_vary_in_engines(
    workshop: Workshop,
    in_process: InProcessWorker,
    plain: RunPlainly,
    same: AssertSame,
    fallbacks: Callable[[Executable], list[str]],
) -> None:
    source = workshop.write(SCALED, domains=DOMAINS)
    executable = open_model(workshop.compile_file(source, worker=in_process))
    reasons = fallbacks(executable)

    for rows in (1, 2, 5, 64):
        feeds = {"x": floats(rows, 3)}
        same(executable.run(feeds), plain(source, feeds))

    assert reasons == []


def test_a_size_that_runs_showed_and_a_request_breaks_is_answered_natively(
    workshop: Workshop,
    in_process: InProcessWorker,
    plain: RunPlainly,
    same: AssertSame,
    fallbacks: Callable[[Executable], list[str]],
) -> None:
    source = workshop.write(HEAD, domains=DOMAINS)
    path = workshop.compile_file(source, worker=in_process)
    executable = open_model(path)
    reasons = fallbacks(executable)

    for rows in (7, 1):
        feeds = {"x": floats(rows, 3)}
        same(executable.run(feeds), plain(source, feeds))
        same(plain(path, feeds), plain(source, feeds))

    assert len(reasons) == 1


def test_explain_names_the_cause_where_no_run_shows_a_shape(workshop: Workshop, in_process: InProcessWorker) -> None:
    sevens = SCALED.replace("y) {", "y) <int64[2] s = {7, 3}> {").replace("Neg(x)", "Reshape(x, s)")

    report = explained(workshop.write(sevens, domains=DOMAINS), "openvino", in_process)

    assert [(one.after, one.domain, one.nodes) for one in report.unknown_shapes] == [("scaler", "ai.onnx.ml", 3)]


def test_a_model_without_unknown_types_is_neither_loaded_nor_run(
    workshop: Workshop, in_process: InProcessWorker
) -> None:
    explained(workshop.write("g (float[N] x) => (float[N] y) { y = Exp(x) }"), "openvino", in_process)

    assert {"infer_types", "observe_shapes"}.isdisjoint(in_process.calls)
