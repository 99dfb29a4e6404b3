"""INT8 models: what each target's writer quantizes, how, and what comes out of them."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from engines import quantization
from engines.calibration import calibrate
from engines.calibration_data import CalibrationDataset
from engines.calibration_table import CalibrationTable
from engines.errors import QuantizationError
from engines.onnxruntime_backend import NativeSession
from engines.openvino_backend import ov
from engines.quantization import SCHEMES, explain_quantization, is_quantized, quantize

POINTS = 0.3 / 100
QUANTIZED_OPS = ("QuantizeLinear", "DequantizeLinear")

RESIDUAL = """
net (float[N, 4, 8, 8] x) => (float[N, 4, 8, 8] y)
<float[4, 4, 3, 3] w1, float[4] b1, float[4, 4, 3, 3] w2> {
  c1 = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
  r1 = Relu (c1)
  c2 = Conv <pads = [1, 1, 1, 1]> (r1, w2)
  sum = Add (c2, r1)
  y = Relu (sum)
}
"""


def network(text: str, *, opset: int = 17, **weights: np.ndarray) -> onnx.ModelProto:
    """A graph in ONNX's own language; the values it declares behind its inputs and outputs are weights, maybe given."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')
    rng = np.random.default_rng(5)
    for value in model.graph.value_info:
        values = weights.get(value.name, rng.standard_normal(dims(value)).astype(np.float32))
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, value.name))
    del model.graph.value_info[:]
    onnx.checker.check_model(model, full_check=True)
    return model


@dataclasses.dataclass
class Example:
    """A network with its ranges on some samples, and other samples to try it on."""

    model: onnx.ModelProto
    table: CalibrationTable
    feeds: dict[str, np.ndarray]

    def quantized(self, scheme: str, **options: Any) -> onnx.ModelProto:
        model = quantize(self.model, self.table, SCHEMES[scheme].reduced(), **options)
        onnx.checker.check_model(model, full_check=True)
        return model

    def kept(self, scheme: str, **options: Any) -> dict[str, str]:
        return explain_quantization(self.model, self.table, SCHEMES[scheme], **options).kept


Prepare = Callable[..., Example]


@pytest.fixture
def prepare(tmp_path: pathlib.Path) -> Prepare:
    def calibrated(model: onnx.ModelProto, **shapes: tuple[int, ...]) -> Example:
        rng = np.random.default_rng(6)
        shapes = shapes or {v.name: (2, *dims(v)[1:]) for v in model.graph.input}
        samples = {name: rng.standard_normal((8, *shape[1:])).astype(np.float32) for name, shape in shapes.items()}
        np.savez(tmp_path / "samples.npz", **samples)
        onnx.save(model, tmp_path / "model.onnx")
        table = calibrate(tmp_path / "model.onnx", CalibrationDataset(tmp_path / "samples.npz"))
        return Example(model, table, {name: values[: shapes[name][0]] for name, values in samples.items()})

    return calibrated


@pytest.fixture(scope="module")
def digits_table() -> CalibrationTable:
    folder = pathlib.Path(__file__).parents[2] / "examples" / "digits"
    return calibrate(folder / "digits.onnx", CalibrationDataset(folder / "calibration.npz"))


