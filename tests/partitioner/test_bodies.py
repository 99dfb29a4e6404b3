"""Bodies by themselves: what they take and give, what pays in them, and that they mean the same when put back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from partitioner import EmbeddedEngine, Graph, Partition, ReasonCode, clean_up, embed_engines
from partitioner.bodies import Body, bodies_of, put_back
from partitioner.body_gain import LOOP_TRIPS, expected_gain_s, expected_trips, refuse_unless_pays
from partitioner.values import names_of

HEADER = '<ir_version: 10, opset_import: ["": 21]>'

X = np.array([1, -2, 3], np.float32)

CASES = {
    "captures": (
        """g (float[3] x, bool c) => (float[3] y) <float[3] w = {1, 2, 3}> {
            e = Exp(x)
            [f] y = If (c) <
                then_branch = t () => (float[3] a) { m = Mul(e, w) a = Add(m, x) },
                else_branch = f () => (float[3] b) { b = Identity(e) }
            >
        }""",
        {"c": np.array(True)},
    ),
    "constant-outputs": (
        """g (float[3] x, bool c) => (float[3] y, float[3] z) <float[3] w = {1, 2, 3}> {
            [f] y, z = If (c) <
                then_branch = t () => (float[3] a, float[3] a2) {
                    a = Constant<value = float[3] {4, 5, 6}>() a2 = Identity(w) },
                else_branch = f () => (float[3] b, float[3] b2) { b = Neg(x) b2 = Identity(x) }
            >
        }""",
        {"c": np.array(True)},
    ),
    "initializers-of-its-own": (
        """g (float[3] x, bool c) => (float[3] y) {
            [f] y = If (c) <
                then_branch = t () => (float[3] a) <float[3] v = {7, 8, 9}> { n = Neg(x) a = Mul(n, v) },
                else_branch = f () => (float[3] b) { k = Constant<value = float {2}>() h = Exp(k) b = Mul(x, h) }
            >
        }""",
        {"c": np.array(False)},
    ),
    "loop": (
        """g (float[3] x, int64 n) => (float[3] y, float[S, 3] all) <bool go = {1}> {
            e = Exp(x)
            [f] y, all = Loop (n, go, x) <
                body = b (int64 i, bool c, float[3] v) => (bool c, float[3] v2, float[3] o) {
                    v2 = Add(v, e) o = Neg(v2) }
            >
        }""",
        {"n": np.array(3)},
    ),
    "nested": (
        """g (float[3] x, bool c) => (float[3] y) {
            e = Exp(x)
            [f] y = If (c) <
                then_branch = t () => (float[3] a) {
                    m = Neg(e)
                    a = If (c) < then_branch = t2 () => (float[3] p) { p = Mul(m, e) },
                                 else_branch = f2 () => (float[3] q) { q = Mul(x, x) } >
                },
                else_branch = f () => (float[3] b) { b = Abs(x) }
            >
        }""",
        {"c": np.array(True)},
    ),
}


def cleaned(clean: Callable[[str], Graph], text: str) -> tuple[Graph, tuple[Body, ...]]:
    graph = clean(f"{HEADER} {text}")
    flow = next(node for node in graph.nodes if node.name == "f")
    return graph, bodies_of(graph.model, flow)


def test_body_takes_its_formal_inputs_then_what_it_captures(clean: Any) -> None:
    _, (body,) = cleaned(clean, CASES["loop"][0])

    graph = body.model.graph
    assert (body.name, body.formal) == ("f/body", 3)
    assert names_of(graph.inputs) == ["i", "c", "v", "e"]
    assert names_of(graph.outputs) == ["c", "v2", "o"]


def test_constants_that_a_body_captures_are_its_own(clean: Any) -> None:
    graph, (then_branch, _) = cleaned(clean, CASES["captures"][0])

    assert sorted(then_branch.captured) == ["e", "w", "x"]
    assert names_of(then_branch.model.graph.inputs) == ["e", "x"]
    constant = then_branch.model.graph.initializers["w"].const_value
    assert constant is graph.model.graph.initializers["w"].const_value


def test_value_that_a_request_may_replace_is_no_constant_of_a_body(clean: Any) -> None:
    text = CASES["captures"][0].replace("(float[3] x, bool c)", "(float[3] x, bool c, float[3] w)")

    _, (then_branch, _) = cleaned(clean, text)

    assert names_of(then_branch.model.graph.inputs) == ["e", "w", "x"]
    assert all(value.const_value is None for value in then_branch.model.graph.inputs)


def test_untyped_values_of_a_loop_keep_the_rank_that_they_start_with(clean: Any, parse: Any) -> None:
    model = parse(f"{HEADER} {CASES['loop'][0]}")
    for value in model.graph.node[1].attribute[0].g.input:
        value.type.tensor_type.ClearField("shape")

    graph = clean(model)

    (body,) = bodies_of(graph.model, next(node for node in graph.nodes if node.name == "f"))
    assert [None if v.shape is None else len(v.shape) for v in body.model.graph.inputs] == [0, 0, 1, 1]


SCAN = """g (float[5, 3] x, float[3] s) => (float[3] y, float[5, 3] z) {
    [f] y, z = Scan<num_scan_inputs = 1 ORDER, body = b (float[3] a, float[3] b) => (float[3] c, float[3] d) {
        c = Add(a, b) d = Mul(c, s) }>(s, x) }"""


@pytest.mark.parametrize(
    ("order", "bodies"),
    [
        pytest.param("", 1, id="forward"),
        pytest.param(", scan_input_axes = [0], scan_output_directions = [0]", 1, id="forward-in-so-many-words"),
        pytest.param(", scan_input_directions = [1]", 0, id="backward"),
        pytest.param(", scan_output_axes = [1]", 0, id="other-axis"),
    ],
)
def test_scan_is_taken_apart_where_it_goes_forward(order: str, bodies: int, clean: Any) -> None:
    graph = clean(f"{HEADER} {SCAN.replace(' ORDER', order).replace('[5, 3] z', '[A, B] z')}")

    (node,) = graph.nodes
    assert len(bodies_of(graph.model, node)) == bodies
    assert expected_trips(node) == 5


def test_other_nodes_have_no_bodies_to_take_apart(clean: Any) -> None:
    graph = clean(f"{HEADER} g (float[3] x) => (float[3] y) {{ y = Exp(x) }}")

    assert bodies_of(graph.model, graph.nodes[0]) == ()


@pytest.mark.parametrize("native", [(), ("Neg", "If")], ids=["one-segment", "partly-native"])
@pytest.mark.parametrize("case", CASES)
def test_body_means_the_same_when_it_is_put_back(
    case: str, native: tuple[str, ...], clean: Any, partition: Any, run: Any, assert_equal: Any, passes_checker: Any
) -> None:
    text, others = CASES[case]
    source = onnx.parser.parse_model(f"{HEADER} {text}")
    graph, bodies = cleaned(clean, text)
    proto = embed_engines(graph, (), {})

    compiled = {body.attribute: (body, embedded(partition(clean_up(body.model), *native), body)) for body in bodies}
    put_back(proto, next(node for node in graph.nodes if node.name == "f"), compiled)

    assert proto.functions
    assert passes_checker(proto)
    feeds = {"x": X, **others}
    for value in [np.array(False), np.array(True)] if "c" in others else [others["n"], np.array(0)]:
        feeds["c" if "c" in others else "n"] = value
        assert_equal(run(proto, feeds), run(source, feeds))


def embedded(part: Partition, body: Body) -> onnx.ModelProto:
    segments = [dataclasses.replace(segment, name=f"{body.name}/{segment.name}") for segment in part.segments]
    contents = {segment.name: EmbeddedEngine(envelope="{}", engine=b"engine") for segment in segments}
    return embed_engines(part.graph, segments, contents)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        pytest.param("(float[3] x, int64 n)", LOOP_TRIPS, id="unknown"),
        pytest.param("(float[3] x) <int64 n = {5}>", 5, id="constant"),
        pytest.param("(float[3] x) <int64[1] n = {-5}>", 0, id="negative"),
    ],
)
def test_loop_is_expected_to_run_as_often_as_it_says(inputs: str, expected: int, clean: Any) -> None:
    given, _, constants = inputs.partition(" <")
    text = CASES["loop"][0].replace("(float[3] x, int64 n)", given)
    if constants:
        text = text.replace("<bool go = {1}>", f"<bool go = {{1}}, {constants}")

    graph = clean(f"{HEADER} {text}")

    assert expected_trips(next(node for node in graph.nodes if node.name == "f")) == expected


def chain(size: int, length: int) -> str:
    nodes = " ".join(f"v{i + 1} = Exp(v{i})" for i in range(length))
    return f"{HEADER} g (float[{size}] v0) => (float[{size}] v{length}) {{ {nodes} }}"


@pytest.mark.parametrize(
    ("size", "length", "trips", "paying"),
    [
        pytest.param(2**20, 8, 1, True, id="much-to-do"),
        pytest.param(4, 8, 1, False, id="little-to-do"),
        pytest.param(4, 8, 10**6, False, id="little-to-do-often"),
        pytest.param(2**20, 8, 0, False, id="never-run"),
        pytest.param(2**15, 8, 1, False, id="gain-within-the-margin"),
        pytest.param(2**15, 8, 100, True, id="gain-that-adds-up"),
    ],
)
def test_engines_of_a_body_must_gain_more_than_running_it_costs(
    size: int, length: int, trips: int, paying: bool, clean: Any, partition: Any
) -> None:
    part = partition(clean(chain(size, length)))

    refused = refuse_unless_pays(part, trips)

    assert bool(refused) != paying
    assert {verdict.code for verdict in refused.values()} <= {ReasonCode.TOO_SMALL}
    assert refused.keys() in (set(), {node.name for node in part.graph.nodes})


def test_gain_grows_with_the_number_of_runs(clean: Any, partition: Any) -> None:
    part = partition(clean(chain(2**20, 8)))

    assert expected_gain_s(part, 10) == pytest.approx(10 * expected_gain_s(part, 1))
