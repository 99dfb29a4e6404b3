"""Nodes that compute from constants are copied into each place that reads them."""

from __future__ import annotations

import numpy as np
import onnx

from model_texts import clean
from plain_runtime import run
from stub_engine import embed, refusing
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.partition import Partition, partition_graph

SHARED = """<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y)
<float[3] w = {1, 2, 3}> {
    [base] k = Exp(w)
    [shared] s = Sqrt(k)
    [one] a = Add(x, s)
    [native] b = Neg(a)
    [two] c = Mul(b, s)
    [late] d = Neg(c)
    [three] y = Add(d, k)
}"""

FEEDS = {"x": np.ones(3, np.float32)}


def nodes(partition: Partition) -> list[list[str]]:
    return [[node.name for node in segment.nodes] for segment in partition.segments]


def test_each_segment_gets_its_own_copy() -> None:
    result = partition_graph(clean(SHARED), refusing("Neg"), PartitionOptions())

    assert [len(names) for names in nodes(result)] == [3, 3, 2]
    assert [[v.name for v in s.inputs] for s in result.segments] == [["x"], ["b"], ["d"]]
    assert all(v.supported for name, v in result.labels.items() if "copy" in name)


def test_copies_change_no_answer() -> None:
    expected = run(onnx.parser.parse_model(SHARED), FEEDS)

    actual = run(embed(clean(SHARED), "Neg"), FEEDS)

    np.testing.assert_array_equal(actual, expected)


def test_a_native_reader_gets_a_copy_that_runs_natively() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y, float[3] z)
    <float[3] w = {1, 2, 3}> {
        [shared] k = Exp(w)
        y = Add(x, k)
        z = Mod<fmod = 1>(x, k)
    }""")

    result = partition_graph(graph, refusing("Mod"), PartitionOptions())

    assert nodes(result) == [["shared", "Add:y"]] or nodes(result) == [["shared:copy_1", "Add:y"]]
    assert [v.name for s in result.segments for v in s.outputs] == ["y"]


def test_random_values_are_never_copied() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y)
    {
        [noise] k = RandomNormal<shape = [3]>()
        a = Add(x, k)
        b = Neg(a)
        y = Mul(b, k)
    }""")

    result = partition_graph(graph, refusing("Neg"), PartitionOptions())

    assert sum(node.op_type == "RandomNormal" for node in result.graph.nodes) == 1


def test_a_node_that_a_request_reaches_is_never_copied() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) {
        k = Exp(x)
        a = Add(x, k)
        b = Neg(a)
        y = Mul(b, k)
    }""")

    result = partition_graph(graph, refusing("Neg"), PartitionOptions())

    assert len(result.graph.nodes) == 4
