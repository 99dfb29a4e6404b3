"""Each rule of the table of TensorRT for RTX beside the words of its own parser and builder."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from typing import Any

import onnx
import onnx.backend.test
import onnx.numpy_helper
import pytest

from model_texts import parse
from tensorrt_labels import IMAGE, verdicts
from trtnode.engines.backends import library_jobs
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.errors import BuildError, WorkerError
from trtnode.engines.tensorrt.labelling.labels import label
from trtnode.engines.tensorrt.labelling.operators import DTYPES
from trtnode.engines.tensorrt.labelling.rtx import RTX
from trtnode.engines.tensorrt.labelling.tables import TENSORRT
from trtnode.partitioner.cut.options import Allowance
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import view_model
from workshop import Workshop

pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")

EVERYTHING = tuple(Allowance)
QUERY = "g (float16[1,2,3,{0}] q, float16[1,2,3,{0}] k) => (float16[1,2,3,{0}] y)"
UNFUSED = r"Attention operation was not supported by a dedicated kernel|decompose_composite"
CONSTANT = r"Quantized constant \(c\) is only allowed before DQ"

Ask = Callable[[str], str]


@pytest.fixture
def ask(tmp_path: pathlib.Path) -> Ask:
    """Asks parser and builder about a graph in ONNX's own language; gives the words of a refusal, else nothing."""

    def ask(graph: str) -> str:
        path = write(graph, tmp_path)
        backend = get_backend("tensorrt-rtx")
        verdict = backend.check_support(path)
        if not verdict.supported:
            return verdict.detail
        try:
            backend.build(path, BuildOptions())
        except BuildError as error:
            return str(error)
        return ""

    return ask


def write(graph: str, folder: pathlib.Path) -> pathlib.Path:
    path = folder / "asked.onnx"
    model = parse(graph, opset=24)
    onnx.save(onnx.shape_inference.infer_shapes(model, data_prop=True), path)
    return path


def refused(op: str, graph: str, detail: str, words: str, name: str, *, everywhere: bool = False) -> Any:
    """A node that the table refuses; that of plain TensorRT as well, where it is so everywhere."""
    return pytest.param(op, graph, detail, words, everywhere, id=f"{op}-{name}")


