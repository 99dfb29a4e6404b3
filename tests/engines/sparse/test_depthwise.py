"""Depthwise convolutions beside sparse layers give what native execution does."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from trtnode.engines.errors import ModelLoadError
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.sparse import rewriting
from trtnode.engines.sparse.library import LIBRARY, missing_reason

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason=missing_reason() or "")

INSTRUCTIONS = ("plain", "avx2", "")

FEWER = hypothesis.settings(max_examples=12, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])


def pointwise_and_depthwise(
    size: tuple[int, int, int], kernel: tuple[int, int], *, bias: bool = True, **attributes: object
) -> onnx.ModelProto:
    """A 1 x 1 convolution of 32 channels, mostly zeros, and a depthwise one behind it with an activation."""
    rng = np.random.default_rng(0)
    weights = {
        "w": (rng.standard_normal((32, 32, 1, 1)) * (rng.random((32, 32, 1, 1)) < 0.1)).astype(np.float32),
        "v": rng.standard_normal((32, 1, *kernel)).astype(np.float32),
        "b": rng.standard_normal(32).astype(np.float32),
        "low": np.float32(-1),
        "high": np.float32(2),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["p"], name="pointwise"),
        helper.make_node("Conv", ["p", "v", *["b"] * bias], ["d"], name="depthwise", group=32, **attributes),
        helper.make_node("Clip", ["d", "low", "high"], ["y"]),
    ]
    images, height, width = size
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [images, 32, height, width])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None] * 4)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@FEWER
@hypothesis.given(
    seed=st.integers(0, 2**16),
    size=st.tuples(st.integers(1, 2), st.integers(1, 20), st.one_of(st.integers(1, 20), st.integers(50, 80))),
    kernel=st.sampled_from([(3, 3), (3, 3), (1, 1), (5, 5), (2, 4)]),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilations=st.sampled_from([(1, 1), (1, 1), (2, 3)]),
    pads=st.tuples(*[st.integers(0, 3)] * 4),
    bias=st.booleans(),
)
def test_depthwise_convolutions_give_what_native_execution_does(
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    size: tuple[int, int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, int, int, int],
    bias: bool,
) -> None:
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    hypothesis.assume(size[1] + pads[0] + pads[2] >= reach[0] and size[2] + pads[1] + pads[3] >= reach[1])
    model = pointwise_and_depthwise(size, kernel, bias=bias, strides=strides, dilations=dilations, pads=pads)
    sparse, replaced = rewriting.with_sparse_layers(model)
    x = np.random.default_rng(seed).standard_normal((size[0], 32, *size[1:])).astype(np.float32)

    assert replaced == 1
    assert [node.op_type for node in sparse.graph.node] == ["SparseConv", "DepthwiseConv"]
    (expected,) = NativeSession(model, threads=1).run({"x": x})
    for threads, held in enumerate(INSTRUCTIONS, start=1):
        monkeypatch.setenv("TRTNODE_SPARSE_ISA", held)
        (answer,) = NativeSession(sparse, threads=threads, operators=LIBRARY).run({"x": x})
        np.testing.assert_allclose(answer, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("attributes", [{"pads": [17, 0, 0, 0]}, {"auto_pad": "SAME_UPPER"}, {"strides": [20, 1]}])
def test_unusual_depthwise_convolutions_stay_with_onnxruntime(attributes: dict[str, object]) -> None:
    sparse, _ = rewriting.with_sparse_layers(pointwise_and_depthwise((1, 30, 30), (3, 3), **attributes))

    assert [node.op_type for node in sparse.graph.node] == ["SparseConv", "Conv", "Clip"]


def test_depthwise_convolutions_between_dense_layers_stay_with_onnxruntime() -> None:
    model = pointwise_and_depthwise((1, 8, 8), (3, 3))
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((32, 32, 1, 1), np.float32), "w"))

    assert rewriting.with_sparse_layers(model)[1] == 0


def test_sizes_that_do_not_fit_each_other_are_refused_at_load() -> None:
    sparse, _ = rewriting.with_sparse_layers(pointwise_and_depthwise((1, 8, 8), (3, 3)))
    (weights,) = (tensor for tensor in sparse.graph.initializer if tensor.name == "v")
    weights.CopyFrom(numpy_helper.from_array(np.ones((32, 1, 2, 2), np.float32), "v"))

    with pytest.raises(ModelLoadError, match="depthwise convolution don't fit each other"):
        NativeSession(sparse, operators=LIBRARY)
