"""A plan quantizes the tensors that a target's library computes in eight bits, and says why others stay float."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from quantized_networks import (
    NETWORKS,
    RESIDUAL,
    Prepare,
    constants,
    cosine,
    kept,
    network,
    readers,
    run_in_openvino,
    simulate,
    zero_points,
)
from trtnode.engines.quantization.schemes import SCHEMES
from trtnode.engines.quantization.table import CalibrationTable


def test_tensorrt_gets_an_add_quantized_on_its_residual_input_only(prepare: Prepare) -> None:
    quantized = prepare(network(RESIDUAL)).quantized("tensorrt")

    assert readers(quantized, "Add") == [["Conv", "DequantizeLinear"]]
    assert readers(quantized, "Relu") == [["Conv"], ["Add"]]


def test_tensorrt_gets_no_add_quantized_that_no_convolution_feeds(prepare: Prepare) -> None:
    model = network("net (float[N, 4] x) => (float[N, 4] y) <float[4, 4] w> { y0 = Add (x, x)  y = MatMul (y0, w) }")

    assert readers(prepare(model).quantized("tensorrt"), "Add") == [["", ""]]


def test_openvino_gets_unsigned_activations_and_no_average_pool_of_eight_bits(prepare: Prepare) -> None:
    quantized = prepare(network(NETWORKS["padded-average"])).quantized("openvino")

    kinds = {a.dtype for a in zero_points(quantized) if not a.ndim}
    assert kinds == {np.dtype(np.uint8)}
    assert any(a > 0 for a in zero_points(quantized) if not a.ndim)
    assert readers(quantized, "AveragePool") == [["Conv"]]


def test_what_is_concatenated_has_one_scale(prepare: Prepare) -> None:
    text = """net (float[N, 4, 6, 6] x) => (float[N, 2, 6, 6] y)
        <float[4, 4, 1, 1] w1, float[4, 4, 1, 1] w2, float[2, 8, 1, 1] w3> {
        a = Conv (x, w1)  b = Conv (x, w2)  c = Concat <axis = 1> (a, b)  y = Conv (c, w3) }"""
    example = prepare(network(text, w2=30 * np.ones((4, 4, 1, 1), np.float32)))

    quantized = example.quantized("openvino")

    values = constants(quantized)
    steps = {values[n.input[1]].item() for n in quantized.graph.node if n.input[0] in "abc"}
    assert readers(quantized, "Concat") == [["DequantizeLinear"] * 2]
    assert len(steps) == 1
    simulated = simulate(quantized, example.feeds)
    assert cosine(simulated, run_in_openvino(quantized, example.feeds)) > 0.999


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nodes_stay_float_by_request(scheme: str, prepare: Prepare) -> None:
    example = prepare(network(RESIDUAL))

    quantized = example.quantized(scheme, keep={"Conv:c2"})

    assert readers(quantized, "Conv")[1][1] == ""
    assert example.kept(scheme, keep={"Conv:c2"}) == {"Conv:c2": "it was asked to stay float"}


def test_nodes_stay_float_where_a_range_was_never_seen(prepare: Prepare) -> None:
    example = prepare(network(RESIDUAL))
    ranges = {name: pair for name, pair in example.table.ranges.items() if name != "r1"}
    example.table = dataclasses.replace(example.table, ranges=ranges)

    assert example.kept("openvino") == {"Conv:c2": "calibration saw no finite values of 'r1'"}
    assert readers(example.quantized("openvino"), "Conv")[1] == ["Relu", ""]


def test_nodes_stay_float_where_a_range_has_no_width(prepare: Prepare) -> None:
    example = prepare(network(RESIDUAL))
    example.table = dataclasses.replace(example.table, ranges={**example.table.ranges, "x": (2.0, 2.0)})

    assert example.kept("tensorrt") == {"Conv:c1": "'x' was always 2 in calibration"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            "net (float[N, 4] x, float[4, 1, 1, 1] w) => (float[N, 4] y) <float[1, 1, 4, 1] u> "
            "{ y = Identity (x)  z = Conv (u, w) }",
            "its weights 'w' are no constant",
            id="weights-of-a-request",
        ),
        pytest.param(
            "net (float16[N, 4] x) => (float16[N, 4] y) { y = MatMul (x, x) }",
            "'x' is FLOAT16, and only float32 is quantized",
            id="float16",
        ),
    ],
)
def test_nodes_stay_float_that_can_not_be_quantized(text: str, told: str) -> None:
    table = CalibrationTable(ranges={}, model_sha256="", data_sha256="", samples=0, method="", versions={})

    reasons = kept(network(text), table, SCHEMES["openvino"])

    assert list(reasons.values()) == [told]


def test_nodes_with_weights_that_are_no_numbers_stay_float(prepare: Prepare) -> None:
    weights = np.full((4, 4, 3, 3), np.nan, np.float32)
    example = prepare(network(RESIDUAL))
    example.model = network(RESIDUAL, w2=weights)

    assert example.kept("openvino") == {"Conv:c2": "its weights 'w2' hold NaN or infinity"}
