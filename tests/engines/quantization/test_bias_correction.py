"""Biases lose what rounded weights add to results on average."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np
import onnx
import pytest

from model_texts import parse
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.quantization.bias_correction import ChannelMeans, expected_shift
from trtnode.engines.quantization.calibrator import calibrate
from trtnode.engines.quantization.dataset import CalibrationDataset
from trtnode.engines.quantization.qdq_writer import quantize
from trtnode.engines.quantization.schemes import SCHEMES
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import load_model
from workshop import Workshop

NETWORKS = {
    "convolution": """net (float[N, 6, 5, 5] x) => (float[N, 4, 5, 5] y) <float[4, 6, 1, 1] w, float[4] b> {
        y = Conv (x, w, b) }""",
    "groups": """net (float[N, 6, 5, 5] x) => (float[N, 4, 3, 3] y) <float[4, 3, 3, 3] w, float[4] b> {
        y = Conv <group = 2> (x, w, b) }""",
    "matrix": """net (float[N, 6] x) => (float[N, 4] y) <float[6, 4] w, float[4] b> { y = Gemm (x, w, b) }""",
    "transposed-matrix": """net (float[N, 6] x) => (float[N, 4] y) <float[4, 6] w, float[4] b> {
        y = Gemm <transB = 1> (x, w, b) }""",
}


def network(text: str) -> onnx.ModelProto:
    model = parse(text, opset=17, ir_version=8)
    rng = np.random.default_rng(11)
    for value in model.graph.value_info:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        weights = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, value.name))
    del model.graph.value_info[:]
    return model


def samples(model: onnx.ModelProto, folder: pathlib.Path) -> np.ndarray:
    """Positive values, as behind a Relu, written for calibration."""
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(12).gamma(2, 1, (512, *shape[1:])).astype(np.float32)
    np.savez(folder / "samples.npz", x=x)
    return x


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_results_keep_their_means(name: str, scheme: str, workshop: Workshop, tmp_path: pathlib.Path) -> None:
    model = network(NETWORKS[name])
    x = samples(model, tmp_path)
    table = calibrate(workshop.write(model), CalibrationDataset(tmp_path / "samples.npz"))

    def shift(means: dict[str, tuple[float, ...]]) -> float:
        quantized = quantize(model, dataclasses.replace(table, means=means), SCHEMES[scheme].reduced())
        exact, actual = (NativeSession(m, optimize=False).run({"x": x})[0] for m in (model, quantized))
        axes = tuple(axis for axis in range(exact.ndim) if axis != 1)
        return float(np.abs((actual - exact).mean(axis=axes)).max())

    assert shift(dict(table.means)) < 0.5 * shift({})


def test_means_are_of_channels_over_all_batches(workshop: Workshop) -> None:
    means = ChannelMeans(Graph.of(load_model(workshop.write(network(NETWORKS["groups"])))))
    first, second = np.zeros((1, 6, 5, 5), np.float32), np.ones((3, 6, 5, 5), np.float32)
    second[:, 2] = 5

    means.observe({"x": first, "unread": first})
    means.observe({"x": second})

    assert means.estimates() == {"x": (0.75, 0.75, 3.75, 0.75, 0.75, 0.75)}


def test_what_is_not_finite_has_no_mean(workshop: Workshop) -> None:
    means = ChannelMeans(Graph.of(load_model(workshop.write(network(NETWORKS["matrix"])))))

    means.observe({"x": np.full((2, 6), np.inf, np.float32)})

    assert means.estimates() == {}


def test_errors_of_a_group_count_with_the_means_of_its_channels() -> None:
    errors = np.ones((4, 9, 2), np.float32)
    errors[1] = 0

    np.testing.assert_allclose(expected_shift(errors, np.array([1.0, 2.0, 10.0, 20.0])), [27, 0, 270, 270])


@pytest.mark.parametrize("means", [(), (1.0, 2.0)])
def test_means_that_do_not_fit_correct_nothing(
    means: tuple[float, ...], workshop: Workshop, tmp_path: pathlib.Path
) -> None:
    model = network(NETWORKS["convolution"])
    samples(model, tmp_path)
    table = calibrate(workshop.write(model), CalibrationDataset(tmp_path / "samples.npz"), samples=4)

    quantized = quantize(model, dataclasses.replace(table, means={"x": means}), SCHEMES["openvino"])

    assert "b" in {tensor.name for tensor in quantized.graph.initializer}