@pytest.mark.parametrize(
    ("op", "graph", "detail", "words", "everywhere"),
    [
        refused("Attention", "g (float[1,2,3,64] q, float[1,2,3,64] k) => (float[1,2,3,64] y)"
                " { y = Attention(q, k, k) }", "no Attention for it", UNFUSED, "float32"),
        refused("Attention", QUERY.format(8) + " { y = Attention(q, k, k) }", "16 to 256 elements, not 8", UNFUSED,
                "small-heads"),
        refused("Attention", QUERY.format(512) + " { y = Attention(q, k, k) }", "not 512", UNFUSED, "large-heads"),
        refused("Attention", "g (float16[1,2,3,16] q, float16[1,2,3,16] k, float16[1,2,3,32] v)"
                " => (float16[1,2,3,32] y) { y = Attention(q, k, v) }", "have one size", "Invalid Node",
                "values-of-another-size", everywhere=True),
        refused("Attention", "g (float16[1,2,3,16] q, float16[1,2,3,16] k, float16[1,1,3,3] m)"
                " => (float16[1,2,3,16] y) { y = Attention<is_causal = 1>(q, k, k, m) }", "not both", "Invalid Node",
                "causal-with-mask", everywhere=True),
        refused("Attention", "g (float16[1,2,3,16] q, float16[1,2,3,16] k, float[1,1,3,3] m)"
                " => (float16[1,2,3,16] y) { y = Attention(q, k, k, m) }", "bool, or like the query",
                "TensorRT found no engine", "mask-of-another-type", everywhere=True),
        refused("AveragePool", "g (float[1,1,2,2] x) => (float[1,1,1,1] y)"
                " { y = AveragePool<kernel_shape = [3,3], strides = [3,3], ceil_mode = 1, count_include_pad = 1,"
                " pads = [1,1,1,1]>(x) }",
                "may start in the padding", r"shape \[1, 1, 2, 2\]; in ONNX it is \[1, 1, 1, 1\]", "last-window",
                everywhere=True),
        refused("MaxPool", "g (float[1,1,2,2] x) => (float[1,1,1,1] y)"
                " { y = MaxPool<kernel_shape = [1,1], strides = [2,2], ceil_mode = 1>(x) }",
                "may start in the padding", r"shape \[1, 1, 2, 2\]; in ONNX it is \[1, 1, 1, 1\]", "last-window",
                everywhere=True),
        refused("Add", "g (int8[2,3] x) => (int8[2,3] y) <int8[3] c = {1,2,3}> { y = Add(x, c) }", "int8 constant",
                CONSTANT, "int8-constant", everywhere=True),
        refused("CumSum", "g (float x) => (float y) <int64 a = {0}> { y = CumSum(x, a) }", "not a scalar",
                "Invalid Node", "scalar", everywhere=True),
        refused("DeformConv", f"g ({IMAGE} x, float[1,2,3,3] w, float[1,18,6,6] o) => (float[1,1,6,6] y)"
                " { y = DeformConv<group = 2>(x, w, o) }", "plugin", "Plugin not found", "plugin"),
        refused("NonMaxSuppression", "g (float[1,6,4] b, float[1,1,6] s) => (int64[N,3] y)"
                " { y = NonMaxSuppression(b, s) }", "no kernel", "no runners|found no engine", "kernel"),
        refused("NonZero", "g (float[2,3] x) => (int64[2,N] y) { y = NonZero(x) }", "plugin", "NonZero plugin",
                "plugin"),
        refused("Resize", f"g ({IMAGE} x) => (float[1,4,16,8] y) <float[4] f = {{1, 2, 2, 1}}>"
                ' { y = Resize<mode = "cubic">(x, , f) }', "last two axes", "only suppor", "cubic-channels",
                everywhere=True),
        refused("RoiAlign", f"g ({IMAGE} x, float[1,4] r, int64[1] b) => (float[1,2,1,1] y)"
                " { y = RoiAlign(x, r, b) }", "plugin", "ROIAlign plugin was not found", "plugin"),
        refused("Scan", "g (float[3,2] x) => (float[3,2] z) { z = Scan <num_scan_inputs = 1,"
                " body = b (float[2] e) => (float[2] d) { d = Mul(e, e) }>(x) }", "has a state", "Invalid Node",
                "without-state"),
        refused("Scan", "g (float[3,2] x, float[2] s) => (float[2] y) { y = Scan <num_scan_inputs = 1,"
                " scan_input_axes = [-2], body = b (float[2] a, float[2] e) => (float[2] c) { c = Add(a, e) }>(s, x) }",
                "from the front", "number of dimensions", "axis-from-the-back"),
        refused("ScatterElements", "g (float[4] x, int64[2] i, float[2] u) => (float[4] y)"
                ' { y = ScatterElements<reduction = "add">(x, i, u) }', "reduction none, not add",
                "Unsupported reduction type", "sum"),
        refused("TensorScatter", "g (float[1,2,4,3] p, float[1,2,1,3] u) => (float[1,2,4,3] y)"
                ' { y = TensorScatter<mode = "circular">(p, u) }', "mode linear, not circular",
                "Only linear mode is supported", "circular", everywhere=True),
        refused("TensorScatter", "g (float[1,2,4,3] p, float[1,2,1,3] u) => (float[1,2,4,3] y)"
                " { q = Relu(p) y = TensorScatter(q, u) }", "in place", "must be a network input", "cache-inside",
                everywhere=True),
    ],
)  # fmt: skip
def test_node_that_the_library_refuses_is_refused_by_the_table(
    op: str, graph: str, detail: str, words: str, everywhere: bool, ask: Ask
) -> None:
    verdict = verdicts(graph, EVERYTHING, table=RTX)[op]

    assert not verdict.supported
    assert detail in verdict.detail
    assert re.search(words, ask(graph))
    assert verdicts(graph, EVERYTHING, table=TENSORRT)[op].supported is not everywhere


def test_table_asks_for_more_than_the_builder_where_a_bound_would_be_read_as_a_float(ask: Ask) -> None:
    bounded = "g (int8[2,3] x) => (int8[2,3] y) <int8 a = {1}, int8 b = {3}> { y = Clip(x, a, b) }"
    unbounded = "g (int8[2,3] x) => (int8[2,3] y) { y = Clip(x) }"

    assert [verdicts(graph, table=RTX)["Clip"].supported for graph in (bounded, unbounded)] == [True, False]
    assert [ask(bounded), ask(unbounded)] == ["", ""]


