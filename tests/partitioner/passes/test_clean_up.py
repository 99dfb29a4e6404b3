"""Each clean-up changes a model as it should, and none changes the answers."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_cases import Case
from model_texts import clean, parse, view
from plain_runtime import assert_equal, passes_checker, run
from random_models import RANDOM_FEEDS, random_models
from stub_engine import embed
from trtnode.partitioner.compiled.trtnode import embed_engines
from trtnode.partitioner.passes.clean_up import (
    PASSES,
    inline_functions,
    lift_constants,
    remove_dead_nodes,
    remove_identities,
    state_axes,
)


def ops(model: ir.Model | ir.Graph) -> list[str]:
    return [op.op_type for op in getattr(model, "graph", model)]


def test_functions_are_replaced_by_their_nodes_wherever_they_are_called() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17, "f": 1]> g (float[3] x, bool c) => (float[3] y) {
        a = f.outer(x)
        y = If (c) <
            then_branch = then () => (float[3] t) { t = f.inner(a) },
            else_branch = else () => (float[3] e) { e = Abs(a) }
        >
    }
    <domain: "f", opset_import: ["": 17, "f": 1]> outer (v) => (w) {
        t = Relu(v)
        w = f.inner(t)
    }
    <domain: "f", opset_import: ["": 17]> inner (v) => (w) { w = Neg(v) }""")

    inline_functions(model)

    assert ops(model) == ["Relu", "Neg", "If"]
    assert ops(model.graph[2].attributes["then_branch"].as_graph()) == ["Neg"]
    assert not model.functions


def test_a_function_that_imports_another_opset_stays_with_all_that_it_calls() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17, "f": 1]> g (float[2, 3] x) => (float[2, 3] y) {
        a = f.old(x)
        b = f.shared(a)
        y = f.new(b)
    }
    <domain: "f", opset_import: ["": 11, "f": 1]> old (v) => (w) { w = f.shared(v) }
    <domain: "f", opset_import: ["": 17]> shared (v) => (w) { w = Abs(v) }
    <domain: "f", opset_import: ["": 17]> new (v) => (w) { w = Neg(v) }""")

    inline_functions(model)

    assert ops(model) == ["old", "shared", "Neg"]
    assert {name for _, name, _ in model.functions} == {"old", "shared"}


def test_functions_that_disagree_about_a_domain_new_to_the_model_are_not_mixed() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17, "f": 1]> g (float[3] x) => (float[3] y) {
        a = f.first(x)
        y = f.second(a)
    }
    <domain: "f", opset_import: ["": 17, "ai.onnx.ml": 2]> first (v) => (w) { w = ai.onnx.ml.Binarizer(v) }
    <domain: "f", opset_import: ["": 17, "ai.onnx.ml": 3]> second (v) => (w) { w = ai.onnx.ml.Binarizer(v) }""")

    inline_functions(model)

    assert ops(model) == ["Binarizer", "second"]


def test_inlining_leaves_no_subgraph_with_the_name_of_an_outer_value() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17, "f": 1]> g (float[3] x, int64 n, bool c) => (float[3] y) {
        a = f.count(x, n)
        y = If (c) <
            then_branch = then () => (float[3] t) { t = Neg(a) },
            else_branch = else () => (float[3] e) { e = Abs(a) }
        >
    }
    <domain: "f", opset_import: ["": 17]> count (v, m) => (w) {
        t = Relu(v)
        go = Constant<value = bool {1}>()
        w = Loop(m, go, t) <body = step (int64 i, bool c, float[3] x) => (bool on, float[3] next) {
            on = Identity(c)
            next = Add(x, t)
        }>
    }""")

    inline_functions(model)

    outer = {v.name for v in model.graph.inputs} | {v.name for op in model.graph for v in op.outputs}
    step = model.graph[2].attributes["body"].as_graph()
    then = model.graph[3].attributes["then_branch"].as_graph()
    assert ops(model) == ["Relu", "Constant", "Loop", "If"]
    assert outer.isdisjoint(v.name for body in (step, then) for v in (*body.inputs, *body[0].outputs))
    assert [v.name for v in step.inputs] == ["i", "c_2", "x_2"]
    assert then.outputs[0].name == "t_2"


def test_trtnodes_are_not_dissolved() -> None:
    compiled = embed(
        clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) { y = Relu(x) }""")
    )

    graph = clean(compiled)

    assert [node.op_type for node in graph.nodes] == ["TrtNode"]
    assert len(graph.model.functions) == 1


