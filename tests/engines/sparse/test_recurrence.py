"""Sparse LSTM and GRU give what ONNX Runtime's dense ones do, or leave the layer to these."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis
import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from trtnode.engines.errors import ModelLoadError
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.sparse import patches, recurrence, rewriting
from trtnode.engines.sparse.library import LIBRARY, missing_reason

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason=missing_reason() or "")

INSTRUCTIONS = ("plain", "avx2", "")

FEWER = hypothesis.settings(max_examples=20, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])


pytestmark = pytest.mark.usefixtures("every_layer_is_rewritten")


def recurrent_model(
    op_type: str,
    sizes: tuple[int, int, int, int],
    *,
    seed: int = 0,
    density: float = 0.4,
    with_states: bool = False,
    outputs: Sequence[str] = ("y", "y_h"),
    **attributes: object,
) -> onnx.ModelProto:
    """A layer over ``sizes``: steps, batch, inputs, units."""
    rng = np.random.default_rng(seed)
    steps, batch, inputs, hidden = sizes
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = recurrence.GATES[op_type] * hidden

    def pruned(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * (rng.random(shape) < density) / np.sqrt(shape[-1])).astype(np.float32)

    weights = {"w": pruned(directions, rows, inputs), "r": pruned(directions, rows, hidden)}
    weights["b"] = rng.standard_normal((directions, 2 * rows)).astype(np.float32)
    states = ["h", "c"][: 2 if op_type == "LSTM" else 1] if with_states else []
    shapes = {"x": [steps, batch, inputs], **{name: [directions, batch, hidden] for name in states}}
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", "w", "r", "b", "", *states], outputs, hidden_size=hidden, **attributes)],
        "g",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs if name],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def rewritten(model: onnx.ModelProto, block: int, monkeypatch: pytest.MonkeyPatch) -> onnx.ModelProto:
    monkeypatch.setattr(recurrence, "best_block", lambda matrix, whole=0: block)
    written, replaced = rewriting.with_sparse_layers(model)
    assert replaced == 1
    return written


def patched(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> onnx.ModelProto:
    """The model with patched weights, whatever this processor and the share of zeros are."""
    monkeypatch.setattr(rewriting, "instructions", lambda: rewriting.PATCHED)
    monkeypatch.setattr(patches, "LEAST_SHARE", 0)
    sparse = rewritten(model, patches.BLOCK, monkeypatch)
    assert helper.get_node_attr_value(sparse.graph.node[-1], "patched") == 1
    return sparse


def assert_answers_are_native_ones(
    sparse: onnx.ModelProto, model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With each set of instructions, on so many threads."""
    feeds = feeds_of(model)
    expected = NativeSession(model, threads=1).run(feeds)
    for threads, held in enumerate(INSTRUCTIONS, start=1):
        monkeypatch.setenv("TRTNODE_SPARSE_ISA", held)
        answers = NativeSession(sparse, threads=threads, operators=LIBRARY).run(feeds)
        for answer, wanted in zip(answers, expected, strict=True):
            np.testing.assert_allclose(answer, wanted, rtol=1e-4, atol=1e-5)


@FEWER
@hypothesis.given(
    op_type=st.sampled_from(["LSTM", "GRU"]),
    seed=st.integers(0, 2**16),
    steps=st.integers(1, 9),
    batch=st.sampled_from([1, 2, 17, 50]),
    inputs=st.integers(1, 20),
    block_rows=st.integers(1, 20),
    block=st.sampled_from([1, 4, 8]),
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    linear=st.booleans(),
    density=st.sampled_from([0.0, 0.2, 1.0]),
    with_states=st.booleans(),
    wanted=st.sampled_from([(0, 1, 2), (0,), (1,), (1, 2)]),
)
def test_recurrent_layers_give_what_native_execution_does(
    monkeypatch: pytest.MonkeyPatch,
    op_type: str,
    seed: int,
    steps: int,
    batch: int,
    inputs: int,
    block_rows: int,
    block: int,
    direction: str,
    linear: bool,
    density: float,
    with_states: bool,
    wanted: tuple[int, ...],
) -> None:
    names = ("y", "y_h", "y_c")[: 3 if op_type == "LSTM" else 2]
    outputs = [name if index in wanted else "" for index, name in enumerate(names)]
    attributes: dict[str, object] = {"direction": direction}
    if op_type == "GRU":
        attributes["linear_before_reset"] = int(linear)
    sizes = (steps, batch, inputs, block * block_rows)
    model = recurrent_model(
        op_type, sizes, seed=seed, density=density, with_states=with_states, outputs=outputs, **attributes
    )

    assert_answers_are_native_ones(rewritten(model, block, monkeypatch), model, monkeypatch)