def dims(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(d.dim_value for d in value.type.tensor_type.shape.dim)


def simulate(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    """Every QuantizeLinear and DequantizeLinear as written, everything between in float."""
    return NativeSession(model, optimize=False).run(feeds)[0]


def run_in_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    return NativeSession(model).run(feeds)[0]


def run_in_openvino(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.array(compiled_by_openvino(model)(list(feeds.values()))[0])


def compiled_by_openvino(model: onnx.ModelProto) -> ov.CompiledModel:
    source = ov.Core().read_model(model.SerializeToString())
    return ov.Core().compile_model(source, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.vdot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))


def readers(model: onnx.ModelProto, op_type: str) -> list[list[str]]:
    """For each node of a type, the operators that make its inputs; empty where nothing does."""
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    return [[makers.get(i, "") for i in node.input] for node in model.graph.node if node.op_type == op_type]


def constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}


def zero_points(model: onnx.ModelProto) -> list[np.ndarray]:
    values = constants(model)
    return [values[node.input[2]] for node in model.graph.node if node.op_type in QUANTIZED_OPS]


@pytest.mark.parametrize("run", [simulate, run_in_onnxruntime, run_in_openvino])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_digits_lose_no_more_than_a_third_of_a_point(scheme, run, digits, digits_test, digits_table) -> None:
    model = onnx.load(digits)
    feeds = {"image": digits_test["image"]}
    accuracy = (simulate(model, feeds).argmax(1) == digits_test["label"]).mean()

    quantized = quantize(model, digits_table, SCHEMES[scheme].reduced())

    assert (run(quantized, feeds).argmax(1) == digits_test["label"]).mean() >= accuracy - POINTS


@pytest.mark.parametrize(
    ("scheme", "run"),
    [("onnxruntime", run_in_onnxruntime), ("openvino", run_in_openvino), ("openvino", run_in_onnxruntime)],
)
def test_libraries_compute_what_the_simulation_does(scheme, run, digits, digits_test, digits_table) -> None:
    quantized = quantize(onnx.load(digits), digits_table, SCHEMES[scheme].reduced())
    feeds = {"image": digits_test["image"]}

    simulated, computed = simulate(quantized, feeds), run(quantized, feeds)

    # Integer kernels round sums once where the simulation rounds twice, so steps of 1/255 flip here and there.
    assert cosine(simulated, computed) > 0.9995
    assert (simulated.argmax(1) == computed.argmax(1)).mean() > 0.99


NETWORKS = {
    "residual": RESIDUAL,
    "depthwise": """net (float[N, 4, 6, 6] x) => (float[N, 4, 6, 6] y) <float[4, 1, 3, 3] w> {
        c = Conv <group = 4, pads = [1, 1, 1, 1]> (x, w)  y = Clip (c) }""",
    "transposed": """net (float[N, 3, 4, 4] x) => (float[N, 2, 8, 8] y) <float[3, 2, 2, 2] w, float[2] b> {
        y = ConvTranspose <strides = [2, 2]> (x, w, b) }""",
    "fully-connected": """net (float[N, 8] x) => (float[N, 5] y) <float[8, 6] w1, float[6] b1, float[5, 6] w2> {
        h = Gemm (x, w1, b1)  r = Relu (h)  y = Gemm <transB = 1, alpha = 0.5> (r, w2) }""",
    "attention": """net (float[2, 3, 8] x) => (float[2, 3, 8] y) <float[8, 8] wq, float[8, 8] wk> {
        q = MatMul (x, wq)  k = MatMul (x, wk)  t = Transpose <perm = [0, 2, 1]> (k)
        s = MatMul (q, t)  p = Softmax (s)  y = MatMul (p, x) }""",
    "pools": """net (float[N, 3, 8, 8] x) => (float[N, 4] y) <float[4, 3, 3, 3] w1, float[4, 4] w2> {
        c = Conv (x, w1)  r = Relu (c)  m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
        g = GlobalAveragePool (m)  f = Flatten (g)  y = MatMul (f, w2) }""",
    "branches": """net (float[N, 4, 6, 6] x) => (float[N, 2, 6, 6] y)
        <float[4, 4, 1, 1] w1, float[4, 4, 1, 1] w2, float[2, 8, 1, 1] w3> {
        a = Conv (x, w1)  b = Conv (x, w2)  tenfold = Constant <value_float = 10.0> ()
        big = Mul (b, tenfold)  c = Concat <axis = 1> (a, big)  y = Conv (c, w3) }""",
    "normalized": """net (float[N, 3, 6, 6] x) => (float[N, 4, 6, 6] y)
        <float[4, 3, 1, 1] w, float[4] scale, float[4] shift, float[4] mean, float[4] variance> {
        c = Conv (x, w)  y = BatchNormalization (c, scale, shift, mean, variance) }""",
    "padded-average": """net (float[N, 4, 6, 6] x) => (float[N, 4, 6, 6] y)
        <float[4, 4, 1, 1] w1, float[4, 4, 1, 1] w2> {
        c = Conv (x, w1)
        p = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1> (c)
        y = Conv (p, w2) }""",
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", NETWORKS)
def test_quantized_networks_stay_close_to_float_ones(scheme, name, prepare) -> None:
    example = prepare(network(NETWORKS[name], **positive_variance()))

    quantized = example.quantized(scheme)

    expected = simulate(example.model, example.feeds)
    assert cosine(expected, simulate(quantized, example.feeds)) > 0.995
    assert is_quantized(quantized) or (scheme, name) == ("onnxruntime", "transposed")
    assert [v.name for v in quantized.graph.output] == [v.name for v in example.model.graph.output]


@pytest.mark.parametrize("name", NETWORKS)
def test_openvino_computes_its_own_shape_right(name, prepare) -> None:
    example = prepare(network(NETWORKS[name], **positive_variance()))

    quantized = example.quantized("openvino")

    simulated = simulate(quantized, example.feeds)
    assert cosine(simulated, run_in_openvino(quantized, example.feeds)) > 0.999


def positive_variance() -> dict[str, np.ndarray]:
    return {"variance": np.float32([0.5, 1, 2, 3])}


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
@pytest.mark.parametrize(
    ("scheme", "run"),
    [("openvino", run_in_openvino), ("onnxruntime", run_in_onnxruntime)],
    ids=["openvino", "onnxruntime"],
)
def test_no_sum_overflows_where_inputs_and_weights_are_as_large_as_can_be(scheme, run, name, prepare) -> None:
    example = prepare(network(SATURATING[name]))
    weights = onnx.numpy_helper.to_array(example.model.graph.initializer[0])
    example.model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.abs(weights), "w"))
    (x,) = example.feeds
    feeds = {x: np.full_like(example.feeds[x], example.table.ranges[x][1])}

    quantized = example.quantized(scheme)

    np.testing.assert_allclose(run(quantized, feeds), simulate(quantized, feeds), rtol=0.01)


