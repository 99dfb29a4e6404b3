"""Shape inference writes types and shapes into a model."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from model_texts import parse, view
from trtnode.partitioner.model.loading import load_model, load_with_protobuf
from trtnode.partitioner.model.values import Dimension, dimensions
from trtnode.partitioner.passes.clean_up import clean_up, run_passes
from trtnode.partitioner.passes.shape_inference import SMALL_INITIALIZER_ELEMENTS, infer_shapes


def shapes_of(model: ir.Model) -> dict[str | None, tuple[Dimension, ...] | None]:
    return {value.name: dimensions(value) for op in model.graph for value in op.outputs}


@pytest.mark.parametrize("batch", [pytest.param(2, id="size"), pytest.param("N", id="symbol")])
def test_sizes_and_symbols_reach_every_value(batch: int | str) -> None:
    model = view(f"""<ir_version: 10, opset_import: ["": 17]> g (float[{batch}, 3, 8, 8] x) => (float[A, B, C, D] y) {{
        a = Relu(x)
        b = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(a)
        c = GlobalAveragePool(b)
        y = Relu(c)
    }}""")

    infer_shapes(model)

    assert [shapes_of(model)[name] for name in "abc"] == [(batch, 3, 8, 8), (batch, 3, 4, 4), (batch, 3, 1, 1)]


def test_a_shape_computed_at_run_time_is_followed_through_the_arithmetic() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17]> g (float[N, 3, 4] x) => (float[A, B] y)
    <int64[1] rest = {12}, int64[1] first = {0}> {
        shape = Shape(x)
        batch = Gather<axis = 0>(shape, first)
        target = Concat<axis = 0>(batch, rest)
        flat = Reshape(x, target)
        y = Relu(flat)
    }""")

    infer_shapes(model)

    assert shapes_of(model)["flat"] == ("N", 12)


@pytest.mark.parametrize("opset", [11, 12, 13, 17])
def test_a_shape_made_of_slices_of_another_is_followed_in_every_version(opset: int) -> None:
    model = view(f"""<ir_version: 7, opset_import: ["": {opset}]>
        g (float[N, 120, H, W] x) => (float[A, B, C] y)
        <int64[1] start = {{0}}, int64[1] stop = {{2}}, int64[1] rest = {{-1}}> {{
            sizes = Shape(x)
            kept = Slice(sizes, start, stop)
            target = Concat<axis = 0>(kept, rest)
            flat = Reshape(x, target)
            turned = Transpose<perm = [0, 2, 1]>(flat)
            again = Shape(turned)
            y = Reshape(turned, again)
    }}""")

    infer_shapes(model)

    rows, columns, width = shapes_of(model)["turned"]
    assert (rows, width) == ("N", 120)
    assert isinstance(columns, str)


def test_shapes_behind_a_large_initializer_are_inferred_without_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.zeros((8, SMALL_INITIALIZER_ELEMENTS), np.float32)
    source = parse(
        """<ir_version: 10, opset_import: ["": 17]> g (float[N, 8] x) => (float[N, M] y) {
        a = MatMul(x, w)
        y = Relu(a)
    }""",
        w=weights,
    )
    model = view(source)
    seen = []
    infer = onnx.shape_inference.infer_shapes
    monkeypatch.setattr(
        onnx.shape_inference, "infer_shapes", lambda proto, **kw: (seen.append(proto.ByteSize()), infer(proto, **kw))[1]
    )

    infer_shapes(model)

    assert shapes_of(model)["a"] == ("N", SMALL_INITIALIZER_ELEMENTS)
    assert max(seen) < 1000


def test_an_unknown_operator_leaves_its_result_untyped_and_the_rest_typed() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17, "com.microsoft": 1]> g (float[3] x) => (float[N] y) {
        a = Relu(x)
        b = com.microsoft.FastGelu(a)
        y = Abs(b)
    }""")

    infer_shapes(model)

    assert shapes_of(model)["a"] == (3,)
    assert [op.outputs[0].type for op in model.graph][1] is None


def test_a_stored_shape_stands_where_the_rules_know_nothing() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17, "com.microsoft": 1]> g (float[3] x) => (float[N] y)
    <float[3] a> {
        a = com.microsoft.FastGelu(x)
        b = Abs(a)
        y = Neg(b)
    }""")

    infer_shapes(model)

    assert shapes_of(model)["b"] == (3,)


def test_a_domain_that_is_not_imported_stops_inference_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trtnode.partitioner.passes.shape_inference")
    model = view("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) {
        a = nowhere.NoSuchOp(x)
        y = Relu(a)
    }""")

    infer_shapes(model)

    assert "No opset import for domain nowhere" in caplog.text


def test_types_that_are_no_tensors_are_inferred_too() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[N] y) {
        s = SequenceConstruct(x, x)
        y = ConcatFromSequence<axis = 0>(s)
    }""")

    infer_shapes(model)

    assert "Sequence" in type(model.graph[0].outputs[0].type).__name__


def test_calls_of_functions_are_inferred_through_them() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17, "f": 1]> g (float[2, 3] x) => (float[N, M] y) {
        a = f.old(x)
        y = Relu(a)
    }
    <domain: "f", opset_import: ["": 11]> old (v) => (w) { w = Transpose(v) }""")

    infer_shapes(model)

    assert shapes_of(model)["a"] == (3, 2)


def test_the_default_of_an_input_decides_no_shape_since_a_request_may_bring_another() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17]> g (float[6] x, int64[2] s) => (float[A, B] y)
    <int64[2] s = {2, 3}> {
        y = Reshape(x, s)
    }""")

    infer_shapes(model)
    assert not any(isinstance(size, int) for size in shapes_of(model)["y"])

    infer_shapes(model, with_defaults=True)
    assert shapes_of(model)["y"] == (2, 3)


