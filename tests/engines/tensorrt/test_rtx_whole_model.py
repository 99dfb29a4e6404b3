"""TensorRT for RTX asked about whole models: what it takes where it stands, and the shapes that it alone infers."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

import onnx
import pytest

from stand_in_workers import AnyWorker, CrashingWorker
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.engines.build.library_verdicts import _known
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.tensorrt.labelling.operator_rules import OPERATOR_RULES
from trtnode.engines.tensorrt.whole_model import read_model
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode
from trtnode.partitioner.cut.options import PartitionOptions
from workshop import Workshop

rtx: Any = pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")

GIVEN_UP = """g (float[N,4] x) => (float[A,B] y) <int64 zero = {0}, int64 one = {1}> {
    sizes = Shape(x) rank = Size(sizes) places = Range(zero, rank, one) target = Gather(sizes, places)
    a = Relu(x) bent = Reshape(a, target) [odd] s = Softsign(bent) y = Tanh(s)
}"""
"""ONNX's inference gives up on the rank of ``bent`` and of all behind it."""
ROWS = {"x": ShapeRange(min=(1, 4), opt=(2, 4), max=(8, 4))}


class CountingWorker:
    """Keeps the names of the jobs that a child is given."""

    def __init__(self, inner: AnyWorker) -> None:
        self.jobs: list[str] = []
        self._inner = inner

    def call(self, function: Callable[..., Any], timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        self.jobs.append(function.__name__)
        return self._inner.call(function, timeout_s, *args, **kwargs)


class DyingWorker(CountingWorker):
    """Lets the child die of every question about a whole model."""

    def call(self, function: Callable[..., Any], timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        if function.__name__ == "read_model":
            return super().call(os._exit, timeout_s, 11)
        return super().call(function, timeout_s, *args, **kwargs)


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    _known.clear()


@pytest.fixture
def compile_rtx(workshop: Workshop, worker: SubprocessWorker) -> Callable[..., Any]:
    """Compiles a graph in ONNX's own language."""

    def compile_rtx(
        graph: str | onnx.ModelProto,
        *shapes: dict[str, ShapeRange],
        native: tuple[str, ...] = (),
        by: Any = worker,
        cache: EngineCache | None = None,
    ) -> Any:
        options = CompileOptions(engine="tensorrt-rtx", shapes=shapes, partition=PartitionOptions(native_ops=native))
        return compile_model(workshop.write(graph), options, worker=by, cache=cache)

    return compile_rtx


def cut_of(compiled: Any) -> list[list[str]]:
    return [[node.op_type for node in segment.nodes] for segment in compiled.report.segments]


def test_parser_that_takes_a_whole_model_tells_the_shapes_that_it_infers(workshop: Workshop) -> None:
    reading = read_model(rtx, workshop.write(GIVEN_UP))

    shapes = {spec.name: spec.shape for spec in reading.tensors}
    assert reading.verdict == SUPPORTED
    assert (shapes["target"], shapes["bent"], shapes["y"]) == ((2,), (None, 4), (None, 4))


@pytest.mark.parametrize(
    ("node", "name"),
    [
        pytest.param("b = Det(a)", "b", id="node"),
        pytest.param(
            "b = If(c) <then_branch = t () => (float d) { d = Det(a) }, else_branch = e () => (float f) "
            "{ f = Det(a) }>",
            "b",
            id="node-in-a-subgraph",
        ),
    ],
)
def test_parser_that_refuses_a_node_names_it_and_tells_the_shapes_before_it(
    node: str, name: str, workshop: Workshop
) -> None:
    reading = read_model(
        rtx, workshop.write(f"g (float[2,2] x, bool c) => (float y) {{ a = Relu(x) {node} y = Tanh(b) }}")
    )

    assert reading.verdict.code == ReasonCode.UNSUPPORTED_OP
    assert (reading.refused, [spec.name for spec in reading.tensors]) == (name, ["a"])


def test_node_that_the_parser_misreads_is_refused_before_the_build(workshop: Workshop) -> None:
    graph = """g (float[1,3,2,2] x) => (float[1,3,1,1] y) <float[1,3,1,1] b>
    { a = Relu(x) b = MaxPool<kernel_shape = [1, 1], strides = [2, 2], ceil_mode = 1>(a) y = Relu(b) }"""

    reading = read_model(rtx, workshop.write(graph))

    assert (reading.refused, reading.verdict.code) == ("b", ReasonCode.BUILD_FAILED)
    assert "gives 'b' the shape [1, 3, 2, 2]; in ONNX it is [1, 3, 1, 1]" in reading.verdict.detail


def test_output_that_is_declared_against_onnxs_own_rules_is_in_the_engine(
    compile_rtx: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    compiled = compile_rtx("g (float[1,2] x) => (float[1,4] y) <int64[4] p = {0, 0, 1, 1}> { y = Pad(x, p) }")

    assert (compiled.report.native, len(compiled.report.segments)) == ((), 1)
    assert "Shapes that the model declares are wrong" in caplog.text


def test_declared_output_does_not_excuse_a_misread_node(compile_rtx: Callable[..., Any]) -> None:
    graph = """g (float[1,3,2,2] x) => (float[1,3,7,7] y)
    { a = Relu(x) y = MaxPool<kernel_shape = [1, 1], strides = [2, 2], ceil_mode = 1>(a) }"""

    assert cut_of(compile_rtx(graph)) == [["Relu"]]


def test_tensor_of_a_body_is_not_taken_for_the_outer_one_of_its_name(compile_rtx: Callable[..., Any]) -> None:
    graph = """g (float[2] start, float[3,2] x) => (float[2] last, float[3,2] y) {
        last, rows = Scan<num_scan_inputs = 1, body = b (float[2] s, float[2] row) => (float[2] t, float[2] made)
        { t = Add(s, row) rows = Exp(t) made = Tanh(rows) }>(start, x)
        y = Relu(rows)
    }"""

    assert cut_of(compile_rtx(graph)) == [["Scan", "Relu"]]


def test_model_whose_shapes_only_the_library_infers_is_one_engine(compile_rtx: Callable[..., Any]) -> None:
    compiled = compile_rtx(GIVEN_UP, ROWS)

    assert compiled.report.native == ()
    assert len(compiled.report.segments) == 1


def test_profile_of_a_segment_behind_a_native_node_has_the_librarys_shapes(compile_rtx: Callable[..., Any]) -> None:
    compiled = compile_rtx(GIVEN_UP, ROWS, native=("Softsign",))

    assert [(n.node, n.code) for n in compiled.report.native] == [("odd", ReasonCode.USER_EXCLUDED)]
    assert cut_of(compiled)[-1] == ["Tanh"]


def test_only_nodes_behind_a_shape_that_nobody_knows_run_natively(compile_rtx: Callable[..., Any]) -> None:
    graph = """g (float[6] x, float[6] z) => (int64[1,M] y, float[6] w)
    { i = NonZero(x) j = Abs(i) y = Neg(j) v = Relu(z) w = Tanh(v) }"""

    compiled = compile_rtx(graph)

    dynamic = {n.op_type: n.detail for n in compiled.report.native if n.code == ReasonCode.DYNAMIC_SHAPE}
    assert dynamic.keys() == {"Abs", "Neg"}
    assert "The shape of 'i' does not follow from the inputs' shapes" in dynamic["Abs"]
    assert cut_of(compiled) == [["Relu", "Tanh"]]


@pytest.mark.parametrize("crash", [CrashingWorker, DyingWorker], ids=["told", "real"])
def test_crash_at_the_question_about_the_whole_model_leaves_parts_asked(
    crash: Any, worker: SubprocessWorker, compile_rtx: Callable[..., Any]
) -> None:
    counting = CountingWorker(worker)
    by = CrashingWorker(counting, "read_model") if crash is CrashingWorker else DyingWorker(counting)

    compiled = compile_rtx("g (float[2,4] x) => (float[2,4] y) { a = Relu(x) y = Tanh(a) }", by=by)

    assert cut_of(compiled) == [["Relu", "Tanh"]]
    assert "check_support" in counting.jobs


def test_taken_whole_model_is_asked_about_once_and_answers_are_kept(
    worker: SubprocessWorker, compile_rtx: Callable[..., Any], cache: EngineCache
) -> None:
    first, second = CountingWorker(worker), CountingWorker(worker)

    compile_rtx(GIVEN_UP, ROWS, by=first, cache=cache)
    compiled = compile_rtx(GIVEN_UP, ROWS, by=second, cache=cache)

    assert [first.jobs.count(job) for job in ("read_model", "check_support", "build")] == [1, 0, 1]
    assert [second.jobs.count(job) for job in ("read_model", "check_support", "build")] == [0, 0, 0]
    assert len(compiled.report.segments) == 1


def test_what_comes_behind_a_refused_node_is_asked_about_as_well(
    worker: SubprocessWorker, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(OPERATOR_RULES, "CumSum")  # which knows what the parser refuses
    graph = """g (float[2,3] x) => (float[2,3] y) <int64 axis = {0}> {
        a = Relu(x) s = ReduceSum<keepdims = 0>(a) b = CumSum(s, axis) c = Add(b, a) y = Tanh(c)
    }"""
    partition, _ = partition_model(workshop.write(graph), CompileOptions(engine="tensorrt-rtx"))

    assert [verdict.supported for verdict in partition.labels.values()] == [True, True, False, True, True]
    assert "TensorRT's parser (" in partition.labels["CumSum:b"].detail


def test_tables_refusal_that_protects_meaning_holds_though_the_parser_takes_the_model(
    compile_rtx: Callable[..., Any],
) -> None:
    compiled = compile_rtx("g (double[2] x) => (double[2] y) { y = Abs(x) }")

    (native,) = compiled.report.native
    assert native.code == ReasonCode.UNSUPPORTED_DTYPE


def test_sizes_that_the_table_can_not_follow_are_the_librarys_to_judge(compile_rtx: Callable[..., Any]) -> None:
    graph = """g (float[N,4] x) => (float[A,4] y) <float[2] most = {6.0, 4.0}, int64[2] start = {0, 0}> {
        sizes = Shape(x) wide = Cast<to = 1>(sizes) least = Min(wide, most) end = Cast<to = 7>(least)
        a = Relu(x) b = Slice(a, start, end) y = Tanh(b)
    }"""

    compiled = compile_rtx(graph, ROWS)

    assert (compiled.report.native, len(compiled.report.segments)) == ((), 1)


def test_sizes_that_a_request_decides_stay_the_tables_to_judge(
    worker: SubprocessWorker, compile_rtx: Callable[..., Any]
) -> None:
    counting = CountingWorker(worker)
    graph = """g (float[1,1,4,4] x, float[4] scales) => (float[A,B,C,D] y) {
        twice = Add(scales, scales) a = Relu(x) [sized] b = Resize<mode = "nearest">(a, , twice) y = Tanh(b)
    }"""

    compiled = compile_rtx(graph, by=counting)

    (native,) = [n for n in compiled.report.native if n.node == "sized"]
    assert native.code == ReasonCode.DYNAMIC_SHAPE
    assert "must be a constant or come from Shape" in native.detail
    assert counting.jobs.count("build") == len(compiled.report.segments)


def test_library_that_can_not_be_reached_is_asked_nothing_twice(pair: pathlib.Path, worker: SubprocessWorker) -> None:
    counting = CountingWorker(CrashingWorker(worker, "read_model", "check_support", "build"))

    compiled = compile_model(pair, CompileOptions(engine="tensorrt-rtx"), worker=counting)  # type: ignore[arg-type]

    assert compiled.report.segments == ()
    assert counting.jobs.count("read_model") == 1
