"""Weights in int4: which are stored, in what blocks, and what they cost in accuracy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from model_texts import parse
from quantized_networks import cosine, network, simulate
from trtnode.engines.quantization.weight_blocks import blocks_of, store_in_blocks

DENSE = "g (float[2, {k}] x) => (float[2, 6] y) <float[{k}, 6] w> {{ [mul] y = MatMul (x, w) }}"
FORMS = {
    "matmul": "g (float[2, 64] x) => (float[2, 6] y) <float[64, 6] w> { y = MatMul (x, w) }",
    "gemm": "g (float[2, 64] x) => (float[2, 6] y) <float[64, 6] w, float[6] b> { y = Gemm (x, w, b) }",
    "transposed": "g (float[2, 64] x) => (float[2, 6] y) <float[6, 64] w> { y = Gemm <transB = 1> (x, w) }",
    "stacked": "g (float[2, 3, 64] x) => (float[2, 3, 6] y) <float[64, 6] w> { y = MatMul (x, w) }",
}
STAYING = {
    "odd-rows": DENSE.format(k=40),
    "three-dimensions": "g (float[2, 3, 32] x) => (float[2, 3, 6] y) <float[2, 32, 6] w> { y = MatMul (x, w) }",
    "convolution": "g (float[1, 32, 2, 2] x) => (float[1, 6, 2, 2] y) <float[6, 32, 1, 1] w> { y = Conv (x, w) }",
    "no-constant": "g (float[2, 32] x, float[32, 6] z) => (float[2, 6] y) { y = MatMul (x, z) }",
    "left": "g (float[32, 2] x) => (float[6, 2] y) <float[6, 32] w> { y = MatMul (w, x) }",
}


def expanding(model: onnx.ModelProto) -> list[tuple[int, int]]:
    """Axis and block size of each DequantizeLinear."""
    found = [{a.name: a.i for a in n.attribute} for n in model.graph.node if n.op_type == "DequantizeLinear"]
    return [(one["axis"], one["block_size"]) for one in found]


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    (given,) = model.graph.input
    shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
    return {given.name: np.random.default_rng(7).normal(size=shape).astype(np.float32)}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("opset", [13, 21])
def test_matrix_is_stored_in_four_bits_and_computes_nearly_the_same(form: str, opset: int) -> None:
    model = network(FORMS[form], opset=opset)

    stored = store_in_blocks(model)

    onnx.checker.check_model(stored, full_check=True)
    assert expanding(stored) == [(int(form == "transposed"), 64)]
    assert onnx.TensorProto.INT4 in {t.data_type for t in stored.graph.initializer}
    assert "w" not in {t.name for t in stored.graph.initializer}
    assert 0.985 < cosine(simulate(model, feeds_of(model)), simulate(stored, feeds_of(model))) < 1 - 1e-6


@pytest.mark.parametrize("form", STAYING)
def test_what_can_not_be_stored_in_blocks_stays(form: str) -> None:
    model = network(STAYING[form])

    assert store_in_blocks(model) is model


def test_weight_that_is_not_finite_stays() -> None:
    model = network(FORMS["matmul"], w=np.full((64, 6), np.inf, np.float32))

    assert store_in_blocks(model) is model


def test_kept_node_keeps_its_weight() -> None:
    model = network(DENSE.format(k=64))

    assert store_in_blocks(model, keep={"mul"}) is model


@pytest.mark.parametrize(("rows", "size"), [(256, 128), (192, 64), (96, 32), (48, 16)])
def test_largest_block_that_divides_the_rows_is_taken(rows: int, size: int) -> None:
    assert expanding(store_in_blocks(network(DENSE.format(k=rows)))) == [(0, size)]


def test_weight_of_two_nodes_is_stored_once() -> None:
    twice = "g (float[2, 32] x) => (float[2, 32] y) <float[32, 32] w> { a = MatMul (x, w) y = MatMul (a, w) }"

    assert len(expanding(store_in_blocks(network(twice)))) == 1


def test_float16_weights_get_float16_scales() -> None:
    weights = np.random.default_rng(3).normal(size=(32, 6)).astype(np.float16)
    text = "g (float16[2, 32] x) => (float16[2, 6] y) { y = MatMul (x, w) }"
    model = parse(text, w=weights)

    stored = store_in_blocks(model)

    onnx.checker.check_model(stored, full_check=True)
    assert {t.data_type for t in stored.graph.initializer} == {onnx.TensorProto.INT4, onnx.TensorProto.FLOAT16}


def test_each_block_has_a_scale_of_its_own_and_zeros_stay_zeros() -> None:
    weight = np.zeros((32, 2), np.float32)
    weight[:16, 0], weight[16:, 0] = 7, -70

    integers, scales = blocks_of(weight, 0, 16)

    np.testing.assert_allclose(scales[:, 0], [1, 10])
    np.testing.assert_array_equal(integers.astype(int)[:, 0], [7] * 16 + [-7] * 16)
    assert not integers[:, 1].astype(int).any()
    assert (scales > 0).all()


def test_scale_gives_up_an_outlier_where_that_costs_less() -> None:
    weight = np.full((128, 1), 0.4, np.float32)
    weight[0] = 5.0

    integers, scales = blocks_of(weight, 0, 128)

    plain = np.rint(weight / (5 / 7)) * (5 / 7)
    assert np.square(integers.astype(np.float32) * scales - weight).sum() < np.square(plain - weight).sum()


@pytest.mark.parametrize("taken", ["w_int4", "w_int4_step", "w_expanded"])
def test_one_matrix_along_two_axes_and_names_that_the_model_has_are_no_obstacle(taken: str) -> None:
    graph = f"g (float[2, 64] x, float[64] {taken}) => (float[2, 64] y) <float[32, 64] w> {{"
    model = network(f"{graph} h = Gemm <transB = 1> (x, w) d = Gemm (h, w) y = Add (d, {taken}) }}")
    rng = np.random.default_rng(7)
    feeds = {"x": rng.standard_normal((2, 64)).astype(np.float32), taken: np.zeros(64, np.float32)}

    stored = store_in_blocks(model)

    onnx.checker.check_model(stored, full_check=True)
    assert sorted(axis for axis, _ in expanding(stored)) == [0, 1]
    assert cosine(simulate(stored, feeds), simulate(model, feeds)) > 0.97
