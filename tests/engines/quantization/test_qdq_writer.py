"""INT8 models: what each target's writer quantizes, how, and what comes out of them."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import numpy as np
import onnx
import pytest

from model_texts import parse
from quantized_networks import (
    NETWORKS,
    QUANTIZED_OPS,
    RESIDUAL,
    Prepare,
    Run,
    compiled_by_openvino,
    constants,
    cosine,
    network,
    positive_variance,
    readers,
    run_in_onnxruntime,
    run_in_openvino,
    simulate,
    zero_points,
)
from trtnode.engines.errors import QuantizationError
from trtnode.engines.quantization import qdq_writer
from trtnode.engines.quantization.qdq_writer import is_quantized, quantize
from trtnode.engines.quantization.schemes import SCHEMES
from trtnode.engines.quantization.table import CalibrationTable

POINTS = 0.3 / 100


@pytest.mark.parametrize("run", [simulate, run_in_onnxruntime, run_in_openvino])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_digits_lose_no_more_than_a_third_of_a_point(
    scheme: str, run: Run, digits: pathlib.Path, digits_test: Mapping[str, np.ndarray], digits_table: CalibrationTable
) -> None:
    model = onnx.load(digits)
    feeds = {"image": digits_test["image"]}
    accuracy = (simulate(model, feeds).argmax(1) == digits_test["label"]).mean()

    quantized = quantize(model, digits_table, SCHEMES[scheme].reduced())

    assert (run(quantized, feeds).argmax(1) == digits_test["label"]).mean() >= accuracy - POINTS


@pytest.mark.parametrize("run", [run_in_openvino, run_in_onnxruntime])
def test_libraries_compute_what_the_simulation_does(
    run: Run, digits: pathlib.Path, digits_test: Mapping[str, np.ndarray], digits_table: CalibrationTable
) -> None:
    quantized = quantize(onnx.load(digits), digits_table, SCHEMES["openvino"].reduced())
    feeds = {"image": digits_test["image"]}

    simulated, computed = simulate(quantized, feeds), run(quantized, feeds)

    # Integer kernels round sums once where the simulation rounds twice, so steps of 1/255 flip here and there.
    assert cosine(simulated, computed) > 0.9995
    assert (simulated.argmax(1) == computed.argmax(1)).mean() > 0.99


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", NETWORKS)
def test_quantized_networks_stay_close_to_float_ones(scheme: str, name: str, prepare: Prepare) -> None:
    example = prepare(network(NETWORKS[name], **positive_variance()))

    quantized = example.quantized(scheme)

    expected = simulate(example.model, example.feeds)
    assert cosine(expected, simulate(quantized, example.feeds)) > 0.995
    assert is_quantized(quantized)
    assert [v.name for v in quantized.graph.output] == [v.name for v in example.model.graph.output]


@pytest.mark.parametrize("name", NETWORKS)
def test_openvino_computes_its_own_shape_right(name: str, prepare: Prepare) -> None:
    example = prepare(network(NETWORKS[name], **positive_variance()))

    quantized = example.quantized("openvino")

    simulated = simulate(quantized, example.feeds)
    assert cosine(simulated, run_in_openvino(quantized, example.feeds)) > 0.999


SATURATING = {
    "pointwise": "net (float[N, 6, 4, 4] x) => (float[N, 8, 4, 4] y) <float[8, 6, 1, 1] w> { y = Conv (x, w) }",
    "odd-channels": "net (float[N, 3, 4, 4] x) => (float[N, 8, 2, 2] y) <float[8, 3, 3, 3] w> { y = Conv (x, w) }",
    "groups": "net (float[N, 6, 4, 4] x) => (float[N, 8, 2, 2] y) <float[8, 3, 3, 3] w> { y = Conv <group=2> (x, w) }",
    "depthwise": "net (float[N, 8, 4, 4] x) => (float[N, 8, 2, 2] y) <float[8, 1, 3, 3] w> {y = Conv <group=8> (x, w)}",
    "matrix": "net (float[N, 9] x) => (float[N, 8] y) <float[9, 8] w> { y = MatMul (x, w) }",
    "transposed": "net (float[N, 4, 3, 3] x) => (float[N, 8, 6, 6] y) <float[4, 8, 2, 2] w> {"
    " y = ConvTranspose <strides = [2, 2]> (x, w) }",
}


@pytest.mark.parametrize("name", SATURATING)
@pytest.mark.parametrize("run", [run_in_openvino, run_in_onnxruntime])
def test_no_sum_overflows_where_inputs_and_weights_are_as_large_as_can_be(
    run: Run, name: str, prepare: Prepare
) -> None:
    example = prepare(network(SATURATING[name]))
    weights = onnx.numpy_helper.to_array(example.model.graph.initializer[0])
    example.model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.abs(weights), "w"))
    (x,) = example.feeds
    feeds = {x: np.full_like(example.feeds[x], example.table.ranges[x][1])}

    quantized = example.quantized("openvino")

    np.testing.assert_allclose(run(quantized, feeds), simulate(quantized, feeds), rtol=0.01)


def test_every_convolution_reads_eight_bits_and_no_float_weight_stays(prepare: Prepare) -> None:
    for scheme in SCHEMES:
        quantized = prepare(network(RESIDUAL)).quantized(scheme)

        assert all(row[:2] == ["DequantizeLinear"] * 2 for row in readers(quantized, "Conv"))
        weights = [a for a in constants(quantized).values() if a.ndim > 1]
        assert {a.dtype for a in weights} == {np.dtype(np.int8)}
        assert all(64 <= np.abs(a.astype(int)).max() <= 127 for a in weights)


def test_weights_have_a_scale_for_each_output_channel(prepare: Prepare) -> None:
    quantized = prepare(network(NETWORKS["fully-connected"])).quantized("tensorrt")

    values = constants(quantized)
    scales = {
        values[node.input[0]].shape: (values[node.input[1]].shape, node.attribute[0].i)
        for node in quantized.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in values
    }
    assert scales == {(8, 6): ((6,), 1), (5, 6): ((5,), 0)}


def test_tensorrt_gets_zero_points_of_zero_and_float_biases(prepare: Prepare) -> None:
    quantized = prepare(network(RESIDUAL)).quantized("tensorrt")

    assert {a.dtype for a in zero_points(quantized)} == {np.dtype(np.int8)}
    assert not any(a.any() for a in zero_points(quantized))
    assert constants(quantized)["c1_corrected_bias"].dtype == np.float32
    assert all(a.dtype != np.int32 for a in constants(quantized).values())


def test_openvino_keeps_a_chain_of_convolutions_in_eight_bits(
    digits: pathlib.Path, digits_table: CalibrationTable
) -> None:
    quantized = quantize(onnx.load(digits), digits_table, SCHEMES["openvino"].reduced())

    infos = [op.get_rt_info() for op in compiled_by_openvino(quantized).get_runtime_model().get_ops()]

    precisions = {(info["layerType"].value, info["runtimePrecision"].value) for info in infos}
    assert {precision for kind, precision in precisions if kind in ("Convolution", "FullyConnected", "Pooling")} == {
        "u8"
    }


def test_a_channel_of_zeros_leaves_its_bias_right(prepare: Prepare) -> None:
    weights = np.random.default_rng(1).standard_normal((4, 4, 3, 3)).astype(np.float32)
    weights[1] = 0
    example = prepare(network(RESIDUAL, w1=weights))

    quantized = example.quantized("openvino")

    assert cosine(simulate(example.model, example.feeds), simulate(quantized, example.feeds)) > 0.995


def test_weights_that_two_nodes_share_are_stored_once(prepare: Prepare) -> None:
    text = """net (float[N, 4] x) => (float[N, 4] y) <float[4, 4] w> { h = MatMul (x, w)  y = MatMul (h, w) }"""

    quantized = prepare(network(text)).quantized("openvino")

    assert sum(a.dtype == np.int8 and a.ndim == 2 for a in constants(quantized).values()) == 1


def test_batch_normalization_is_folded_into_weights(prepare: Prepare) -> None:
    quantized = prepare(network(NETWORKS["normalized"], **positive_variance())).quantized("tensorrt")

    assert [n.op_type for n in quantized.graph.node if n.op_type not in QUANTIZED_OPS] == ["Conv"]


def test_an_old_opset_is_raised(prepare: Prepare) -> None:
    quantized = prepare(network(RESIDUAL, opset=9)).quantized("openvino")

    assert quantized.opset_import[0].version == 13


def test_a_model_whose_opset_can_not_be_raised_is_refused(prepare: Prepare) -> None:
    table = prepare(network(RESIDUAL)).table
    old = parse("g (float[4] x) => (float[4] y) {y = Foo (x)}", opset=9, ir_version=4)

    with pytest.raises(QuantizationError, match=r"can't be raised from opset 9 to 13.*Export it at opset 13 or newer"):
        quantize(old, table, SCHEMES["openvino"])


def test_a_quantized_model_is_known_from_a_float_one(prepare: Prepare) -> None:
    example = prepare(network(RESIDUAL))

    assert is_quantized(example.quantized("tensorrt"))
    assert not is_quantized(example.model)


def test_weights_are_smaller_on_processors_where_eight_bits_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qdq_writer, "usable_flags", lambda: frozenset({"fpu", "sse2", "avx512f"}))

    short = {backend: qdq_writer.scheme_for(backend).short_sums for backend in SCHEMES}

    assert short == {"tensorrt": False, "tensorrt-rtx": False, "typed-onnx": False, "openvino": True}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_node_mixes_types(scheme: str, prepare: Prepare) -> None:
    for text in NETWORKS.values():
        quantized = prepare(network(text, **positive_variance())).quantized(scheme, keep={"Conv:c2", "Conv:y"})

        inferred = onnx.shape_inference.infer_shapes(quantized, strict_mode=True, data_prop=True)
        types = {v.name: v.type.tensor_type.elem_type for v in (*inferred.graph.value_info, *inferred.graph.input)}
        types.update({t.name: t.data_type for t in inferred.graph.initializer if t.data_type != onnx.TensorProto.INT64})
        for node in inferred.graph.node:
            if node.op_type not in QUANTIZED_OPS:
                assert {types.get(name, onnx.TensorProto.FLOAT) for name in node.input} <= {onnx.TensorProto.FLOAT}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("taken", ["w_int8_step", "w_int8", "x_QuantizeLinear", "w_DequantizeLinear"])
def test_one_weight_along_two_axes_and_names_that_the_model_has_are_no_obstacle(scheme: str, taken: str) -> None:
    """An encoder and its decoder share a weight, and the model has a name that would be written."""
    model = network(
        f"g (float[2,16] x, float[16] {taken}) => (float[2,16] y) <float[32,16] w> {{"
        f" h = Gemm<transB = 1>(x, w) r = Relu(h) d = Gemm(r, w) y = Add(d, {taken}) }}"
    )
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((2, 16)).astype(np.float32), taken: np.ones(16, np.float32)}
    ranges = dict.fromkeys(("x", "h", "r", "d", "y", taken), (-24.0, 24.0))
    table = CalibrationTable(ranges=ranges, model_sha256="", data_sha256="", samples=1, method="", versions={})

    quantized = quantize(model, table, SCHEMES[scheme].reduced())

    onnx.checker.check_model(quantized, full_check=True)
    assert "QuantizeLinear" in {node.op_type for node in quantized.graph.node}
    assert cosine(simulate(quantized, feeds), simulate(model, feeds)) > 0.98