@FEWER
@hypothesis.given(
    op_type=st.sampled_from(["LSTM", "GRU"]),
    seed=st.integers(0, 2**16),
    steps=st.integers(1, 5),
    groups=st.integers(1, 3),
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    linear=st.booleans(),
    density=st.sampled_from([0.05, 0.2, 1.0]),
    with_states=st.booleans(),
)
def test_patched_layers_give_what_native_execution_does(
    monkeypatch: pytest.MonkeyPatch,
    op_type: str,
    seed: int,
    steps: int,
    groups: int,
    direction: str,
    linear: bool,
    density: float,
    with_states: bool,
) -> None:
    attributes: dict[str, object] = {"direction": direction}
    if op_type == "GRU":
        attributes["linear_before_reset"] = int(linear)
    sizes = (steps, 1, 8, 64 * groups)
    model = recurrent_model(op_type, sizes, seed=seed, density=density, with_states=with_states, **attributes)

    assert_answers_are_native_ones(patched(model, monkeypatch), model, monkeypatch)


@pytest.mark.parametrize(
    ("sizes", "density", "is_patched"),
    [
        pytest.param((5, 1, 8, 64), 0.2, True, id="one-sequence"),
        pytest.param((5, 2, 8, 64), 0.2, False, id="two-sequences"),
        pytest.param((5, 1, 8, 96), 0.2, False, id="units-that-patches-do-not-cover"),
        pytest.param((5, 1, 8, 64), 0.01, False, id="few-weights"),
    ],
)
def test_only_layers_over_one_sequence_with_weights_enough_are_patched(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int, int, int], density: float, is_patched: bool
) -> None:
    monkeypatch.setattr(rewriting, "instructions", lambda: rewriting.PATCHED)
    sparse = rewritten(recurrent_model("LSTM", sizes, density=density), 4, monkeypatch)

    (cell,) = (node for node in sparse.graph.node if node.op_type == "SparseLSTM")

    assert helper.get_node_attr_value(cell, "patched") == is_patched


def test_other_instructions_than_avx512_get_rows_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "instructions", lambda: "AVX2")
    sparse = rewritten(recurrent_model("LSTM", (5, 1, 8, 64), density=0.2), 4, monkeypatch)

    (cell,) = (node for node in sparse.graph.node if node.op_type == "SparseLSTM")

    assert helper.get_node_attr_value(cell, "patched") == 0


@pytest.mark.parametrize(
    ("tensor", "place", "value"),
    [
        pytest.param("steps", 0, 17, id="more-rows-than-a-patch-has"),
        pytest.param("steps", 0, 3, id="other-vectors-than-are-stored"),
        pytest.param("steps", 16, 16, id="a-row-outside-the-patch"),
        pytest.param("starts", 1, 1, id="vectors-of-another-row"),
        pytest.param("starts", 1, -1, id="vectors-before-the-first"),
    ],
)
def test_damaged_patches_are_refused_at_load(
    monkeypatch: pytest.MonkeyPatch, tensor: str, place: int, value: int
) -> None:
    sparse = patched(recurrent_model("LSTM", (5, 1, 8, 64), density=0.2), monkeypatch)
    (weights,) = (one for one in sparse.graph.initializer if one.name.endswith(f"states/sparse/{tensor}"))
    array = numpy_helper.to_array(weights).copy()
    array[place] = value
    weights.CopyFrom(numpy_helper.from_array(array, weights.name))

    with pytest.raises(ModelLoadError, match="tensors of a sparse matrix don't fit each other"):
        NativeSession(sparse, operators=LIBRARY)