@pytest.mark.parametrize(("elements", "words"), [(3, "odd tensor volume"), (4, "")])
@pytest.mark.parametrize("kind", [onnx.TensorProto.INT4, onnx.TensorProto.FLOAT4E2M1], ids=["int4", "fp4"])
def test_packed_tensors_have_an_even_number_of_elements(
    kind: int, elements: int, words: str, tmp_path: pathlib.Path
) -> None:
    path = write(f"g (float[{elements}] x) => (float[{elements}] y) <float s = {{0.5}}> {{ y = Mul(x, s) }}", tmp_path)
    model = onnx.load(path)
    weights = onnx.TensorProto(
        name="w", data_type=kind, dims=[elements], raw_data=bytes([0x21] * ((elements + 1) // 2))
    )
    model.graph.initializer.append(weights)
    model.graph.node.insert(0, onnx.helper.make_node("DequantizeLinear", ["w", "s"], ["d"]))
    model.graph.node[1].input[1] = "d"
    onnx.save(onnx.shape_inference.infer_shapes(model), path)

    nodes = Graph.of(view_model(onnx.load(path), path)).nodes
    verdict = next(label(node, table=RTX) for node in nodes if node.op_type == "DequantizeLinear")

    assert verdict.supported is not bool(words)
    if words:
        with pytest.raises(BuildError, match=words):
            get_backend("tensorrt-rtx").build(path, BuildOptions())
    else:
        assert get_backend("tensorrt-rtx").build(path, BuildOptions())


def test_attention_of_a_tensor_with_itself_crashes_the_builder_and_is_refused(
    worker: SubprocessWorker, tmp_path: pathlib.Path
) -> None:
    graph = "g (float16[1,2,3,16] q) => (float16[1,2,3,16] y) { y = Attention(q, q, q) }"

    assert "crashes" in verdicts(graph, table=RTX)["Attention"].detail
    path = write(graph, tmp_path)
    with pytest.raises(WorkerError, match="crashed"):
        worker.call(library_jobs.build, 120, "tensorrt-rtx", path, tmp_path / "engine", BuildOptions())


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(QUERY.format(16) + " { y = Attention(q, k, k) }", id="Attention-float16"),
        pytest.param(QUERY.format(256).replace("float16", "bfloat16") + " { y = Attention(q, k, k) }",
                     id="Attention-bfloat16"),
        pytest.param("g (float[1,2,8] x) => (float[1,2,4] y) { y = MaxPool<kernel_shape = [2], strides = [2]>(x) }",
                     id="MaxPool-1-D"),
        pytest.param("g (float[1,2,8] x) => (float[1,2,4] y)"
                     " { y = AveragePool<kernel_shape = [2], strides = [2]>(x) }", id="AveragePool-1-D"),
        pytest.param("g (float[1,1,4,4] x) => (float[1,1,2,2] y)"
                     " { y = MaxPool<kernel_shape = [3,3], strides = [2,2], ceil_mode = 1>(x) }", id="MaxPool-ceil"),
        pytest.param("g (float[1,1,2,2,2] x, float[1,2,2,2,3] p) => (float[1,1,2,2,2] y) { y = GridSample(x, p) }",
                     id="GridSample-3-D"),
        pytest.param(f"g ({IMAGE} x) => (float[1,2,16,16] y) <float[4] f = {{1, 1, 2, 2}}>"
                     ' { y = Resize<mode = "cubic">(x, , f) }', id="Resize-cubic"),
        pytest.param("g (int8[2,3] x, int8[2,3] z) => (int8[2,3] y) { a = Max(x, z) y = Sub(a, z) }", id="int8"),
        pytest.param("g (int8[2,3] x) => (float[3,2] y) { t = Transpose(x) y = Cast<to = 1>(t) }", id="int8-moved"),
        pytest.param("g (int32[2,3] x) => (int32[2,3] y) <int64 a = {0}> { y = CumSum(x, a) }", id="CumSum-int32"),
        pytest.param("g (float[0,3] x, float[2,3] z) => (float[2,3] y) { a = Relu(x) y = Concat<axis = 0>(a, z) }",
                     id="without-elements"),
        pytest.param("g (float[4,5] x) => (float[2,5] y) <int64[1] a = {1}, int64[1] b = {3}> { y = Slice(x, a, b) }",
                     id="Slice-without-axes"),
        pytest.param("g (float[4] x, float[2,4,3] w) => (float[2,3] y) { y = MatMul(x, w) }", id="MatMul-of-a-vector"),
    ],
)  # fmt: skip
def test_node_that_the_table_takes_is_built(graph: str, ask: Ask) -> None:
    assert {op: v.detail for op, v in verdicts(graph, table=RTX).items() if not v.supported} == {}
    assert ask(graph) == ""


def test_sequences_are_no_tensors() -> None:
    graph = "g (float[2] x) => (seq(float[2]) y) { s = SequenceConstruct(x) y = Identity(s) }"

    assert verdicts(graph, table=RTX)["Identity"].detail == "'s' is a sequence, and TensorRT has tensors alone."


def test_attention_without_a_kernel_is_expanded_and_the_model_is_one_engine(workshop: Workshop) -> None:
    source = workshop.write(
        "g (float[1,2,3,8] q, float[1,2,3,8] k) => (float[1,2,3,8] y)"
        " { a = Sigmoid(q) b = Tanh(k) c = Attention(a, b, b) y = Relu(c) }",
        opset=24,
    )

    report = workshop.compile(source, engine="tensorrt-rtx").report

    assert (len(report.segments), [n.detail for n in report.native]) == (1, [])


def test_table_of_rtx_is_about_operators_that_the_parser_has() -> None:
    assert set(RTX.dtypes) == set(DTYPES)
    assert {*RTX.lacking, *RTX.taking_empty, *RTX.rules, *RTX.attributes, *RTX.ranks} <= set(DTYPES)
