"""The cut: legal, complete, and of no more segments than any legal cut."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Iterator, Sequence

import networkx
import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from model_texts import clean
from random_models import random_models
from trtnode.partitioner.cut.levels import certifies, earliest_levels
from trtnode.partitioner.cut.segments import Segment, cut
from trtnode.partitioner.graph.view import Graph

STEADY = settings(max_examples=60, derandomize=True)


def supported(graph: Graph) -> dict[str, bool]:
    return {node.name: node.op_type not in ("Neg", "If") for node in graph.nodes}


def segments_of(graph: Graph) -> list[Segment]:
    return cut(graph, list(supported(graph).values()))


def names(segments: Iterable[Segment]) -> list[tuple[str, ...]]:
    return [tuple(node.name for node in segment.nodes) for segment in segments]


def edges(graph: Graph) -> set[tuple[str, str]]:
    """Edges of the graph, from its protobuf alone."""
    protos = {node.name: ir.serde.serialize_node(node.op) for node in graph.nodes}
    producer = {output: name for name, proto in protos.items() for output in proto.output}
    return {(producer[read], name) for name, proto in protos.items() for read in reads(proto) if read in producer}


def reads(proto: onnx.NodeProto) -> Iterator[str]:
    yield from proto.input
    for attribute in proto.attribute:
        for node in attribute.g.node:
            yield from reads(node)


def is_legal(links: set[tuple[str, str]], groups: Sequence[Sequence[str]]) -> bool:
    """True if the graph has no cycle once each group is one vertex."""
    group = {name: index for index, members in enumerate(groups) for name in members}
    contracted = networkx.DiGraph()
    for before, after in links:
        tail, head = group.get(before, before), group.get(after, after)
        if tail != head:
            contracted.add_edge(tail, head)
    return networkx.is_directed_acyclic_graph(contracted)


def groupings(members: Sequence[str], most: int) -> Iterator[list[list[str]]]:
    """Every way to put members into at most so many groups."""
    if not members:
        yield []
        return
    first, *rest = members
    for groups in groupings(rest, most):
        for index in range(len(groups)):
            yield [*groups[:index], [first, *groups[index]], *groups[index + 1 :]]
        if len(groups) < most:
            yield [[first], *groups]


def test_a_captured_value_is_a_detour_too() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x, bool c) => (float[3] y) {
        a = Relu(x)
        b = If (c) <
            then_branch = then () => (float[3] t) { t = Abs(a) },
            else_branch = else () => (float[3] e) { e = Neg(x) }
        >
        y = Add(a, b)
    }""")

    assert names(segments_of(graph)) == [("Relu:a",), ("Add:y",)]


def test_a_node_of_constants_alone_waits_for_its_reader() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y)
    <float[3] w = {1, 2, 3}> {
        early = Exp(w)
        late = Exp(early)
        a = Relu(x)
        b = Neg(a)
        y = Add(b, late)
    }""")

    segments = segments_of(graph)

    assert names(segments) == [("Relu:a",), ("Exp:early", "Exp:late", "Add:y")]
    assert [v.name for v in segments[1].inputs] == ["b"]


def test_inputs_are_in_order_of_first_use_and_outputs_in_order_of_production() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]>
    g (float[2] unused, float[2] p, float[2] q) => (float[2] c, float[1] s) <float[2] w = {1, 2}> {
        a = Add(q, p)
        b = Mul(a, w)
        c = Add(b, q)
        s, t = Split<axis = 0>(a)
        n = Neg(b)
    }""")

    (segment,) = segments_of(graph)

    assert [v.name for v in segment.inputs] == ["q", "p"]
    assert [v.name for v in segment.outputs] == ["c", "s"]


