"""Estimates: counts of operations are those of the definitions."""

from __future__ import annotations

import numpy as np
import pytest

from model_texts import clean, parse
from stub_engine import refusing
from trtnode.partitioner.cut.cost_model import CostModel, flops
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.partition import partition_graph

COUNTED = {
    "Conv": ("float[1, 8, 6, 6] y", "y = Conv(x, w)", "float[1, 4, 8, 8] x, float[8, 4, 3, 3] w", 2 * 8 * 36 * 4 * 9),
    "grouped Conv": (
        "float[1, 8, 6, 6] y",
        "y = Conv<group = 4>(x, w)",
        "float[1, 4, 8, 8] x, float[8, 1, 3, 3] w",
        2 * 8 * 36 * 9,
    ),
    "ConvTranspose": (
        "float[1, 2, 10, 10] y",
        "y = ConvTranspose(x, w)",
        "float[1, 4, 8, 8] x, float[4, 2, 3, 3] w",
        2 * 4 * 64 * 2 * 9,
    ),
    "MatMul": ("float[5, 2, 4] y", "y = MatMul(x, w)", "float[5, 2, 3] x, float[3, 4] w", 2 * 5 * 2 * 4 * 3),
    "transposed Gemm": ("float[2, 4] y", "y = Gemm<transA = 1>(x, w)", "float[3, 2] x, float[3, 4] w", 2 * 2 * 4 * 3),
    "LSTM": (
        "float[7, 1, 2, 5] y",
        "y = LSTM<hidden_size = 5>(x, w, r)",
        "float[7, 2, 3] x, float[1, 20, 3] w, float[1, 20, 5] r",
        2 * 7 * 2 * (20 * 3 + 20 * 5),
    ),
    "elementwise": ("float[2, 3] y", "y = Add(x, w)", "float[2, 3] x, float[3] w", 6),
    "a batch of unknown size": ("float[N, 4] y", "y = MatMul(x, w)", "float[N, 3] x, float[3, 4] w", 2 * 4 * 3),
}


@pytest.mark.parametrize(("output", "body", "inputs", "expected"), [pytest.param(*c, id=n) for n, c in COUNTED.items()])
def test_operations_are_counted_as_defined(output: str, body: str, inputs: str, expected: int) -> None:
    (node,) = clean(f'<ir_version: 10, opset_import: ["": 17]> g ({inputs}) => ({output}) {{ {body} }}').nodes

    assert flops(node) == expected


@pytest.mark.parametrize("rows", [64, 1_000_000])
def test_a_table_costs_what_is_taken_out_of_it(rows: int) -> None:
    model = parse("g (int64[2] i) => (float[2, 4] y) { y = Gather(t, i) }", opset=17, t=np.zeros((rows, 4), np.float32))
    graph = clean(model)

    assert CostModel(graph).native_s([0]) < 1e-5


def test_the_limit_on_segments_keeps_those_with_the_greatest_benefit() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[512, 512] x) => (float[512, 512] y) {
        a = Relu(x)
        b = Neg(a)
        [long] c = Abs(b)
        [chain] d = Sqrt(c)
        [fused] e = Relu(d)
        f = Neg(e)
        y = Relu(f)
    }""")

    result = partition_graph(graph, refusing("Neg"), PartitionOptions(max_segments=1))

    assert [[node.name for node in s.nodes] for s in result.segments] == [["long", "chain", "fused"]]
    assert result.labels["Relu:y"].code == "TOO_SMALL"
    assert "max_segments is 1" in result.labels["Relu:a"].detail


def test_connected_segments_hold_no_unrelated_branches() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[3] x, float[3] z) => (float[3] y, float[3] w) {
        a = Relu(x)
        y = Sqrt(a)
        w = Abs(z)
    }""")

    result = partition_graph(graph, refusing(), PartitionOptions(connected=True))

    assert [[node.name for node in s.nodes] for s in result.segments] == [["Relu:a", "Sqrt:y"], ["Abs:w"]]
    assert result.minimum_segments == 1
