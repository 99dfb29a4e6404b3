"""Folds known values and no others; a folded value is the one that ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from model_texts import clean
from plain_runtime import assert_equal, run
from stub_engine import embed
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.values import is_constant
from trtnode.partitioner.passes.constant_folding import MAX_ELEMENTS

WHOLE = np.array([-7, 7, 0, -1, 2**40], np.int64)
SMALL = np.array([-7, 7, 0, -1, 2**31 - 1], np.int32)
REAL = np.array([-1.5, 2.5, 0, -0.0, np.nan, np.inf, -np.inf, 0.1, 1e30], np.float32)
BOTH = np.array([True, False])


def scalar(value: float, dtype: type = np.int64) -> np.ndarray:
    return np.array(value, dtype)


def vector(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def one_node(op: str, inputs: list[np.ndarray | None], opset: int = 21, **attributes) -> onnx.ModelProto:
    """A model of one operator on constants; a node that can't be folded makes the output of what may be."""
    names = ["" if array is None else f"i{index}" for index, array in enumerate(inputs)]
    graph = onnx.GraphProto(name="g", output=[onnx.ValueInfoProto(name="y")])
    graph.node.append(onnx.helper.make_node(op, names, ["r"], **attributes))
    graph.node.append(onnx.helper.make_node("Identity", ["r"], ["y"]))
    for name, array in zip(names, inputs, strict=True):
        if array is not None:
            graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model = onnx.ModelProto(ir_version=10, graph=graph)
    model.opset_import.append(onnx.OperatorSetIdProto(domain="", version=opset))
    return onnx.shape_inference.infer_shapes(model)


def folded(graph: Graph, name: str) -> np.ndarray | None:
    """The value of an initializer, None where there is none of that name."""
    value = graph.model.graph.initializers.get(name)
    return None if value is None else value.const_value.numpy()


