"""Weights that only one subgraph reads are moved there, and answers stay the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from model_texts import parse
from trtnode.engines.onnxruntime.subgraph_weights import move_weights_inside

BRANCHES = """g (bool c, float[2] x) => (float[2] y) <float[2] a = {1, 2}, float[2] b = {3, 4}, float[2] s = {5, 6}> {
    y = If (c) <
        then_branch = t () => (float[2] p) { q = Add(x, a) p = Mul(q, s) },
        else_branch = e () => (float[2] r) { u = Sub(x, b) r = Mul(u, s) }
    >
}"""

NESTED = """g (bool c, float[2] x) => (float[2] y) <float[2] a = {1, 2}> {
    y = If (c) <
        then_branch = t () => (float[2] p) {
            p = If (c) <
                then_branch = tt () => (float[2] v) { v = Add(x, a) },
                else_branch = te () => (float[2] w) { w = Neg(x) }
            >
        },
        else_branch = e () => (float[2] r) { r = Identity(x) }
    >
}"""

HANDED_OUT = """g (bool c) => (float[2] y) <float[2] a = {1, 2}, float[2] b = {3, 4}> {
    y = If (c) <
        then_branch = t () => (float[2] p) { p = Identity(a) },
        else_branch = e () => (float[2] r) { r = Neg(b) }
    >
}"""

READ_OUTSIDE = BRANCHES.replace("y = If", "z = Neg(a) y = If")


def answers(model: onnx.ModelProto) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {i.name for i in session.get_inputs()}
    feeds = {"x": np.array([7, 8], np.float32)}
    return [
        session.run(None, {name: v for name, v in {**feeds, "c": np.array(c)}.items() if name in given})[0]
        for c in (True, False)
    ]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param(BRANCHES, ["s"], id="one-that-two-subgraphs-read-stays"),
        pytest.param(NESTED, [], id="goes-to-the-innermost-reader"),
        pytest.param(HANDED_OUT, [], id="read-by-one-each"),
        pytest.param(READ_OUTSIDE, ["a", "s"], id="one-that-the-outer-graph-reads-stays"),
    ],
)
def test_weights_go_where_they_are_read(text: str, left: list[str]) -> None:
    model, moved = parse(text), parse(text)

    count = move_weights_inside(moved)

    assert [tensor.name for tensor in moved.graph.initializer] == left
    assert count == len(model.graph.initializer) - len(left)
    onnx.checker.check_model(moved, full_check=True)
    np.testing.assert_array_equal(answers(moved), answers(model))


def test_a_subgraphs_own_name_is_not_taken_for_the_outer_one() -> None:
    model = parse(BRANCHES)
    (branch, _) = (a.g for a in model.graph.node[0].attribute)
    branch.node.append(onnx.helper.make_node("Neg", ["x"], ["b"]))

    move_weights_inside(model)

    assert "b" in [tensor.name for tensor in model.graph.initializer]


def test_a_model_without_subgraphs_is_left_alone() -> None:
    model = parse("g (float[2] x) => (float[2] y) <float[2] a = {1, 2}> { y = Add(x, a) }")

    assert move_weights_inside(model) == 0
