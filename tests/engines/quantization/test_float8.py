"""FP8 models: the form of INT8 models, with 8-bit floats from the same calibration."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx
import pytest

from quantized_networks import NETWORKS, RESIDUAL, Prepare, cosine, network, positive_variance, readers, simulate
from trtnode.engines.quantization.qdq_writer import quantize
from trtnode.engines.quantization.schemes import FLOAT8, INT8, SCHEMES
from trtnode.engines.quantization.table import CalibrationTable

SCHEME = SCHEMES["tensorrt-rtx"].in_float8()


def constants_of(model: onnx.ModelProto, part: str) -> list[onnx.TensorProto]:
    return [tensor for tensor in model.graph.initializer if part in tensor.name]


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_in_float8_stay_close_to_float_ones(name: str, prepare: Prepare) -> None:
    example = prepare(network(NETWORKS[name], **positive_variance()))

    quantized = quantize(example.model, example.table, SCHEME)

    onnx.checker.check_model(quantized, full_check=True)
    assert cosine(simulate(example.model, example.feeds), simulate(quantized, example.feeds)) > 0.995
    assert {t.data_type for t in constants_of(quantized, "fp8_zero_point")} == {onnx.TensorProto.FLOAT8E4M3FN}


def test_digits_lose_no_more_than_a_third_of_a_point(
    digits: pathlib.Path, digits_test: Mapping[str, np.ndarray], digits_table: CalibrationTable
) -> None:
    model, feeds = onnx.load(digits), {"image": digits_test["image"]}
    accuracy = (simulate(model, feeds).argmax(1) == digits_test["label"]).mean()

    quantized = quantize(model, digits_table, SCHEME)

    assert (simulate(quantized, feeds).argmax(1) == digits_test["label"]).mean() >= accuracy - 0.003


def test_one_table_gives_both_forms_the_same_places_and_ranges(prepare: Prepare) -> None:
    example = prepare(network(RESIDUAL))

    eight_bits = quantize(example.model, example.table, SCHEMES["tensorrt-rtx"])
    float8 = quantize(example.model, example.table, SCHEME)

    assert [n.op_type for n in float8.graph.node] == [n.op_type for n in eight_bits.graph.node]
    assert readers(float8, "Add") == readers(eight_bits, "Add")
    (step,), (fine,) = (constants_of(m, f"x_{n}_step") for m, n in ((float8, "fp8"), (eight_bits, "int8")))
    largest = [float(onnx.numpy_helper.to_array(t)) * n for t, n in ((step, FLOAT8.largest), (fine, INT8.largest))]
    assert largest[0] == pytest.approx(largest[1]) == pytest.approx(max(map(abs, example.table.ranges["x"])))


def test_opset_is_raised_to_the_first_that_has_8_bit_floats(prepare: Prepare) -> None:
    example = prepare(network(RESIDUAL, opset=13))

    quantized = quantize(example.model, example.table, SCHEME)

    assert (quantized.opset_import[0].version, quantized.ir_version) == (19, 9)


def test_values_beyond_the_range_become_the_last_number_not_nan() -> None:
    stored = FLOAT8.rounded(np.float32([-1e6, -448, 0.3, 1e6]))

    assert stored.dtype == ml_dtypes.float8_e4m3fn
    assert stored.astype(np.float32).tolist() == [-448, -448, 0.3125, 448]