FOLDABLE = {
    "abs": ("Abs", [WHOLE], {}),
    "add": ("Add", [WHOLE, WHOLE[::-1].copy()], {}),
    "add-broadcasts": ("Add", [WHOLE.reshape(5, 1), WHOLE], {}),
    "and": ("And", [BOTH, BOTH[::-1].copy()], {}),
    "cast-wraps-as-c-does": ("Cast", [WHOLE], {"to": onnx.TensorProto.INT32}),
    "cast-real-to-whole": ("Cast", [np.array([-1.7, 2.7], np.float32)], {"to": onnx.TensorProto.INT64}),
    "cast-to-bool": ("Cast", [WHOLE], {"to": onnx.TensorProto.BOOL}),
    "cast-to-half": ("Cast", [np.float32([1.1, -2.7, 1e-7])], {"to": onnx.TensorProto.FLOAT16}),
    "ceil": ("Ceil", [REAL], {}),
    "concat": ("Concat", [WHOLE, WHOLE], {"axis": 0}),
    "concat-columns": ("Concat", [WHOLE.reshape(5, 1), WHOLE.reshape(5, 1)], {"axis": -1}),
    "constant-of-shape": ("ConstantOfShape", [vector(2, 3)], {}),
    "constant-of-no-elements": ("ConstantOfShape", [vector(2, 0)], {}),
    "div-truncates": ("Div", [vector(-7, 7, -7), vector(2, -2, -2)], {}),
    "div-of-reals": ("Div", [REAL, np.float32([3])], {}),
    "equal": ("Equal", [REAL, REAL[::-1].copy()], {}),
    "expand": ("Expand", [vector(1, 2), vector(3, 1)], {}),
    "floor": ("Floor", [REAL], {}),
    "gather-from-the-end": ("Gather", [WHOLE, vector(-1)], {}),
    "gather-columns": ("Gather", [np.arange(10).reshape(5, 2), vector(-1)], {"axis": 1}),
    "greater": ("Greater", [WHOLE, scalar(0)], {}),
    "less-or-equal": ("LessOrEqual", [WHOLE, scalar(0)], {}),
    "max": ("Max", [WHOLE, scalar(1)], {}),
    "min": ("Min", [WHOLE, scalar(1)], {}),
    "mod-has-the-divisor's-sign": ("Mod", [vector(-7, 7), vector(3, -3)], {}),
    "fmod-has-the-dividend's-sign": ("Mod", [vector(-7, 7), vector(3, -3)], {"fmod": 1}),
    "mul": ("Mul", [REAL[:-1], np.float32([3])], {}),
    "neg": ("Neg", [SMALL], {}),
    "not": ("Not", [BOTH], {}),
    "range-down": ("Range", [scalar(5), scalar(-5), scalar(-2)], {}),
    "range-empty": ("Range", [scalar(5), scalar(0), scalar(1)], {}),
    "reduce-max": ("ReduceMax", [WHOLE.reshape(1, 5), vector(1)], {"keepdims": 0}),
    "reduce-prod": ("ReduceProd", [vector(2, 3, 4)], {}),
    "reduce-sum": ("ReduceSum", [WHOLE], {}),
    "reduce-nothing": ("ReduceSum", [WHOLE], {"noop_with_empty_axes": 1}),
    "reshape": ("Reshape", [np.arange(12).reshape(3, 4), vector(0, 2, -1)], {}),
    "reshape-of-no-elements": ("Reshape", [np.zeros((0, 3)), vector(0, 3)], {"allowzero": 1}),
    "shape": ("Shape", [np.zeros((2, 3, 4))], {}),
    "shape-of-some-axes": ("Shape", [np.zeros((2, 3, 4))], {"start": -2, "end": -1}),
    "shape-beyond-the-rank": ("Shape", [np.zeros((2, 3, 4))], {"start": 5}),
    "shape-of-a-scalar": ("Shape", [scalar(1)], {}),
    "size": ("Size", [np.zeros((2, 3, 4))], {}),
    "slice": ("Slice", [WHOLE, vector(1), vector(-1)], {}),
    "slice-backwards": ("Slice", [WHOLE, vector(-1), vector(-100), vector(0), vector(-2)], {}),
    "slice-without-axes": ("Slice", [WHOLE, vector(4), vector(0), None, vector(-1)], {}),
    "slice-to-the-largest-integer": ("Slice", [WHOLE, vector(2), vector(2**63 - 1)], {}),
    "sqrt": ("Sqrt", [np.float32([2, 3])], {}),
    "squeeze-one": ("Squeeze", [vector(4)], {}),
    "squeeze-some": ("Squeeze", [np.zeros((1, 2, 1)), vector(0)], {}),
    "sub": ("Sub", [SMALL, SMALL[:1]], {}),
    "transpose": ("Transpose", [np.arange(6).reshape(2, 3)], {}),
    "unsqueeze-to-a-vector": ("Unsqueeze", [scalar(4), vector(0)], {}),
    "unsqueeze-to-a-matrix": ("Unsqueeze", [scalar(4), vector(0, 1)], {}),
    "where": ("Where", [BOTH, vector(1, 2), scalar(3)], {}),
}


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"), [pytest.param(*case, id=name) for name, case in FOLDABLE.items()]
)
def test_a_folded_value_is_what_onnxruntime_computes(
    op: str, inputs: list[np.ndarray | None], attributes: dict[str, int]
) -> None:
    model = one_node(op, inputs, **attributes)

    value = folded(clean(model), "r")

    assert value is not None
    assert_equal([value], run(model, {}))


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        pytest.param("Concat", [np.arange(MAX_ELEMENTS), vector(1)], {"axis": 0}, id="results-beyond-the-limit"),
        pytest.param("Neg", [np.arange(MAX_ELEMENTS + 1)], {}, id="inputs-beyond-the-limit"),
        pytest.param("Exp", [REAL], {}, id="functions-that-libraries-round-differently"),
        pytest.param("ReduceSum", [np.float32([1e8, 1, -1e8])], {}, id="sums-whose-order-shows"),
        pytest.param("Range", [np.float32(0), np.float32(1), np.float32(0.1)], {}, id="ranges-of-reals"),
        pytest.param("Cast", [REAL], {"to": onnx.TensorProto.STRING}, id="numbers-as-text"),
        pytest.param("RandomNormal", [], {"shape": [2]}, id="randomness"),
        pytest.param("Reshape", [vector(1, 2), vector(3)], {}, id="what-does-not-fit"),
        pytest.param("Gather", [vector(1, 2), vector(5)], {}, id="what-is-out-of-bounds"),
        pytest.param("Div", [vector(1), vector(0)], {}, id="division-by-zero"),
        pytest.param("Mul", [REAL, REAL], {}, id="overflow"),
        pytest.param("Cast", [REAL], {"to": onnx.TensorProto.INT32}, id="what-no-integer-can-be"),
    ],
)
def test_a_node_that_libraries_compute_differently_is_not_folded(
    op: str, inputs: list[np.ndarray], attributes: dict[str, int | list[int]]
) -> None:
    graph = clean(one_node(op, inputs, **attributes))

    assert folded(graph, "r") is None
    assert op in [node.op_type for node in graph.nodes]


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        pytest.param("Expand", [scalar(1), vector(60, 60)], id="expand"),
        pytest.param("ConstantOfShape", [vector(60, 60)], id="constant-of-shape"),
        pytest.param("Range", [scalar(0), scalar(2000), scalar(1)], id="range"),
        pytest.param("Range", [scalar(0), scalar(5), scalar(0)], id="range-that-never-ends"),
    ],
)
def test_what_small_inputs_make_large_is_not_even_computed(
    op: str, inputs: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute(_: onnx.ModelProto) -> None:
        pytest.fail("it was computed")

    monkeypatch.setattr("trtnode.partitioner.passes.constant_folding.ReferenceEvaluator", compute)

    graph = clean(one_node(op, inputs))

    assert folded(graph, "r") is None


@pytest.mark.parametrize(
    ("arithmetic", "expected"),
    [
        pytest.param("r = Gather<axis = 0>(s, k1)", 3, id="gather"),
        pytest.param("r = Gather<axis = 0>(s, v12)", [3, 4], id="gather-several"),
        pytest.param("r = Slice(s, v1, v3)", [3, 4], id="slice"),
        pytest.param("r = Slice(s, v_1, v_3, v0, v_1)", None, id="slice-backwards-is-left-alone"),
        pytest.param("r = Shape<start = 1>(x)", [3, 4], id="part-of-the-shape"),
        pytest.param("r = Gather<axis = 0>(s, k0)", None, id="the-symbol-itself"),
        pytest.param("a = Gather<axis = 0>(s, k1)\nr = Unsqueeze(a, v0)", [3], id="unsqueeze"),
        pytest.param("a = Gather<axis = 0>(s, v1)\nr = Squeeze(a, v0)", 3, id="squeeze"),
        pytest.param("a = Concat<axis = 0>(v12, s)\nr = Gather<axis = 0>(a, v_1)", [4], id="concat"),
        pytest.param("a = Cast<to = 6>(s)\nr = Gather<axis = 0>(a, k_1)", 4, id="cast"),
        pytest.param("a = Cast<to = 1>(s)\nr = Gather<axis = 0>(a, k1)", None, id="reals-are-not-followed"),
        pytest.param("a = Add(s, s)\nr = Gather<axis = 0>(a, k1)", None, id="nor-is-arithmetic-on-the-unknown"),
        pytest.param("a = Gather<axis = 0>(s, k1)\nb = Mul(a, k3)\nr = Div(b, k2)", 4, id="arithmetic-on-the-known"),
    ],
)
def test_known_dimensions_are_followed_past_an_unknown_one(arithmetic: str, expected: int | list[int] | None) -> None:
    graph = clean(f"""<ir_version: 10, opset_import: ["": 17]> g (float[N, 3, 4] x) => (int64[M] y)
    <int64 k0 = {{0}}, int64 k1 = {{1}}, int64 k_1 = {{-1}}, int64 k2 = {{2}}, int64 k3 = {{3}}, int64[1] v0 = {{0}},
     int64[1] v1 = {{1}}, int64[1] v3 = {{3}}, int64[1] v_1 = {{-1}}, int64[1] v_3 = {{-3}}, int64[2] v12 = {{1, 2}}> {{
        s = Shape(x)
        {arithmetic}
        y = Identity(r)
    }}""")

    value = folded(graph, "r")

    assert (None if value is None else value.tolist()) == expected


def test_a_32_bit_cast_of_a_larger_number_does_not_reach_further_arithmetic() -> None:
    source = """<ir_version: 10, opset_import: ["": 17]> g (float[N, 3] x) => (int64[M] y)
    <int64[1] large = {4294967301}, int64[1] two = {2}> {
        s = Shape(x)
        a = Concat<axis = 0>(s, large)
        b = Cast<to = 6>(a)
        c = Cast<to = 7>(b)
        r = Gather<axis = 0>(c, two)
        y = Identity(r)
    }"""

    answers = run(embed(clean(source)), {"x": np.zeros((2, 3), np.float32)})

    assert_equal(answers, [vector(5)])


def test_graph_outputs_are_not_folded() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[2, 3] x) => (int64[2] y) { y = Shape(x) }""")

    assert [node.op_type for node in graph.nodes] == ["Shape"]


def test_folded_values_reach_subgraphs() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[2, 3] x, bool c) => (int64[2] y) {
        s = Shape(x)
        y = If (c) <
            then_branch = then () => (int64[2] t) { t = Neg(s) },
            else_branch = else () => (int64[2] e) { e = Abs(s) }
        >
    }""")

    (branch,) = graph.nodes
    captured = branch.op.attributes["then_branch"].as_graph()[0].inputs[0]
    assert is_constant(captured)
    assert captured.const_value.numpy().tolist() == [2, 3]


def test_operators_of_other_domains_are_not_folded() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17, "mine": 1]> g () => (int64[4] y)
    <int64[2] w = {1, 2}, int64[4] r> {
        r = mine.Concat<axis = 0>(w, w)
        y = Identity(r)
    }""")

    assert [node.op_type for node in graph.nodes] == ["Concat", "Identity"]
