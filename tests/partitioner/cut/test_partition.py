"""Partitioning as a whole: label, cut, demote."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from model_texts import clean
from random_models import random_models
from stub_engine import partition, refusing
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.cut.levels import certifies
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.partition import Partition, partition_graph
from trtnode.partitioner.cut.segments import Segment
from trtnode.partitioner.errors import UnknownOptionError

STEADY = settings(max_examples=60, derandomize=True)

# Runs of three, one and two nodes.
RUNS = """<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) {
    a = Relu(x)
    b = Abs(a)
    c = Relu(b)
    d = Neg(c)
    e = Abs(d)
    f = Neg(e)
    h = Abs(f)
    y = Relu(h)
}"""

REFUSED = Verdict(ReasonCode.BUILD_FAILED, "It could not be built.")


def names(segments: Iterable[Segment]) -> list[list[str]]:
    return [[node.op.outputs[0].name for node in segment.nodes] for segment in segments]


def demoted(partition: Partition, segments: Iterable[Segment]) -> Partition:
    return partition.demote({node.name: REFUSED for segment in segments for node in segment.nodes})


@pytest.mark.parametrize(
    ("least", "expected"),
    [
        pytest.param(1, [["a", "b", "c"], ["e"], ["h", "y"]], id="all-are-large-enough"),
        pytest.param(2, [["a", "b", "c"], ["h", "y"]], id="one-is-too-small"),
        pytest.param(3, [["a", "b", "c"]], id="two-are"),
        pytest.param(4, [], id="all-are"),
    ],
)
def test_small_segments_run_natively(least: int, expected: list[list[str]]) -> None:
    result = partition_graph(clean(RUNS), refusing("Neg"), PartitionOptions(min_segment_nodes=least))

    assert names(result.segments) == expected
    assert (result.supported_nodes, result.minimum_segments) == (6, 3)


def test_the_reason_for_a_small_segment_has_the_numbers() -> None:
    result = partition_graph(clean(RUNS), refusing("Neg"), PartitionOptions(min_segment_nodes=2))

    assert result.labels["Abs:e"] == Verdict(
        ReasonCode.TOO_SMALL, "Its segment would have 1 node; min_segment_nodes is 2."
    )


def test_segments_that_a_small_one_kept_apart_are_joined_before_they_are_judged() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x, float[3] z) => (float[3] y, float[3] w) {
        a = Relu(x)
        b = Neg(a)
        y = Abs(b)
        c = Neg(z)
        w = Exp(c)
    }""")

    result = partition_graph(graph, refusing("Neg"), PartitionOptions(min_segment_nodes=2))

    assert names(result.segments) == [["a", "w"]]


def test_without_options_for_the_model_there_is_an_error() -> None:
    with pytest.raises(UnknownOptionError, match="native_ops: 'Rellu'"):
        partition_graph(clean(RUNS), refusing(), PartitionOptions(native_ops=("Rellu",)))


def test_a_refused_segment_leaves_the_others_as_they_are() -> None:
    before = partition(clean(RUNS), "Neg")

    after = demoted(before, before.segments[1:2])

    assert names(after.segments) == [["a", "b", "c"], ["h", "y"]]
    assert after.labels["Abs:e"] == REFUSED
    assert (after.supported_nodes, after.minimum_segments) == (6, 3)
    assert names(before.segments) == [["a", "b", "c"], ["e"], ["h", "y"]]