def test_a_value_that_is_read_inside_and_outside_leaves_the_segment_once() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] a, float[3] y, float[3] z) {
        a = Relu(x)
        b = Abs(a)
        y = Neg(b)
        z = Neg(a)
    }""")

    (segment,) = segments_of(graph)

    assert [v.name for v in segment.outputs] == ["a", "b"]


def test_a_value_that_a_subgraph_captures_leaves_the_segment() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x, bool c) => (float[3] y) {
        a = Relu(x)
        y = If (c) <
            then_branch = then () => (float[3] t) { t = Abs(a) },
            else_branch = else () => (float[3] e) { e = Neg(x) }
        >
    }""")

    (segment,) = segments_of(graph)

    assert [v.name for v in segment.outputs] == ["a"]


def test_no_segment_takes_the_name_of_a_node() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) {
        a = Relu(x)
        [segment_0] b = Neg(a)
        [segment_2] y = Abs(b)
    }""")

    segments = segments_of(graph)

    assert [segment.name for segment in segments] == ["segment_1", "segment_3"]


@STEADY
@given(data=st.data())
def test_a_cut_is_legal_and_complete(data: st.DataObject) -> None:
    graph = clean(data.draw(random_models(16)))
    label = supported(graph)

    segments = segments_of(graph)

    assert is_legal(edges(graph), names(segments))
    assert sorted(n for group in names(segments) for n in group) == sorted(n for n, inside in label.items() if inside)


@settings(max_examples=150, derandomize=True)
@given(data=st.data())
def test_no_legal_cut_has_fewer_segments(data: st.DataObject) -> None:
    graph = clean(data.draw(random_models(13)))
    label, links = supported(graph), edges(graph)
    members = [name for name, inside in label.items() if inside]
    assume(len(members) <= 8)

    segments = segments_of(graph)

    fewer = (groups for groups in groupings(members, len(segments) - 1) if groups)
    assert not any(is_legal(links, groups) for groups in fewer)


@STEADY
@given(data=st.data())
def test_levels_certify_the_cut(data: st.DataObject) -> None:
    graph = clean(data.draw(random_models(16)))
    inside = list(supported(graph).values())

    levels = earliest_levels(graph.topology, inside)

    assert certifies(np.array(levels), graph.topology, np.array(inside, dtype=bool))
    assert set(levels) >= set(range(1, max(levels) + 1))


@STEADY
@given(data=st.data())
def test_a_level_below_that_of_a_predecessor_certifies_nothing(data: st.DataObject) -> None:
    graph = clean(data.draw(random_models(16)))
    label = supported(graph)
    levels = dict(zip(label, earliest_levels(graph.topology, list(label.values())), strict=True))
    links = sorted(edges(graph))
    if not links:
        return
    before, after = data.draw(st.sampled_from(links))
    rises = label[after] and not label[before]

    wrong = {**levels, after: levels[before] + rises - 1}

    assert not certifies(np.array([*wrong.values()]), graph.topology, np.array([*label.values()], dtype=bool))


@STEADY
@given(data=st.data())
def test_another_topological_order_changes_no_number_of_segments(data: st.DataObject) -> None:
    graph = clean(data.draw(random_models(12)))
    expected = len(segments_of(graph))
    order = graphlib.TopologicalSorter(dict(enumerate(graph.topology.predecessors)))
    order.prepare()

    shuffled, ready = [], []
    while order.is_active():
        ready.extend(order.get_ready())
        shuffled.append(ready.pop(data.draw(st.integers(0, len(ready) - 1))))
        order.done(shuffled[-1])
    body = graph.model.graph
    body.remove(node.op for node in graph.nodes)
    body.extend(graph.nodes[index].op for index in shuffled)
    again = Graph.of(graph.model)

    assert again.names == tuple(graph.names[index] for index in shuffled)
    assert len(segments_of(again)) == expected


@STEADY
@given(data=st.data())
def test_native_nodes_never_need_more_stages_than_segments_and_one(data: st.DataObject) -> None:
    graph = clean(data.draw(random_models(16)))
    label = supported(graph)

    levels = earliest_levels(graph.topology, list(label.values()))

    native = {level for level, inside in zip(levels, label.values(), strict=True) if not inside}
    assert len(native) <= len(segments_of(graph)) + 1
