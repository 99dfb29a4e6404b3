"""Groups of nodes that no boundary separates."""

from __future__ import annotations

import numpy as np
import pytest

from model_texts import clean, parse
from plain_runtime import run
from stub_engine import embed, refusing
from trtnode.partitioner.cut.atomic_groups import atomic_groups
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.partition import partition_graph
from trtnode.partitioner.graph.view import Graph

QUANTIZED = """<ir_version: 10, opset_import: ["": 17]> g (uint8[1, 2, 4, 4] x) => (uint8[1, 2, 4, 4] y)
<float s = {0.1}, uint8 z = {0}, uint8[2, 2, 1, 1] w = {1, 2, 3, 4}> {
    [dx] a = DequantizeLinear(x, s, z)
    [dw] b = DequantizeLinear(w, s, z)
    [conv] c = Conv(a, b)
    [q] d = QuantizeLinear(c, s, z)
    [dd] e = DequantizeLinear(d, s, z)
    [relu] f = Relu(e)
    [last] y = QuantizeLinear(f, s, z)
}"""

RESHAPED = """<ir_version: 10, opset_import: ["": 17]> g (float[N, 4] x, float[N, 4] z) => (float[M] y, float[K] w)
<int64 two = {2}, int64 none = {0}, int64[1] axis = {0}, int64[1] four = {4}> {
    [shape] s = Shape(x)
    [gather] n = Gather(s, none)
    [double] m = Mul(n, two)
    [vector] v = Unsqueeze(m, axis)
    [all] size = Mul(v, four)
    [pair] p = Concat<axis = 0>(x, z)
    [flat] y = Reshape(p, size)
    w = Sqrt(y)
}"""


def members(graph: Graph) -> list[tuple[str, list[str]]]:
    return [(group.kind, [graph.nodes[i].name for i in group.nodes]) for group in atomic_groups(graph)]


def test_a_quantized_unit_is_what_dequantizes_for_a_node_the_node_and_what_quantizes_its_result() -> None:
    assert members(clean(QUANTIZED)) == [
        ("quantized unit", ["dx", "dw", "conv", "q"]),
        ("quantized unit", ["dd", "relu", "last"]),
    ]


def test_a_node_that_dequantizes_for_two_belongs_to_neither() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (uint8[4] x) => (float[4] y, float[4] z)
    <float s = {0.1}, uint8 o = {0}> {
        a = DequantizeLinear(x, s, o)
        y = Relu(a)
        z = Exp(a)
    }""")

    assert atomic_groups(graph) == ()


def test_a_shape_chain_is_the_arithmetic_between_shape_and_what_it_sizes() -> None:
    assert members(clean(RESHAPED)) == [("shape chain", ["gather", "double", "vector", "all", "flat"])]


@pytest.mark.parametrize("native", ["dx", "dw", "conv", "q"])
def test_one_native_node_makes_its_whole_quantized_unit_native(native: str) -> None:
    result = partition_graph(clean(QUANTIZED), refusing(), PartitionOptions(native_nodes=(native,)))

    assert [[node.name for node in s.nodes] for s in result.segments] == [["dd", "relu", "last"]]
    others = {"dx", "dw", "conv", "q"} - {native}
    assert {result.labels[name].code for name in others} <= {"ATOMIC_GROUP"}
    assert result.labels[native].code == "USER_EXCLUDED"


def test_the_reason_names_the_native_node() -> None:
    result = partition_graph(clean(QUANTIZED), refusing(), PartitionOptions(native_ops=("Conv",)))

    assert result.labels["q"].detail == "It is one quantized unit with 'conv', which runs natively."


def test_a_node_sized_by_a_native_one_is_native_and_the_rest_of_its_chain_is_not() -> None:
    result = partition_graph(clean(RESHAPED), refusing(), PartitionOptions(native_nodes=("double",)))

    assert result.labels["flat"].code == "ATOMIC_GROUP"
    assert result.labels["gather"].supported


def test_a_chain_stays_with_the_node_that_it_sizes() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[N, 4] x) => (float[A, B] y)
    <int64[2] perm = {1, 0}> {
        [first] a = Relu(x)
        [shape] s = Shape(a)
        [turn] r = Gather(s, perm)
        [native] b = Neg(a)
        [flat] c = Reshape(b, r)
        y = Sqrt(c)
    }""")

    result = partition_graph(graph, refusing("Neg"), PartitionOptions())

    assert [[node.name for node in s.nodes] for s in result.segments] == [
        ["first"],
        ["shape", "turn", "flat", "Sqrt:y"],
    ]


def test_groups_change_no_answer() -> None:
    feeds = {"x": np.arange(32, dtype=np.uint8).reshape(1, 2, 4, 4)}

    (expected,), (actual,) = run(parse(QUANTIZED), feeds), run(embed(clean(QUANTIZED), "Relu"), feeds)

    np.testing.assert_array_equal(actual, expected)
