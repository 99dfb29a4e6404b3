"""Equal rewrites: the rewritten model computes the same, from the nodes that the table of rules says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_texts import clean, parse
from plain_runtime import passes_checker
from rewriting import AFFINE, CENTRED, SHAPE, assert_same, model_of, op_types, rewritten
from trtnode.engines.backends.names import REWRITE_NAMES
from trtnode.partitioner.passes.rewrites.apply import RewriteOptions, rewrite_model, rewrites_of, would_rewrite
from trtnode.partitioner.passes.rewrites.rules import NAMES

HARD_SWISH = "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)"
PLACES = [
    pytest.param(
        "hard-swish",
        "native",
        HARD_SWISH,
        18,
        ["HardSwish"],
        id="hard-swish-by-clip",
    ),
    pytest.param(
        "hard-swish",
        "native",
        "a = Add(three, x) c = Clip(a, zero, six) m = Mul(c, sixth) y = Mul(m, x)",
        13,
        ["HardSigmoid", "Mul"],
        id="hard-swish-before-its-operator",
    ),
    pytest.param(
        "hard-sigmoid-operator",
        "native",
        "a = Add(x, three) c = Clip(a, zero, six) y = Div(c, six)",
        11,
        ["HardSigmoid"],
        id="hard-sigmoid-by-clip",
    ),
    *(
        pytest.param(
            "lp-normalization",
            "openvino",
            f"y = LpNormalization <p = {order}, axis = {axis}> (x)",
            opset,
            ["Abs", "ReduceMax", "Max", "Div", f"ReduceL{order}", "Max", "Div"],
            id=f"lp-normalization-{order}-of-axis-{axis}-at-opset-{opset}",
        )
        for order, axis, opset in ((1, -1, 13), (2, 1, 18), (2, -1, 22))
    ),
    pytest.param(
        "layer-norm",
        "native",
        f"{CENTRED} q = Mul(d, d) v = ReduceMean(q, last) e = Add(v, epsilon) s = Sqrt(e) r = Reciprocal(s) "
        f"n = Mul(d, r) {AFFINE}",
        18,
        ["LayerNormalization"],
        id="layer-norm-by-reciprocal",
    ),
    pytest.param(
        "layer-norm",
        "native",
        "m = ReduceMean <axes = [-1]> (x) d = Sub(x, m) t = Sub(x, m) q = Mul(t, t) v = ReduceMean <axes = [-1]> (q) "
        f"e = Add(v, epsilon) s = Sqrt(e) n = Div(d, s) {AFFINE}",
        11,
        ["ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"],
        id="layer-norm-before-its-operator",
    ),
    pytest.param(
        "layer-norm-operator",
        "tensorrt",
        f"{CENTRED} q = Pow(d, two) v = ReduceMean(q, last) e = Add(v, epsilon) s = Sqrt(e) n = Div(d, s) {AFFINE}",
        18,
        ["LayerNormalization"],
        id="layer-norm-for-float16",
    ),
    pytest.param(
        "layer-norm-unscaled",
        "native",
        f"{CENTRED} q = Mul(d, d) v = ReduceMean(q, last) e = Add(v, epsilon) s = Sqrt(e) n = Div(d, s) y = Mul(n, x)",
        18,
        ["LayerNormalization", "Mul"],
        id="layer-norm-without-constants",
    ),
    pytest.param(
        "constant-if",
        "openvino",
        "y = If (true) <then_branch = t () => (float[2,8,6,10] q) { p = Relu(x) q = Neg(p) }, "
        "else_branch = e () => (float[2,8,6,10] q) { q = Abs(x) }>",
        18,
        ["Relu", "Neg", "Identity"],
        id="branch-of-a-constant-if",
    ),
    pytest.param(
        "reshapes",
        "native",
        "r = Relu(x) a = Unsqueeze <axes = [0]> (r) b = Transpose <perm = [1, 0, 2, 3, 4]> (a) "
        "c = Squeeze <axes = [1]> (b) y = Neg(c)",
        11,
        ["Relu", "Neg"],
        id="shape-and-back",
    ),
    pytest.param(
        "reshapes",
        "native",
        "a = Flatten <axis = 2> (x) b = Unsqueeze <axes = [0]> (a) y = Relu(b)",
        11,
        ["Reshape", "Relu"],
        id="two-shapes-in-a-row",
    ),
    pytest.param(
        "reshapes",
        "native",
        "a = Concat <axis = 0> (x) b = Split <axis = 0> (a) y = Neg(b)",
        11,
        ["Neg"],
        id="concat-and-split-of-one-part",
    ),
]


@pytest.mark.parametrize(("rule", "engine", "nodes", "opset", "expected"), PLACES)
@settings(max_examples=4)
@given(seed=st.integers(0, 2**16), size=st.sampled_from([0.01, 1.0, 30.0]))
def test_a_place_is_rewritten_and_computes_the_same(
    rule: str, engine: str, nodes: str, opset: int, expected: list[str], seed: int, size: float
) -> None:
    source = model_of(nodes, opset=opset)
    x = (np.random.default_rng(seed).standard_normal(SHAPE) * size).astype(np.float32)

    result, rules = rewritten(source, engine)

    assert rules == [rule]
    assert op_types(result) == expected
    assert passes_checker(result)
    assert_same(result, source, x)


@pytest.mark.parametrize(("rule", "engine", "nodes", "opset", "expected"), PLACES)
def test_a_rule_that_is_left_out_changes_nothing(
    rule: str, engine: str, nodes: str, opset: int, expected: list[str]
) -> None:
    source = model_of(nodes, opset=opset)

    result, rules = rewritten(source, engine, without=NAMES)

    assert rules == []
    assert op_types(result) == [node.op_type for node in clean(source).nodes]


KEPT = [
    pytest.param(
        "a = Conv(x, w) b = Conv(x, w3) p = Flatten(a) q = Flatten(b) y = Concat <axis = 1> (p, q)",
        "native",
        id="siblings",
    ),
    pytest.param("s = Sigmoid(x) y = Mul(x, s)", "openvino", id="silu"),
    pytest.param(HARD_SWISH, "openvino", id="hard-swish-in-openvino"),
    pytest.param(
        "m = ReduceMean(x, channel) d = Sub(x, m) q = Pow(d, two) v = ReduceMean(q, channel) e = Add(v, epsilon) "
        "s = Sqrt(e) n = Div(d, s) k = Mul(n, cs) y = Add(k, cb)",
        "native",
        id="layer-norm-of-channels",
    ),
    pytest.param(
        f"{CENTRED} q = Pow(d, two) v = ReduceMean(q, last) e = Add(v, epsilon) s = Sqrt(e) n = Div(d, s) {AFFINE}",
        "openvino",
        id="layer-norm-that-engines-know",
    ),
    pytest.param(
        "m = ReduceMean <axes = [-1]> (x) d = Sub(x, m) q = Pow(d, two) v = ReduceMean <axes = [-1]> (q) "
        f"e = Add(v, epsilon) s = Sqrt(e) n = Div(d, s) {AFFINE}",
        "native",
        id="layer-norm-that-onnxruntime-knows",
    ),
    pytest.param("a = Add(x, three) c = Clip(a, zero, six) y = Div(c, six)", "openvino", id="hard-sigmoid"),
    pytest.param(
        "h = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x) y = Mul(x, h)", "openvino", id="gate-by-hard-sigmoid"
    ),
    pytest.param("a = Unsqueeze(x, channel) b = Squeeze(a, channel) y = Neg(b)", "openvino", id="reshapes"),
    pytest.param(
        "a = Unsqueeze(x, channel) b = Transpose <perm = [2, 1, 0, 3, 4]> (a) y = Squeeze(b, channel)",
        "native",
        id="transpose-that-moves",
    ),
    pytest.param(HARD_SWISH, "tensorrt", id="hard-swish-in-tensorrt"),
    pytest.param(f"{HARD_SWISH.replace('y =', 'z =')} y = Add(z, c)", "native", id="inner-result-read-elsewhere"),
    pytest.param("a = Relu(x) b = Conv(x, w) c = Conv(a, w) y = Add(b, c)", "native", id="branches-of-two-values"),
    pytest.param(
        "b = Conv <strides = [2, 2]> (x, w) c = Conv <strides = [2, 2]> (x, w3) y = Relu(b)", "native", id="no-sum"
    ),
]


@pytest.mark.parametrize(("nodes", "engine"), KEPT)
def test_what_loses_or_differs_stays(nodes: str, engine: str) -> None:
    source = model_of(nodes, opset=11 if "axes = " in nodes else 18)

    result, rules = rewritten(source, engine)

    assert rules == []
    assert op_types(result) == [node.op_type for node in clean(source).nodes]


def test_an_inner_result_that_leaves_the_graph_keeps_its_nodes() -> None:
    source = model_of(HARD_SWISH, outputs=", float[?,?,?,?] m")

    _, rules = rewritten(source, "native")

    assert rules == []


def test_other_types_than_float32_stay() -> None:
    source = parse("""<ir_version: 8, opset_import: ["": 18]> g (double[4] x) => (double[4] y)
        <double three = {3}, double zero = {0}, double six = {6}> {
        a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)
    }""")

    _, rules = rewritten(source, "native")

    assert rules == []


def test_results_nodes_and_shared_weights_keep_their_names() -> None:
    source = model_of("a = Conv(x, w) q = Add(a, x) z = Conv(q, w) y = Relu(z)")
    source.graph.node[1].name = "block"

    result, _ = rewritten(source, "native")

    assert (result.graph.node[0].name, *result.graph.node[0].output) == ("block", "q")
    assert "w" in {tensor.name for tensor in result.graph.initializer}
    assert result.graph.node[1].input[1] == "w"


def test_dimensions_that_vary_stay_so() -> None:
    source = model_of(f"r = Conv(x, w) q = Add(r, x) {HARD_SWISH.replace('(x', '(q')}", shape=("N", 8, "H", "W"))

    result, rules = rewritten(source, "native")

    assert rules == ["branches", "hard-swish"]
    for sizes in (SHAPE, (1, 8, 3, 4)):
        assert_same(result, source, np.random.default_rng(1).standard_normal(sizes).astype(np.float32))


def test_a_rewritten_graph_says_where() -> None:
    graph = clean(model_of(HARD_SWISH)).model

    rewrite_model(graph, RewriteOptions(engine="native"))

    (one,) = rewrites_of(graph.graph)
    assert (one.rule, len(one.nodes)) == ("hard-swish", 1)
    assert one.gain.alone > 1
    assert not would_rewrite(graph.graph, RewriteOptions(engine="native"))


def test_the_rules_have_the_names_that_users_choose_from() -> None:
    assert NAMES == REWRITE_NAMES
