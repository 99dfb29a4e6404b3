"""Replacing operators by the functions that define them."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from model_texts import parse
from trtnode.partitioner.compiled.trtnode import embed_engines
from trtnode.partitioner.cut.function_expansion import expand_functions, expand_nodes, is_defined_as_function
from trtnode.partitioner.cut.labels import SUPPORTED, Predicate, ReasonCode, Verdict
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.partition import partition_graph
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import view_model
from trtnode.partitioner.passes.clean_up import clean_up


def graph(text: str, *, opset: int = 24) -> Graph:
    proto = parse(text, opset=opset)
    return clean_up(view_model(proto, pathlib.Path("model.onnx")))


def run(view: Graph, **feeds: np.ndarray) -> list[np.ndarray]:
    proto = embed_engines(view, (), {})
    onnx.checker.check_model(proto, full_check=True)
    return list(ReferenceEvaluator(proto).run(None, feeds))


@pytest.mark.parametrize(
    ("text", "ops"),
    [
        pytest.param("(float[2,3] x) => (float[2,3] y) { y = Swish (x) }", {"Mul", "Sigmoid"}, id="default-attribute"),
        pytest.param(
            "(float[2,3] x) => (float[2,3] y) { y = Swish <alpha=0.5> (x) }", {"Mul", "Sigmoid"}, id="attribute"
        ),
        pytest.param(
            "(float[2,3] x) => (float[2,3] y) { y = Gelu (x) }",
            {"Div", "Erf", "Mul"},
            id="depends-on-attributes",
        ),
        pytest.param(
            "(float[2,3] x, float h) => (float[2,3] y) { y = Clip (x, , h) }",
            {"Less", "Where"},
            id="omitted-input",
        ),
    ],
)
def test_an_expanded_node_computes_the_same(text: str, ops: set[str]) -> None:
    before = graph(f"g {text}")
    feeds = {v.name: _ramp() if len(v.shape) else np.float32(0.5) for v in before.inputs}
    expected = run(before, **feeds)

    after = expand_nodes(before, [before.nodes[0].name])

    assert ops <= {node.op_type for node in after.nodes}
    np.testing.assert_allclose(run(after, **feeds), expected, rtol=1e-6)


def test_a_node_that_names_an_overload_is_expanded_like_any_other() -> None:
    view = graph("g (float[2,3] x) => (float[2,3] y) { y = Swish:quick (x) }")

    expanded = expand_nodes(view, [node.name for node in view.nodes])

    assert {node.op_type for node in expanded.nodes} >= {"Mul", "Sigmoid"}


def test_nodes_and_values_of_a_body_carry_the_identity_of_their_node() -> None:
    view = graph("g (float[2,3] x) => (float[2,3] z) { y = Swish (x) z = Swish (y) }")

    expanded = expand_nodes(view, [node.name for node in view.nodes])

    assert {node.name.split("/")[0] for node in expanded.nodes} == {"Swish:y", "Swish:z"}
    assert len({node.name for node in expanded.nodes}) == len(expanded.nodes)
    assert [v.name for v in expanded.outputs] == ["z"]


def test_two_nodes_with_bodies_of_their_own_do_not_share_names() -> None:
    text = "g (float[1,2,4] q, float[1,2,4] k) => (float[1,2,4] z) { @ }".replace(
        "@",
        'y, s = LinearAttention <q_num_heads=2, kv_num_heads=2, update_rule="linear"> (q, k, k)'
        ' z, t = LinearAttention <q_num_heads=2, kv_num_heads=2, update_rule="linear"> (y, k, k)',
    )
    view = graph(text, opset=27)
    feeds = {name: np.random.default_rng(0).random((1, 2, 4), np.float32) for name in "qk"}
    expected = run(view, **feeds)

    expanded = expand_nodes(view, [node.name for node in view.nodes])

    np.testing.assert_allclose(run(expanded, **feeds), expected, rtol=1e-5)


def test_other_nodes_stay() -> None:
    view = graph("g (float[2,3] x) => (float[2,3] z) { y = Swish (x) z = Swish (y) }")

    expanded = expand_nodes(view, ["Swish:y"])

    assert [node.name for node in expanded.nodes if node.op_type == "Swish"] == ["Swish:z"]


def test_only_some_operators_are_functions() -> None:
    view = graph("g (float[2,3] x) => (float[2,3] z) { y = Swish (x) z = Sin (y) }")

    assert [is_defined_as_function(node) for node in view.nodes] == [True, False]


def _ramp() -> np.ndarray:
    return np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)


def takes(*ops: str) -> Predicate:
    return lambda node: SUPPORTED if node.op_type in ops else Verdict(ReasonCode.UNSUPPORTED_OP, "It isn't listed.")


BASIC = takes("Cast", "Mul", "Relu", "Sigmoid")


def test_expansion_that_joins_two_segments_pays() -> None:
    view = graph("g (float[2,3] x) => (float[2,3] z) { a = Relu (x) b = Swish (a) z = Relu (b) }")
    expected = run(view, x=_ramp())

    expanded = expand_functions(view, BASIC, PartitionOptions())

    assert {node.op_type for node in expanded.nodes} == {"Relu", "Mul", "Sigmoid"}
    assert len(partition_graph(expanded, BASIC, PartitionOptions()).segments) == 1
    np.testing.assert_allclose(run(expanded, x=_ramp()), expected, rtol=1e-6)


def test_expansion_reaches_functions_in_functions() -> None:
    view = graph("g (float[2,3] x) => (float[2,3] z) { a = Relu (x) b = SwiGLU (a, a) z = Relu (b) }", opset=28)

    expanded = expand_functions(view, BASIC, PartitionOptions())

    assert {node.op_type for node in expanded.nodes} == {"Relu", "Mul", "Sigmoid"}


@pytest.mark.parametrize(
    ("text", "supports", "options"),
    [
        pytest.param("a = Relu (x) z = Swish (a)", BASIC, PartitionOptions(), id="nothing-to-join"),
        pytest.param(
            "a = Relu (x) b = Swish (a) c = Sin (b) z = Relu (c)", BASIC, PartitionOptions(), id="still-split"
        ),
        pytest.param("a = Relu (x) b = Swish (a) z = Relu (b)", takes("Relu"), PartitionOptions(), id="body-refused"),
        pytest.param(
            "a = Relu (x) b = Swish (a) z = Relu (b)",
            BASIC,
            PartitionOptions(native_ops=("Swish",)),
            id="user-excluded",
        ),
        pytest.param(
            "a = Relu (x) b = Swish (a) z = Relu (b)", BASIC, PartitionOptions(native_ops=("Mul",)), id="body-excluded"
        ),
    ],
)
def test_expansion_that_does_not_pay_changes_nothing(text: str, supports: Predicate, options: PartitionOptions) -> None:
    view = graph(f"g (float[2,3] x) => (float[2,3] z) {{ {text} }}")

    assert expand_functions(view, supports, options) is view

    assert "Swish" in {node.op_type for node in view.nodes}


def test_only_what_joins_segments_is_expanded() -> None:
    view = graph("g (float[2,3] x) => (float[2,3] z) { a = Relu (x) b = Swish (a) c = Relu (b) z = Swish (c) }")

    expanded = expand_functions(view, BASIC, PartitionOptions())

    assert [node.name for node in expanded.nodes if node.op_type == "Swish"] == ["Swish:z"]