def test_every_convolution_reads_eight_bits_and_no_float_weight_stays(prepare) -> None:
    for scheme in SCHEMES:
        quantized = prepare(network(RESIDUAL)).quantized(scheme)

        assert all(row[:2] == ["DequantizeLinear"] * 2 for row in readers(quantized, "Conv"))
        weights = [a for a in constants(quantized).values() if a.ndim > 1]
        assert {a.dtype for a in weights} == {np.dtype(np.int8)}
        assert all(64 <= np.abs(a.astype(int)).max() <= 127 for a in weights)


def test_weights_have_a_scale_for_each_output_channel(prepare) -> None:
    quantized = prepare(network(NETWORKS["fully-connected"])).quantized("tensorrt")

    values = constants(quantized)
    scales = {
        values[node.input[0]].shape: (values[node.input[1]].shape, node.attribute[0].i)
        for node in quantized.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in values
    }
    assert scales == {(8, 6): ((6,), 1), (5, 6): ((5,), 0)}


def test_tensorrt_gets_zero_points_of_zero_and_float_biases(prepare) -> None:
    quantized = prepare(network(RESIDUAL)).quantized("tensorrt")

    assert {a.dtype for a in zero_points(quantized)} == {np.dtype(np.int8)}
    assert not any(a.any() for a in zero_points(quantized))
    assert constants(quantized)["c1_corrected_bias"].dtype == np.float32
    assert all(a.dtype != np.int32 for a in constants(quantized).values())


def test_tensorrt_gets_an_add_quantized_on_its_residual_input_only(prepare) -> None:
    quantized = prepare(network(RESIDUAL)).quantized("tensorrt")

    assert readers(quantized, "Add") == [["Conv", "DequantizeLinear"]]
    assert readers(quantized, "Relu") == [["Conv"], ["Add"]]


def test_tensorrt_gets_no_add_quantized_that_no_convolution_feeds(prepare) -> None:
    model = network("net (float[N, 4] x) => (float[N, 4] y) <float[4, 4] w> { y0 = Add (x, x)  y = MatMul (y0, w) }")

    assert readers(prepare(model).quantized("tensorrt"), "Add") == [["", ""]]