@pytest.mark.parametrize("op_type", ["LSTM", "GRU"])
def test_a_recurrent_layer_gives_what_the_specification_says(monkeypatch: pytest.MonkeyPatch, op_type: str) -> None:
    model = recurrent_model(op_type, (12, 3, 10, 24), with_states=True)
    feeds = feeds_of(model)

    answers = NativeSession(rewritten(model, 4, monkeypatch), threads=2, operators=LIBRARY).run(feeds)

    for answer, expected in zip(answers, ReferenceEvaluator(model).run(None, feeds), strict=True):
        np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-5)


def test_large_sums_saturate_and_nan_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    model = recurrent_model("LSTM", (3, 2, 4, 8))
    x = np.full((3, 2, 4), 1e30, np.float32)
    x[:, 1] = np.nan

    y, _ = NativeSession(rewritten(model, 4, monkeypatch), operators=LIBRARY).run({"x": x})

    assert np.isfinite(y[:, :, 0]).all()
    assert np.abs(y[:, :, 0]).max() <= 1
    assert np.isnan(y[-1, :, 1]).all()


def test_dense_input_weights_stay_a_dense_product(monkeypatch: pytest.MonkeyPatch) -> None:
    model = recurrent_model("GRU", (5, 1, 16, 8), direction="bidirectional", linear_before_reset=1)
    monkeypatch.setattr(recurrence, "best_block", lambda matrix, whole=0: 8 if whole else None)
    sparse, _ = rewriting.with_sparse_layers(model)

    assert [node.op_type for node in sparse.graph.node] == ["MatMul", "Add", "SparseGRU"]
    answer, *_ = NativeSession(sparse, operators=LIBRARY).run(feeds_of(model))
    expected, *_ = NativeSession(model).run(feeds_of(model))
    np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "attributes",
    [{"clip": 3.0}, {"layout": 1}, {"input_forget": 1}, {"activations": ["Tanh", "Tanh", "Tanh"]}],
    ids=lambda attributes: next(iter(attributes)),
)
def test_unusual_recurrent_layers_stay_dense(attributes: dict[str, object]) -> None:
    _, replaced = rewriting.with_sparse_layers(recurrent_model("LSTM", (2, 1, 8, 32), density=0.05, **attributes))

    assert replaced == 0


def test_layers_with_lengths_of_sequences_or_peepholes_stay_dense() -> None:
    for place, name in ((4, "lengths"), (7, "peepholes")):
        model = recurrent_model("LSTM", (2, 1, 8, 32), density=0.05)
        inputs = [*model.graph.node[0].input, *[""] * 3][:7]
        inputs.insert(place, name)
        del model.graph.node[0].input[:]
        model.graph.node[0].input.extend(inputs)

        assert rewriting.with_sparse_layers(model)[1] == 0


def test_units_that_blocks_do_not_divide_are_stored_one_by_one() -> None:
    model = recurrent_model("LSTM", (2, 1, 8, 33), density=0.05)
    sparse, _ = rewriting.with_sparse_layers(model)

    (cell,) = (node for node in sparse.graph.node if node.op_type == "SparseLSTM")
    assert helper.get_node_attr_value(cell, "block") == 1


def test_weights_that_do_not_fit_the_gates_are_refused_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    sparse = rewritten(recurrent_model("LSTM", (2, 1, 8, 32)), 4, monkeypatch)
    sparse.graph.node[-1].op_type = "SparseGRU"
    del sparse.graph.node[-1].output[2:]

    with pytest.raises(ModelLoadError, match="don't fit its gates"):
        NativeSession(sparse, operators=LIBRARY)
