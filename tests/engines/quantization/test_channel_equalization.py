"""Channels that are scaled share eight bits evenly, and a model in float computes what it did."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quantized_networks import Prepare, dims, network, simulate
from trtnode.engines.quantization.calibrator import calibrate
from trtnode.engines.quantization.channel_equalization import scale_channels
from trtnode.engines.quantization.dataset import CalibrationDataset
from trtnode.engines.quantization.qdq_writer import prepare
from trtnode.engines.quantization.table import CalibrationTable

INVERTED_RESIDUAL = """net (float[N, 4, 8, 8] x) => (float[N, 5] y)
<float[6, 4, 1, 1] w0, float[6] b0, float[12, 6, 1, 1] w1, float[12] b1, float[12, 1, 3, 3] w2, float[12] b2,
 float[6, 12, 1, 1] w3, float[6] b3, float[5, 6, 1, 1] w4, float zero, float six> {
  stem = Conv (x, w0, b0)
  wide = Conv (stem, w1, b1)
  clipped = Clip (wide, zero, six)
  deep = Conv <group = 12, pads = [1, 1, 1, 1]> (clipped, w2, b2)
  rectified = Relu (deep)
  narrow = Conv (rectified, w3, b3)
  sum = Add (stem, narrow)
  mapped = Conv (sum, w4)
  pooled = GlobalAveragePool (mapped)
  y = Flatten (pooled)
}"""
"""A block of MobileNetV2 between two convolutions."""

FIXED = {
    "a-value-that-is-given-out": "net (float[N, 3, 4, 4] x) => (float[N, 3, 4, 4] y, float[N, 3, 4, 4] z)"
    " <float[3, 3, 1, 1] w, float[3, 3, 1, 1] v> { y = Conv (x, w)  z = Conv (y, v) }",
    "a-reader-that-is-not-homogeneous": "net (float[N, 3, 4, 4] x) => (float[N, 3, 4, 4] y, float[N, 3, 4, 4] z)"
    " <float[3, 3, 1, 1] w, float[3, 3, 1, 1] v> { c = Conv (x, w)  y = Sigmoid (c)  z = Conv (c, v) }",
    "groups-of-channels": "net (float[N, 4, 4, 4] x) => (float[N, 4, 4, 4] y)"
    " <float[4, 4, 1, 1] w, float[4, 2, 1, 1] v> { c = Conv (x, w)  y = Conv <group = 2> (c, v) }",
    "a-clip-above-zero": "net (float[N, 3, 4, 4] x) => (float[N, 3, 4, 4] y) <float[3, 3, 1, 1] w,"
    " float[3, 3, 1, 1] v, float low> { c = Conv (x, w)  d = Clip (c, low)  y = Conv (d, v) }",
    "a-sum-with-one-channel": "net (float[N, 3, 4, 4] x) => (float[N, 3, 4, 4] y)"
    " <float[3, 3, 1, 1] w, float[1, 3, 1, 1] u, float[3, 3, 1, 1] v> {"
    " a = Conv (x, w)  b = Conv (x, u)  c = Add (a, b)  y = Conv (c, v) }",
}


@pytest.fixture
def unequal() -> onnx.ModelProto:
    """The block, with channels whose ranges differ by a factor of a hundred."""
    spread = np.logspace(-2, 0, 12, dtype=np.float32)
    rng = np.random.default_rng(3)
    wide = rng.standard_normal((12, 6, 1, 1)).astype(np.float32) * spread[:, None, None, None]
    deep = rng.standard_normal((12, 1, 3, 3)).astype(np.float32) / spread[:, None, None, None]
    bias = np.abs(rng.standard_normal(12).astype(np.float32)) * spread
    return network(INVERTED_RESIDUAL, w1=wide, b1=bias, w2=deep, zero=np.float32(0), six=np.float32(6))


def table_of(model: onnx.ModelProto, folder: pathlib.Path) -> tuple[CalibrationTable, np.ndarray]:
    """Calibrate on some samples; give the table, and the samples."""
    x = np.random.default_rng(4).standard_normal((32, *dims(model.graph.input[0])[1:])).astype(np.float32)
    np.savez(folder / "samples.npz", x=x)
    onnx.save(model, folder / "model.onnx")
    return calibrate(folder / "model.onnx", CalibrationDataset(folder / "samples.npz"), method="minmax"), x


def test_a_scaled_model_computes_what_it_did(unequal: onnx.ModelProto, tmp_path: pathlib.Path) -> None:
    table, x = table_of(unequal, tmp_path)
    work, _ = prepare(unequal)

    scaled = scale_channels(work.graph, table.factors)

    assert scaled == {"stem", "clipped", "rectified", "narrow", "sum"}
    expected, actual = simulate(unequal, {"x": x}), simulate(ir.to_proto(work), {"x": x})
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_tensors_of_one_sum_have_one_factor(unequal: onnx.ModelProto, tmp_path: pathlib.Path) -> None:
    table, _ = table_of(unequal, tmp_path)

    assert table.factors["stem"] == table.factors["narrow"] == table.factors["sum"]


def test_ranges_are_those_of_the_scaled_tensors(unequal: onnx.ModelProto, tmp_path: pathlib.Path) -> None:
    table, x = table_of(unequal, tmp_path)
    work, _ = prepare(unequal)
    scale_channels(work.graph, table.factors)
    work.graph.outputs[:] = [next(n.outputs[0] for n in work.graph if n.op_type == "Relu")]

    rectified = simulate(ir.to_proto(work), {"x": x})

    assert table.scaled_ranges["rectified"] == pytest.approx((rectified.min(), rectified.max()), rel=0.5)


@pytest.mark.parametrize("scheme", ["openvino", "tensorrt"])
def test_unequal_channels_lose_less(scheme: str, unequal: onnx.ModelProto, prepare: Prepare) -> None:
    example = prepare(unequal)
    plain = dataclasses.replace(example, table=dataclasses.replace(example.table, factors={}, scaled_ranges={}))
    expected = simulate(unequal, example.feeds)

    noise, noise_before = (
        float(np.square(simulate(e.quantized(scheme), e.feeds) - expected).sum()) for e in (example, plain)
    )

    assert noise < 0.7 * noise_before


@pytest.mark.parametrize("name", FIXED)
def test_channels_keep_their_scales_where_they_must(name: str, tmp_path: pathlib.Path) -> None:
    table, _ = table_of(network(FIXED[name], low=np.float32(0.5)), tmp_path)

    assert table.factors == {}