def test_openvino_gets_unsigned_activations_and_no_average_pool_of_eight_bits(prepare) -> None:
    quantized = prepare(network(NETWORKS["padded-average"])).quantized("openvino")

    kinds = {a.dtype for a in zero_points(quantized) if not a.ndim}
    assert kinds == {np.dtype(np.uint8)}
    assert any(a > 0 for a in zero_points(quantized) if not a.ndim)
    assert readers(quantized, "AveragePool") == [["Conv"]]


def test_openvino_keeps_a_chain_of_convolutions_in_eight_bits(digits, digits_table) -> None:
    quantized = quantize(onnx.load(digits), digits_table, SCHEMES["openvino"].reduced())

    infos = [op.get_rt_info() for op in compiled_by_openvino(quantized).get_runtime_model().get_ops()]

    precisions = {(info["layerType"].value, info["runtimePrecision"].value) for info in infos}
    assert {precision for kind, precision in precisions if kind in ("Convolution", "FullyConnected", "Pooling")} == {
        "u8"
    }


def test_what_is_concatenated_has_one_scale(prepare) -> None:
    text = """net (float[N, 4, 6, 6] x) => (float[N, 2, 6, 6] y)
        <float[4, 4, 1, 1] w1, float[4, 4, 1, 1] w2, float[2, 8, 1, 1] w3> {
        a = Conv (x, w1)  b = Conv (x, w2)  c = Concat <axis = 1> (a, b)  y = Conv (c, w3) }"""
    example = prepare(network(text, w2=30 * np.ones((4, 4, 1, 1), np.float32)))

    for scheme in ("openvino", "onnxruntime"):
        quantized = example.quantized(scheme)

        values = constants(quantized)
        steps = {values[n.input[1]].item() for n in quantized.graph.node if n.input[0] in "abc"}
        assert readers(quantized, "Concat") == [["DequantizeLinear"] * 2]
        assert len(steps) == 1
        simulated = simulate(quantized, example.feeds)
        assert cosine(simulated, run_in_openvino(quantized, example.feeds)) > 0.999


def test_onnxruntime_gets_results_and_biases_that_it_can_fuse(prepare, tmp_path) -> None:
    example = prepare(network(RESIDUAL))

    quantized = example.quantized("onnxruntime")

    assert {a.dtype for a in zero_points(quantized)} >= {np.dtype(np.uint8), np.dtype(np.int32)}
    fused = [node.op_type for node in optimized_by_onnxruntime(quantized, tmp_path / "fused.onnx").graph.node]
    assert (fused.count("QLinearConv"), fused.count("QLinearAdd"), fused.count("Conv")) == (2, 1, 0)


def test_a_bias_too_large_for_32_bits_stays_float(prepare) -> None:
    example = prepare(network(RESIDUAL, b1=np.full(4, 1e4, np.float32), w1=np.full((4, 4, 3, 3), 1e-3, np.float32)))

    assert constants(example.quantized("onnxruntime"))["c1_corrected_bias"].dtype == np.float32


def test_a_channel_of_zeros_leaves_its_bias_right(prepare) -> None:
    weights = np.random.default_rng(1).standard_normal((4, 4, 3, 3)).astype(np.float32)
    weights[1] = 0
    example = prepare(network(RESIDUAL, w1=weights))

    quantized = example.quantized("onnxruntime")

    assert cosine(simulate(example.model, example.feeds), simulate(quantized, example.feeds)) > 0.995


def test_weights_that_two_nodes_share_are_stored_once(prepare) -> None:
    text = """net (float[N, 4] x) => (float[N, 4] y) <float[4, 4] w> { h = MatMul (x, w)  y = MatMul (h, w) }"""

    quantized = prepare(network(text)).quantized("openvino")

    assert sum(a.dtype == np.int8 and a.ndim == 2 for a in constants(quantized).values()) == 1


def test_batch_normalization_is_folded_into_weights(prepare) -> None:
    quantized = prepare(network(NETWORKS["normalized"], **positive_variance())).quantized("tensorrt")

    assert [n.op_type for n in quantized.graph.node if n.op_type not in QUANTIZED_OPS] == ["Conv"]


def test_an_old_opset_is_raised(prepare) -> None:
    quantized = prepare(network(RESIDUAL, opset=9)).quantized("openvino")

    assert quantized.opset_import[0].version == 13


