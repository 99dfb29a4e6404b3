"""Replacing operators by the functions that define them."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from partitioner import Graph, clean_up, embed_engines
from partitioner.expansion import expand_nodes, is_defined_as_function
from partitioner.loading import view_model


def graph(text: str, *, opset: int = 24) -> Graph:
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {text}')
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
