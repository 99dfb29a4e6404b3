"""Nodes that run natively for want of a shape name the one node after which shapes are unknown."""

from __future__ import annotations

import collections

import pytest

from model_texts import clean
from stub_engine import partition
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.cut.partition import Partition

HEADER = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1, "mine": 1]>'


def cut(inputs: str, body: str) -> Partition:
    return partition(clean(f"{HEADER} g ({inputs}) => (float[A] y) {{ {body} }}"))


def causes(partition: Partition) -> list[tuple[str, str, str, int]]:
    report = partition.report(model="m.onnx", engine="openvino")
    return [(one.after, one.op_type, one.domain, one.nodes) for one in report.unknown_shapes]


def test_all_nodes_behind_a_foreign_one_have_it_as_their_cause() -> None:
    found = cut("float[N] x", "a = Relu(x) [odd] b = mine.Special(a) c = Neg(b) d = Abs(c) [sum] y = Add(d, a)")

    report = found.report(model="m.onnx", engine="openvino").as_json()

    assert report["unknown_shapes"] == [{"after": "odd", "op_type": "Special", "domain": "mine", "nodes": 3}]
    said = collections.Counter(node["detail"] for node in report["native"] if node["code"] == "UNKNOWN_SHAPE")
    assert said == {"Shapes are unknown after 'odd', Special of domain 'mine'.": 3}


def test_a_second_foreign_node_behind_the_first_is_no_further_cause() -> None:
    found = cut("float[N] x", "[one] a = mine.Special(x) b = Neg(a) [two] c = mine.Special(b) y = Neg(c)")

    assert causes(found) == [("one", "Special", "mine", 2)]


def test_the_cause_of_most_nodes_comes_first() -> None:
    body = "[few] a = mine.Special(x) b = Neg(a) [many] c = mine.Other(z) d = Neg(c) e = Abs(d) y = Add(e, b)"

    assert causes(cut("float[N] x, float[N] z", body)) == [("many", "Other", "mine", 3), ("few", "Special", "mine", 1)]


@pytest.mark.parametrize(
    ("inputs", "body", "cause", "sentence"),
    [
        pytest.param(
            "float[N] x, int64[M] target",
            "[bent] a = Reshape(x, target) y = Neg(a)",
            ("bent", "Reshape", "", 2),
            "Shapes are unknown after 'bent', Reshape: the rank of its result is known only when it has run.",
            id="operator-of-onnx",
        ),
        pytest.param(
            "float[] x", "a = Neg(x) y = Abs(a)", ("x", "", "", 2), "Shapes are unknown after input 'x'.", id="input"
        ),
    ],
)
def test_the_cause_may_be_an_operator_of_onnx_or_an_input(
    inputs: str, body: str, cause: tuple[str, str, str, int], sentence: str
) -> None:
    found = cut(inputs, body)

    assert causes(found) == [cause]
    details = {n.detail for n in found.report(model="m", engine="e").native if n.code == ReasonCode.UNKNOWN_SHAPE}
    assert details == {sentence}
