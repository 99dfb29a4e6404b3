"""The report: the documented JSON, a reason for each native node, a witness for each split."""

from __future__ import annotations

import json

import onnx_ir as ir
from hypothesis import given, settings
from hypothesis import strategies as st

from model_cases import Case
from model_texts import clean
from random_models import random_models
from stub_engine import partition
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.cut.report import count_crossing_tensors

MODEL = """<ir_version: 10, opset_import: ["": 17]> g (float[3] x, bool c) => (float[3] y)
<float[3] w = {1, 2, 3}> {
    [first] a = Relu(x)
    [detour] b = Neg(a)
    [branch] d = If (c) <
        then_branch = then () => (float[3] t) { t = Abs(b) },
        else_branch = else () => (float[3] e) { e = Neg(x) }
    >
    [second] y = Add(a, d)
}"""


def as_json(partition: Partition) -> dict:
    """The report as a program reads it."""
    return json.loads(json.dumps(partition.report(model="m.onnx", engine="openvino").as_json()))


def test_the_report_is_the_documented_json() -> None:
    report = as_json(partition(clean(MODEL), "Neg"))

    seconds = report.pop("seconds")
    estimates = [segment.pop("estimate") for segment in report["segments"]]
    assert set(seconds) == {"label", "cut"}
    assert all(set(estimate) == {"engine_ms", "native_ms"} for estimate in estimates)
    assert all(isinstance(value, float) for value in seconds.values())
    assert report == {
        "model": "m.onnx",
        "engine": "openvino",
        "nodes": 4,
        "supported_nodes": 2,
        "engine_nodes": 2,
        "minimum_segments": 2,
        "segments": [
            {
                "name": "segment_0",
                "backend": "openvino",
                "nodes": ["first"],
                "inputs": ["x"],
                "outputs": ["a"],
                "level": 1,
            },
            {
                "name": "segment_1",
                "backend": "openvino",
                "nodes": ["second"],
                "inputs": ["a", "d"],
                "outputs": ["y"],
                "level": 2,
            },
        ],
        "native": [
            {
                "node": "detour",
                "op_type": "Neg",
                "code": "UNSUPPORTED_OP",
                "detail": "The engine of this test has no such operator.",
            },
            {
                "node": "branch",
                "op_type": "If",
                "code": "CONTROL_FLOW",
                "detail": "In a subgraph, 'branch/Neg:e' runs natively: The engine of this test has no such operator.",
            },
        ],
        "unknown_shapes": [],
        "splits": [{"between": ["segment_0", "segment_1"], "witness": ["first", "detour", "branch", "second"]}],
        "crossing_tensors": 5,
        "boundary_bytes": 60,
    }


def test_every_node_is_in_one_place_and_every_native_one_has_a_reason(case: Case) -> None:
    graph = clean(case.model)

    report = as_json(partition(graph, *case.native))

    places = [name for s in report["segments"] for name in s["nodes"]] + [n["node"] for n in report["native"]]
    assert sorted(places) == sorted(node.name for node in graph.nodes)
    assert {n["code"] for n in report["native"]} <= set(ReasonCode)
    assert all(n["detail"] for n in report["native"])
    assert report["engine_nodes"] + len(report["native"]) == report["nodes"]


def test_a_tensor_counts_once_for_each_segment_that_it_touches() -> None:
    segments = partition(
        clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y, float[3] z) {
            a = Relu(x)
            n = Neg(a)
            y = Add(a, n)
            z = Mul(a, n)
        }"""),
        "Neg",
    ).segments

    # x in, a out; a and n in, y and z out.
    assert count_crossing_tensors(segments) == 6


def read_names(op: ir.Node) -> set[str]:
    """Names that a node and its subgraphs read, from the protobuf."""
    proto = ir.serde.serialize_node(op)
    bodies = [node for attribute in proto.attribute for node in attribute.g.node]
    return {*proto.input, *(name for node in bodies for name in node.input)}


@settings(max_examples=60, derandomize=True)
@given(data=st.data())
def test_every_pair_of_neighbours_has_a_path_that_leaves_the_engine_and_comes_back(data: st.DataObject) -> None:
    result = partition(clean(data.draw(random_models(16))), "Neg")
    by_name = {node.name: node for node in result.graph.nodes}

    report = as_json(result)

    members = {s["name"]: set(s["nodes"]) for s in report["segments"]}
    pairs = zip(report["segments"], report["segments"][1:], strict=False)
    assert [s["between"] for s in report["splits"]] == [[a["name"], b["name"]] for a, b in pairs]
    for split in report["splits"]:
        first, *between, last = split["witness"]
        assert first in members[split["between"][0]]
        assert last in members[split["between"][1]]
        assert between
        assert all(name in {n["node"] for n in report["native"]} for name in between)
        for before, after in zip(split["witness"], split["witness"][1:], strict=False):
            produced = {value.name for value in by_name[before].op.outputs}
            assert produced & read_names(by_name[after].op), f"no edge from {before} to {after}"
