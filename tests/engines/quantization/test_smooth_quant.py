"""Scales move from the channels of activations into the weights of MatMuls, and answers stay nearer to float32."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from quantized_networks import Example, Prepare, network, simulate

OUTLIERS = (3, 17)

BLOCK = """net (float[N, 8, 32] x) => (float[N, 8, 32] y)
<float[32] scale, float[32] bias, float[32, 32] first, float[32, 32] second> {
  n = LayerNormalization <axis = -1> (x, scale, bias)
  a = MatMul (n, first)
  b = MatMul (n, second)
  c = Mul (a, b)
  y = Add (c, n)
}"""
"""Two products of one tensor, which a residual reads as well, as behind the LayerNorm of a BERT."""


@pytest.fixture
def block(prepare: Prepare) -> Example:
    scale = np.ones(32, np.float32)
    scale[list(OUTLIERS)] = 40
    return prepare(network(BLOCK, scale=scale), x=(4, 8, 32))


def test_channels_with_outliers_get_the_smallest_factors(block: Example) -> None:
    assert list(block.table.factors) == ["n"]
    assert set(np.argsort(block.table.factors["n"])[:2]) == set(OUTLIERS)
    assert np.ptp(block.table.scaled_ranges["n"]) < 0.5 * np.ptp(block.table.ranges["n"])


@pytest.mark.parametrize("scheme", ["openvino", "tensorrt"])
def test_a_smoothed_model_is_nearer_to_float32(scheme: str, block: Example) -> None:
    plain = dataclasses.replace(block, table=dataclasses.replace(block.table, factors={}, scaled_ranges={}))
    exact = simulate(block.model, block.feeds)

    before, after = (np.square(simulate(one.quantized(scheme), block.feeds) - exact).mean() for one in (plain, block))

    assert after < 0.5 * before


def test_both_readers_share_one_factor(block: Example) -> None:
    quantized = block.quantized("openvino")

    (smooth,) = [node for node in quantized.graph.node if node.name.endswith("/Smooth")]
    assert smooth.input[0] == "n"
    assert "n" in next(node for node in quantized.graph.node if node.op_type == "Add").input


def test_a_node_that_stays_float_reads_what_it_read(block: Example) -> None:
    graph = block.model.graph
    kept = block.quantized("openvino", keep={node.name for node in graph.node} | {"MatMul:a", "MatMul:b"})

    assert [node.op_type for node in kept.graph.node] == [node.op_type for node in graph.node]
    assert {tuple(n.input) for n in kept.graph.node} == {tuple(n.input) for n in graph.node}


def test_channels_of_one_size_are_left_alone(prepare: Prepare) -> None:
    model = network("net (float[N, 8, 32] x) => (float[N, 8, 16] y) <float[32, 16] w> { y = MatMul (x, w) }")

    assert prepare(model, x=(4, 8, 32)).table.factors == {}