def test_constant_nodes_become_initializers_except_where_they_are_outputs() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y, float k) {
        k = Constant<value_float = 2.0>()
        one = Constant<value_float = 1.0>()
        y = Add(x, one)
    }""")

    lift_constants(model)

    assert ops(model) == ["Constant", "Add"]
    assert list(model.graph.initializers) == ["one"]


@pytest.mark.parametrize(
    ("ir_version", "inputs"),
    [
        pytest.param(3, ["x"], id="before-ir-4-they-are-constants"),
        pytest.param(4, ["x", "w"], id="from-ir-4-they-are-defaults"),
    ],
)
def test_initializers_that_are_inputs_are_constants_before_ir_4(ir_version: int, inputs: list[str]) -> None:
    model = view(f"""<ir_version: {ir_version}, opset_import: ["": 9]>
    g (float[3] x, float[3] w) => (float[3] y) <float[3] w = {{1, 2, 3}}> {{ y = Add(x, w) }}""")

    lift_constants(model)

    assert [value.name for value in model.graph.inputs] == inputs
    assert model.ir_version == 4


@pytest.mark.parametrize(
    ("body", "left"),
    [
        pytest.param("a = Identity(x)\nb = Identity(a)\ny = Relu(b)", ["Relu"], id="a-chain-goes"),
        pytest.param("a = Relu(x)\ny = Identity(a)", ["Relu", "Identity"], id="one-that-makes-an-output-stays"),
        pytest.param("y = Identity(w)", ["Identity"], id="so-does-one-that-makes-a-constant-an-output"),
        pytest.param("a = Identity(w)\ny = Add(x, a)", ["Add"], id="one-of-a-constant-goes"),
        pytest.param("y = com.microsoft.Identity(x)", ["Identity"], id="one-of-another-domain-stays"),
    ],
)
def test_identities_go_unless_they_make_an_output(body: str, left: list[str]) -> None:
    model = view(f"""<ir_version: 10, opset_import: ["": 17, "com.microsoft": 1]>
    g (float[3] x) => (float[3] y) <float[3] w = {{1, 2, 3}}> {{ {body} }}""")

    remove_identities(model)

    assert ops(model) == left


def test_subgraphs_read_past_a_removed_identity() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x, bool c) => (float[3] y) {
        a = Identity(x)
        y = If (c) <
            then_branch = then () => (float[3] t) { t = Relu(a) },
            else_branch = else () => (float[3] e) { e = Neg(a) }
        >
    }""")

    remove_identities(model)

    (branch,) = model.graph
    assert branch.attributes["then_branch"].as_graph()[0].inputs[0] is model.graph.inputs[0]


def test_nodes_that_no_output_needs_go_and_inputs_stay() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x, float[3] unused) => (float[3] y)
    <float[3] w = {1, 2, 3}> {
        a = Add(unused, w)
        b = Relu(a)
        y = Neg(x)
    }""")

    remove_dead_nodes(model)

    assert ops(model) == ["Neg"]
    assert not model.graph.initializers
    assert [value.name for value in model.graph.inputs] == ["x", "unused"]


def test_a_value_that_only_a_subgraph_reads_is_alive() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x, bool c) => (float[3] y)
    <float[3] w = {1, 2, 3}> {
        a = Relu(x)
        y = If (c) <
            then_branch = then () => (float[3] t) { t = Add(a, w) },
            else_branch = else () => (float[3] e) { e = Neg(x) }
        >
    }""")

    remove_dead_nodes(model)

    assert ops(model) == ["Relu", "If"]
    assert list(model.graph.initializers) == ["w"]