def test_a_model_whose_opset_can_not_be_raised_is_refused(prepare) -> None:
    table = prepare(network(RESIDUAL)).table
    old = onnx.parser.parse_model('<ir_version: 4, opset_import: ["": 9]> g (float[4] x) => (float[4] y) {y = Foo (x)}')

    with pytest.raises(QuantizationError, match=r"can't be raised from opset 9 to 13.*Export it at opset 13 or newer"):
        quantize(old, table, SCHEMES["openvino"])


def test_the_model_that_is_quantized_stays_as_it_is(prepare) -> None:
    example = prepare(network(RESIDUAL))
    before = example.model.SerializeToString(deterministic=True)

    example.quantized("onnxruntime")

    assert example.model.SerializeToString(deterministic=True) == before


def test_a_model_that_is_quantized_already_passes_through(prepare) -> None:
    example = prepare(network(RESIDUAL))
    trained = example.quantized("tensorrt")

    assert is_quantized(trained)
    assert not is_quantized(example.model)
    assert quantize(trained, example.table, SCHEMES["openvino"]) is trained


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nodes_stay_float_by_request(scheme, prepare) -> None:
    example = prepare(network(RESIDUAL))

    quantized = example.quantized(scheme, keep={"Conv:c2"})

    assert readers(quantized, "Conv")[1][1] == ""
    assert example.kept(scheme, keep={"Conv:c2"}) == {"Conv:c2": "it was asked to stay float"}


def test_nodes_stay_float_where_a_range_was_never_seen(prepare) -> None:
    example = prepare(network(RESIDUAL))
    ranges = {name: pair for name, pair in example.table.ranges.items() if name != "r1"}
    example.table = dataclasses.replace(example.table, ranges=ranges)

    assert example.kept("openvino") == {"Conv:c2": "calibration saw no finite values of 'r1'"}
    assert readers(example.quantized("openvino"), "Conv")[1] == ["Relu", ""]


def test_nodes_stay_float_where_a_range_has_no_width(prepare) -> None:
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
def test_nodes_stay_float_that_can_not_be_quantized(text, told) -> None:
    table = CalibrationTable(ranges={}, model_sha256="", data_sha256="", samples=0, method="", versions={})

    kept = explain_quantization(network(text), table, SCHEMES["openvino"]).kept

    assert list(kept.values()) == [told]


def test_nodes_with_weights_that_are_no_numbers_stay_float(prepare) -> None:
    weights = np.full((4, 4, 3, 3), np.nan, np.float32)
    example = prepare(network(RESIDUAL))
    example.model = network(RESIDUAL, w2=weights)

    assert example.kept("openvino") == {"Conv:c2": "its weights 'w2' hold NaN or infinity"}


def test_weights_are_smaller_on_processors_where_eight_bits_overflow(monkeypatch) -> None:
    monkeypatch.setattr(quantization, "processor_flags", lambda: frozenset({"fpu", "sse2", "avx512f"}))

    short = {backend: quantization.scheme_for(backend).short_sums for backend in SCHEMES}

    assert short == {"tensorrt": False, "openvino": True, "onnxruntime": True}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_node_mixes_types(scheme, prepare) -> None:
    for text in NETWORKS.values():
        quantized = prepare(network(text, **positive_variance())).quantized(scheme, keep={"Conv:c2", "Conv:y"})

        inferred = onnx.shape_inference.infer_shapes(quantized, strict_mode=True, data_prop=True)
        types = {v.name: v.type.tensor_type.elem_type for v in (*inferred.graph.value_info, *inferred.graph.input)}
        types.update({t.name: t.data_type for t in inferred.graph.initializer if t.data_type != onnx.TensorProto.INT64})
        for node in inferred.graph.node:
            if node.op_type not in QUANTIZED_OPS:
                assert {types.get(name, onnx.TensorProto.FLOAT) for name in node.input} <= {onnx.TensorProto.FLOAT}


def optimized_by_onnxruntime(model: onnx.ModelProto, path: pathlib.Path) -> onnx.ModelProto:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    return onnx.load(path)