def test_constant_nodes_that_only_a_refused_segment_read_are_refused_with_it() -> None:
    before = partition(
        clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y)
        <float[3] w = {1, 2, 3}> {
            k = Exp(w)
            n = Neg(x)
            y = Mul(n, k)
        }"""),
        "Neg",
    )

    after = before.demote({"Mul:y": REFUSED})

    assert names(before.segments) == [["k", "y"]]
    assert after.segments == ()
    assert after.labels["Exp:k"].code == ReasonCode.UNSUPPORTED_INPUT


def test_the_report_after_a_refusal_has_both_the_possible_and_the_final_segments() -> None:
    before = partition(clean(RUNS), "Neg")

    report = demoted(before, before.segments[:1]).report(model="m.onnx", engine="e").as_json()

    assert (report["supported_nodes"], report["minimum_segments"]) == (6, 3)
    assert (report["engine_nodes"], len(report["segments"])) == (3, 2)
    assert [n["code"] for n in report["native"]][:3] == ["BUILD_FAILED"] * 3


@STEADY
@given(data=st.data())
def test_refusing_whole_segments_never_makes_more_of_them(data: st.DataObject) -> None:
    before = partition(clean(data.draw(random_models(16))), "Neg")
    assume(before.segments)
    refused = data.draw(st.lists(st.sampled_from(before.segments), unique=True, min_size=1))

    after = demoted(before, refused)

    levels = {node.name: segment.level for segment in after.segments for node in segment.nodes}
    assert len(after.segments) <= len(before.segments) - len(refused)
    assert {*levels} <= {node.name for s in before.segments if s not in refused for node in s.nodes}


@STEADY
@given(data=st.data())
def test_every_supported_node_is_in_one_segment_and_no_other_is_in_any(data: st.DataObject) -> None:
    result = partition(clean(data.draw(random_models(16))), "Neg")

    inside = [node.name for segment in result.segments for node in segment.nodes]
    assert sorted(inside) == sorted(name for name, verdict in result.labels.items() if verdict.supported)


@STEADY
@given(data=st.data())
def test_levels_of_segments_certify_them(data: st.DataObject) -> None:
    result = partition(clean(data.draw(random_models(16))), "Neg")

    graph = result.graph  # the cut is of this one, in which nodes that compute from constants may have copies
    inside = {node.name: segment.level for segment in result.segments for node in segment.nodes}
    supported = {node.name: node.name in inside for node in graph.nodes}
    levels: list[int] = []
    for name, before in zip(graph.names, graph.topology.predecessors, strict=True):
        levels.append(inside.get(name, max((levels[p] for p in before), default=0)))
    assert certifies(np.array(levels), graph.topology, np.array([*supported.values()], dtype=bool))


def test_the_rule_is_asked_once_for_nodes_that_it_cannot_tell_apart() -> None:
    asked = []

    partition_graph(clean(RUNS), lambda node: asked.append(node.name) or SUPPORTED, PartitionOptions())

    assert asked == ["Relu:a", "Abs:b", "Neg:d"]


SCRIPT = """
import json, pathlib, onnx
from trtnode.partitioner.cut.labels import SUPPORTED, PartitionOptions, ReasonCode, Verdict
from trtnode.partitioner.cut.partition import partition_graph
from trtnode.partitioner.passes.clean_up import clean_up
from trtnode.partitioner.model.loading import view_model

calls = {True: "v{0} = Neg(v{1})", False: "v{0} = Add(v{1}, v{2})"}
body = chr(10).join(calls[i % 7 == 3].format(i, max(i - 3, 0), max(i - 5, 0)) for i in range(1, 90))
text = '<ir_version: 10, opset_import: ["": 17]> g (float[4] v0) => (float[4] v89, float[4] v88) {' + body + '}'
graph = clean_up(view_model(onnx.parser.parse_model(text), pathlib.Path("m.onnx")))
refused = Verdict(ReasonCode.UNSUPPORTED_OP, "No.")
partition = partition_graph(graph, lambda n: refused if n.op_type == "Neg" else SUPPORTED, PartitionOptions())
report = partition.report(model="m", engine="e").as_json()
del report["seconds"]
print(json.dumps(report))
"""


def test_the_seed_of_hashes_changes_nothing() -> None:
    reports = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "4242")
    }

    assert len(reports) == 1
    assert "segment_1" in reports.pop()