@pytest.mark.parametrize(
    ("value_info", "nodes"),
    [
        pytest.param("float[N, 3] a", "a = Relu(x) y = Neg(a)", id="declared"),
        pytest.param("", "a = Relu(x) y = Neg(a)", id="undeclared"),
        pytest.param("float[7, 7] a", "a = Relu(x) y = Neg(a)", id="wrong"),
        pytest.param("float[N, 3] a, float[9] c1", "a = Add(x, c1) y = Neg(a)", id="of-a-constant"),
        pytest.param("float[N, 3] a", "y = Neg(a) a = Relu(x)", id="unsorted"),
        pytest.param("", "c = Constant <value = float[3] {1, 2, 3}> () a = Add(x, c) y = Neg(a)", id="constant"),
        pytest.param("", "i = Identity(x) a = Relu(i) y = Neg(a)", id="identity"),
        pytest.param("", "s = Shape(x) a = Reshape(x, s) y = Neg(a)", id="shape-arithmetic"),
        pytest.param("", "a = ai.onnx.Relu(x) y = Neg(a)", id="synonym-of-the-domain"),
    ],
)
def test_a_model_has_the_same_shapes_whether_inference_reads_its_file_or_what_was_made_of_it(
    tmp_path: pathlib.Path, value_info: str, nodes: str
) -> None:
    path = tmp_path / "model.onnx"
    declared = ", ".join(filter(None, ["float[3] c1 = {1, 2, 3}", value_info]))
    text = f'<ir_version: 10, opset_import: ["": 21]> g (float[N, 3] x) => (float[A, B] y) <{declared}> {{ {nodes} }}'
    onnx.save(parse(text), path)
    expected = clean_up(load_model(path)).model

    model, written = load_with_protobuf(path)
    run_passes(model, written)

    assert ir.to_proto(model) == ir.to_proto(expected)
    assert [value.name for value in model.graph.outputs] == ["y"]


def test_each_of_several_dimensions_below_zero_is_unknown(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.onnx"
    proto = parse("""<ir_version: 10, opset_import: ["": 21]> g (float[N, 3] x) => (float[A, B] y)
    <float[M, K] a, float[M, K] b> { a = com.acme.F(x) b = com.acme.F(a) y = Relu(b) }""")
    proto.opset_import.add(domain="com.acme", version=1)
    for info in proto.graph.value_info:
        info.type.tensor_type.shape.dim[0].dim_value = -1

    onnx.save(proto, path)
    model, written = load_with_protobuf(path)
    run_passes(model, written)

    assert [shapes_of(model)[name] for name in "ab"] == [(None, "K"), (None, "K")]


LONG = 50_000_000
LONG_VECTORS = {
    "an-input": f"g (int64[{LONG}] x) => (float[M] y) {{ y = Cast<to = 1>(x) }}",
    "floats": f"g (float[{LONG}] x) => (float[M] y) {{ y = Add(x, x) }}",
    "range": f"""g (int64[N] x) => (int64[M] y) <int64 a = {{0}}, int64 b = {{{LONG}}}, int64 c = {{1}}> {{
        r = Range(a, b, c) y = Mul(r, x) }}""",
    "of-the-size-of-an-input": f"""g (float[{LONG}] x) => (float[M] y) {{
        s = Shape(x) r = ConstantOfShape<value = int64[1] {{1}}>(s) y = Cast<to = 1>(r) }}""",
    "expanded": f"""g (int64[1] x) => (int64[M] y) <int64[1] b = {{{LONG}}}> {{
        r = Expand(x, b) y = Concat<axis = 0>(r, r) }}""",
    "tiled-in-a-subgraph": f"""g (bool c, int64[1] x) => (int64[M] y) <int64[1] b = {{{LONG}}}> {{
        y = If(c) <then_branch = t () => (int64[M] u) {{ r = Tile(x, b) u = Add(r, x) }},
            else_branch = e () => (int64[1] v) {{ v = Neg(x) }}> }}""",
}
MEASURED = """
import json, resource, sys
import onnx, onnx_ir
from trtnode.partitioner.passes.shape_inference import infer_shapes
largest = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before, after = largest(), {}
for name, text in json.loads(sys.argv[1]).items():
    infer_shapes(onnx_ir.from_proto(onnx.parser.parse_model(text)))
    after[name] = largest() - before
print(json.dumps(after))
"""


def test_vectors_too_long_for_shapes_are_not_taken_apart() -> None:
    """ONNX's inference would take 70 bytes or more for each element."""
    texts = {name: f'<ir_version: 10, opset_import: ["": 18]> {graph}' for name, graph in LONG_VECTORS.items()}
    command = [sys.executable, "-c", MEASURED, json.dumps(texts)]

    grown = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert grown.keys() == LONG_VECTORS.keys()
    assert {name: megabytes for name, megabytes in grown.items() if megabytes >= 100} == {}


def test_a_bias_longer_than_shapes_leaves_the_shapes_around_it_known() -> None:
    model = view(f"""<ir_version: 10, opset_import: ["": 17]> g (float[N, 3, 4] x, float[{LONG}] b) => (float[A, B] y)
    <int64[2] first = {{0, 1}}> {{
        shape = Shape(x)
        target = Gather<axis = 0>(shape, first)
        a = Add(x, b)
        r = Resize(a, , , shape)
        y = Reshape(r, target)
    }}""")
    model.graph.inputs[1].shape = ir.Shape((4,))
    infer_shapes(model)
    short = shapes_of(model)
    model.graph.inputs[1].shape = ir.Shape((LONG,))

    infer_shapes(model)

    assert short["a"] == ("N", 3, 4)
    assert shapes_of(model) == short
