"""Pruning by blocks: what becomes zero, and what stays."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from model_texts import parse
from trtnode.engines.sparse.pruning import prune_model

TEXT = """g (float[1,64] x) => (float[1,64] y) <float[64,64] a, float[64,64] b, float[64,64] c, float[64,64] d> {
    p = MatMul(x, a) q = MatMul(p, b) r = Gemm<transB=1>(q, c) y = MatMul(r, d)
}"""


@pytest.fixture
def model() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    parsed = parse(TEXT, **{name: rng.standard_normal((64, 64)).astype(np.float32) for name in "abcd"})
    return onnx.shape_inference.infer_shapes(parsed)


def weights_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_blocks_of_output_channels_become_zero_in_all_but_the_first_and_the_last_layer(model: onnx.ModelProto) -> None:
    before = weights_of(model)

    assert [one.tensor for one in prune_model(model, 0.75, 4)] == ["b", "c"]

    after = weights_of(model)
    by_channel = {"b": after["b"].T, "c": after["c"]}
    for matrix in by_channel.values():
        blocks = (matrix != 0).reshape(16, 4, 64)
        assert np.array_equal(blocks.any(axis=1), blocks.all(axis=1))
        assert blocks.mean() == 0.25
    assert np.array_equal(after["a"], before["a"])
    assert np.array_equal(after["d"], before["d"])


def test_the_largest_blocks_stay_as_they_were(model: onnx.ModelProto) -> None:
    before = weights_of(model)["c"].reshape(16, 4, 64)

    prune_model(model, 0.5, 4)

    after = weights_of(model)["c"].reshape(16, 4, 64)
    sizes, kept = np.square(before).sum(axis=1), after.any(axis=1)
    assert sizes[kept].min() >= sizes[~kept].max()
    assert np.array_equal(after[kept[:, None, :].repeat(4, axis=1)], before[kept[:, None, :].repeat(4, axis=1)])