def test_folding_makes_the_shapes_behind_it_static() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[2, 3, 4] x, float[M, K] z) => (float[A, B] y)
    <int64[2] last = {1, 2}, int64[1] axes = {0}> {
        shape = Shape(x)
        sizes = Gather<axis = 0>(shape, last)
        product = ReduceProd<keepdims = 1, axes = [0]>(sizes)
        more = Neg(product)
        less = Neg(more)
        target = Concat<axis = 0>(less, axes)
        e = Expand(z, less)
        y = Relu(e)
    }""")

    assert [node.op_type for node in graph.nodes] == ["Expand", "Relu"]
    assert graph.nodes[0].op.inputs[1].const_value.numpy().tolist() == [12]


def test_clean_up_leaves_nothing_to_clean_up(case: Case) -> None:
    once = clean(case.model)

    again = clean(ir.to_proto(once.model))

    assert [node.name for node in again.nodes] == [node.name for node in once.nodes]


def test_inputs_and_outputs_are_as_before(case: Case) -> None:
    source = parse(case.model)

    graph = clean(source)

    defaults = [t.name for t in source.graph.initializer] if source.ir_version < 4 else []
    assert [v.name for v in graph.inputs] == [v.name for v in source.graph.input if v.name not in defaults]
    assert [v.name for v in graph.outputs] == [v.name for v in source.graph.output]


def test_no_pass_changes_a_node_set_that_an_order_does_not_allow(case: Case) -> None:
    model = view(case.model)

    for run_pass in PASSES:
        run_pass(model)

        produced = {*model.graph.inputs, *model.graph.initializers.values()}
        for op in model.graph:
            assert produced.issuperset(v for v in op.inputs if v is not None), f"{run_pass.__name__}: {op}"
            produced.update(op.outputs)


def test_a_clean_model_gives_the_same_answers(case: Case) -> None:
    source = parse(case.model)

    cleaned = embed_engines(clean(source), [], {})

    assert_equal(run(cleaned, case.feeds), run(source, case.feeds))
    assert passes_checker(cleaned) or not passes_checker(source)


@settings(max_examples=60, derandomize=True)
@given(data=st.data())
def test_a_clean_random_model_gives_the_same_answers(data: st.DataObject) -> None:
    source = parse(data.draw(random_models(10)))

    cleaned = embed_engines(clean(source), [], {})

    assert_equal(run(cleaned, RANDOM_FEEDS), run(source, RANDOM_FEEDS))
    assert passes_checker(cleaned)


def test_models_of_the_newest_opset_that_onnxruntime_runs_are_cleaned() -> None:
    feeds = {"x": np.array([[1, -2, 3]], np.float32)}
    newest = 0
    for opset in range(17, onnx.defs.onnx_opset_version() + 1):
        source = parse(f"""<ir_version: 10, opset_import: ["": {opset}]> g (float[N, 3] x) => (float[3, N] y) {{
            a = Relu(x)
            b = Transpose<perm = [1, 0]>(a)
            y = Softmax(b)
        }}""")
        try:
            expected = run(source, feeds)
        except Exception:
            break
        newest = opset

        assert_equal(run(embed_engines(clean(source), [], {}), feeds), expected)

    assert newest >= 24


def test_default_axes_are_stated_where_onnxruntime_would_miss_them_in_a_function() -> None:
    model = view("""<ir_version: 10, opset_import: ["": 17]> g (float[2,3,4,4] x) => (float[2,3,4,4] z) {
        y = MeanVarianceNormalization(x)
        z = MeanVarianceNormalization<axes = [1]>(y)
    }""")

    state_axes(model)

    assert [tuple(op.attributes.get_ints("axes", ())) for op in model.graph] == [(0, 2, 3), (1,)]
