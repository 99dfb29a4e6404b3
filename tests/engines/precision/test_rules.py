"""The precision that each node is asked to compute in."""

from __future__ import annotations

import logging

import pytest

from trtnode.engines.precision.options import PrecisionRule
from trtnode.engines.precision.rules import assign, at_least, check_rules, join_precisions
from trtnode.partitioner.errors import UnknownOptionError
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import load_model
from workshop import Workshop

NODES = """g (float[2,2] x) => (float[2,2] y) {
    [body_add] a = Add(x, x) [head_mul] b = Mul(a, a) [head_soft] y = Softmax(b)
}"""


@pytest.fixture
def graph(workshop: Workshop) -> Graph:
    return Graph.of(load_model(workshop.write(NODES)))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("node=/head/*:fp32", PrecisionRule(node="/head/*", precision="fp32")),
        ("op=Softmax:bf16", PrecisionRule(op="Softmax", precision="bf16")),
        ("node=Add:y:int8", PrecisionRule(node="Add:y", precision="int8")),
    ],
)
def test_a_rule_has_one_written_form(text: str, rule: PrecisionRule) -> None:
    assert PrecisionRule.parse(text) == rule
    assert str(rule) == text


@pytest.mark.parametrize("text", ["", "Softmax:fp32", "op=:fp32", "op=Softmax", "op=Softmax:fp4", "type=Softmax:fp32"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="should be node=GLOB:PRECISION or op=TYPE:PRECISION"):
        PrecisionRule.parse(text)


def test_the_first_rule_that_fits_counts(graph: Graph) -> None:
    rules = [PrecisionRule.parse(text) for text in ("op=Softmax:bf16", "node=head_*:fp32", "op=Mul:int8")]

    plan = assign(graph.nodes, "fp16", rules)

    assert plan == {"body_add": "fp16", "head_mul": "fp32", "head_soft": "bf16"}


def test_a_rule_with_both_conditions_needs_both(graph: Graph) -> None:
    rule = PrecisionRule(node="head_*", op="Mul", precision="fp32")

    assert assign(graph.nodes, "int8", [rule]) == {"body_add": "int8", "head_mul": "fp32", "head_soft": "int8"}


def test_a_fall_back_is_never_less_exact_than_itself() -> None:
    plan = {"a": "int8", "b": "fp16", "c": "fp32"}

    assert at_least(plan, "bf16") == {"a": "bf16", "b": "bf16", "c": "fp32"}


def test_an_operator_that_there_is_not_is_an_error(graph: Graph) -> None:
    with pytest.raises(UnknownOptionError, match="precision rule: 'Sofmax' matches nothing in this model"):
        check_rules(graph, [PrecisionRule.parse("op=Sofmax:fp32")])


@pytest.mark.parametrize("text", ["op=Conv:fp32", "node=/tail/*:fp32"])
def test_a_rule_that_fits_no_node_is_told(graph: Graph, text: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_rules(graph, [PrecisionRule.parse(text), PrecisionRule.parse("op=Add:fp32")])

    assert [record.message for record in caplog.records] == [
        f"The precision rule {text} fits no node of the model, so it has no effect"
    ]


def test_precisions_are_joined_in_one_order() -> None:
    assert join_precisions(["fp32", "int8", "fp32", "bf16"]) == "int8+bf16+fp32"
