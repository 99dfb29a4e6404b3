"""The sparse kernels compute what numpy does, on all shapes, blocks and instruction sets."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from trtnode.engines.errors import ModelLoadError
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.sparse import rewriting
from trtnode.engines.sparse.library import LIBRARY, instructions, missing_reason

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason=missing_reason() or "")

INSTRUCTIONS = ("plain", "avx2", "")
"""Values that hold the kernels to lesser instructions; the last one doesn't."""

FEWER = hypothesis.settings(max_examples=12, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])


pytestmark = pytest.mark.usefixtures("every_layer_is_rewritten")


def pruned(rng: np.random.Generator, rows: int, columns: int, density: float) -> np.ndarray:
    return (rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < density)).astype(np.float32)


def model_of(nodes: list[onnx.NodeProto], shape: list[int], rank: int, **weights: np.ndarray) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None] * rank)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def assert_same(model: onnx.ModelProto, block: int, x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "best_block", lambda matrix, whole=0: block)
    rewritten, replaced = rewriting.with_sparse_layers(model)
    assert replaced == 1
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    for threads, held in enumerate(INSTRUCTIONS, start=1):
        monkeypatch.setenv("TRTNODE_SPARSE_ISA", held)
        (answer,) = NativeSession(rewritten, threads=threads, operators=LIBRARY).run({"x": x})
        np.testing.assert_allclose(answer, expected, rtol=2e-4, atol=2e-4)


@FEWER
@hypothesis.given(
    seed=st.integers(0, 2**16),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 13), st.integers(1, 13)),
    block_rows=st.integers(1, 5),
    block=st.sampled_from([1, 4, 8]),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    activation=st.sampled_from(["", "Relu", "Clip"]),
)
def test_convolutions_give_what_the_specification_says(
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    sizes: tuple[int, int, int, int],
    block_rows: int,
    block: int,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, int, int, int],
    density: float,
    activation: str,
) -> None:
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    hypothesis.assume(sizes[2] + pads[0] + pads[2] >= reach[0] and sizes[3] + pads[1] + pads[3] >= reach[1])
    rng = np.random.default_rng(seed)
    rows, columns = block * block_rows, sizes[1] * kernel[0] * kernel[1]
    weights = pruned(rng, rows, columns, density).reshape(rows, sizes[1], *kernel)
    bias = rng.standard_normal(rows).astype(np.float32)
    conv = helper.make_node("Conv", ["x", "w", "b"], ["c"], strides=strides, dilations=dilations, pads=pads)
    nodes = [conv, helper.make_node(activation, ["c", "low", "high"][: 3 if activation == "Clip" else 1], ["y"])]
    if not activation:
        nodes = [conv]
        conv.output[0] = "y"
    bounds = {"low": np.float32(-0.5), "high": np.float32(0.7)} if activation == "Clip" else {}
    model = model_of(nodes, list(sizes), 4, w=weights, b=bias, **{n: np.asarray(v) for n, v in bounds.items()})

    assert_same(model, block, rng.standard_normal(sizes).astype(np.float32), monkeypatch)


@FEWER
@hypothesis.given(
    seed=st.integers(0, 2**16),
    lead=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    columns=st.integers(1, 70),
    block_rows=st.integers(1, 9),
    block=st.sampled_from([1, 4, 8]),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    form=st.sampled_from(["MatMul", "MatMul+Add+Relu", "Gemm", "Gemm of transposed weights"]),
)
def test_products_give_what_the_specification_says(
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    lead: list[int],
    columns: int,
    block_rows: int,
    block: int,
    density: float,
    form: str,
) -> None:
    rng = np.random.default_rng(seed)
    weights = pruned(rng, block * block_rows, columns, density)
    bias = rng.standard_normal(weights.shape[0]).astype(np.float32)
    if form == "MatMul":
        model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], [*lead, columns], len(lead) + 1, w=weights.T)
    elif form.startswith("MatMul"):
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["m"]),
            helper.make_node("Add", ["b", "m"], ["a"]),
            helper.make_node("Relu", ["a"], ["y"]),
        ]
        model = model_of(nodes, [*lead, columns], len(lead) + 1, w=weights.T, b=bias)
    else:
        lead = lead[:1]
        transposed = int(form != "Gemm")
        node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=transposed)
        model = model_of([node], [*lead, columns], 2, w=weights if transposed else weights.T, b=bias)

    assert_same(model, block, rng.standard_normal((*lead, columns)).astype(np.float32), monkeypatch)


def test_wide_images_use_every_width_of_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for side, block in ((3, 4), (5, 8), (7, 4), (10, 1), (14, 4), (23, 1)):
        weights = pruned(rng, 32, 24, 0.2).reshape(32, 24, 1, 1)
        model = model_of([helper.make_node("Conv", ["x", "w"], ["y"])], [2, 24, side, side], 4, w=weights)

        assert_same(model, block, rng.standard_normal((2, 24, side, side)).astype(np.float32), monkeypatch)


def damaged(name: str, array: np.ndarray) -> onnx.ModelProto:
    weights = pruned(np.random.default_rng(0), 8, 16, 0.4).reshape(8, 16, 1, 1)
    model = model_of([helper.make_node("Conv", ["x", "w"], ["y"])], [1, 16, 3, 3], 4, w=weights)
    rewritten, _ = rewriting.with_sparse_layers(model)
    (tensor,) = (t for t in rewritten.graph.initializer if t.name.endswith(name))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return rewritten


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("steps", np.full(3, 9, np.uint8)),
        ("starts", np.array([0, 2**30, 5], np.int32)),
        ("starts", np.array([0, -4, 5], np.int32)),
        ("values", np.zeros((1, 4), np.float32)),
        ("starts", np.zeros(0, np.int32)),
    ],
    ids=["too-few-steps", "starts-beyond-the-end", "starts-below-zero", "too-few-values", "no-starts"],
)
def test_weights_that_do_not_fit_each_other_are_refused_at_load(
    monkeypatch: pytest.MonkeyPatch, name: str, array: np.ndarray
) -> None:
    monkeypatch.setattr(rewriting, "best_block", lambda matrix, whole=0: 4)

    with pytest.raises(ModelLoadError, match="sparse matrix don't fit each other"):
        NativeSession(damaged(name, array), operators=LIBRARY)


def test_columns_outside_the_matrix_are_refused_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "best_block", lambda matrix, whole=0: 4)
    rewritten = damaged("steps", np.zeros(1, np.uint8))
    (steps,) = (t for t in rewritten.graph.initializer if t.name.endswith("steps"))
    (values,) = (t for t in rewritten.graph.initializer if t.name.endswith("values"))
    count = numpy_helper.to_array(values).shape[0]
    steps.CopyFrom(numpy_helper.from_array(np.full(count, 16, np.uint8), steps.name))

    with pytest.raises(ModelLoadError, match="sparse matrix don't fit each other"):
        NativeSession(rewritten, operators=LIBRARY)


def test_the_kernels_are_of_this_onnxruntimes_interface() -> None:
    assert instructions() in ("plain C", "AVX2", "AVX-512", "NEON")
    options = onnxruntime.SessionOptions()

    options.register_custom_ops_library(str(LIBRARY))  # raises where the C interface is another
