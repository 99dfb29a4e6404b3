"""Blocks behind models of text compute as sentence-transformers does."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from plain_runtime import passes_checker, run
from trtnode.partitioner.compiled.trtnode import embed_engines
from trtnode.partitioner.errors import PipelineError
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.pipelines.blocks import Block
from trtnode.partitioner.pipelines.chaining import Keep, Stage, chain_stages
from trtnode.partitioner.pipelines.token_blocks import Dense, Pool, UnitLength

MODEL = """<ir_version: 8, opset_import: ["": {opset}]>
g (float[N, T, 3] x, int64[N, T] attention_mask) => (float[N, T, 3] last_hidden_state, float[N, 3] pooler_output)
{{
    last_hidden_state = Identity(x)
    pooler_output = ReduceMax<axes = [1], keepdims = 0>(x)
}}"""

MASK = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]])
"""Padding at the right, at the left, and none."""

Compute = Callable[..., np.ndarray]


@pytest.fixture
def hidden() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((4, 4, 3)).astype(np.float32) - 1


@pytest.fixture
def compute(tmp_path: pathlib.Path) -> Compute:
    """Run blocks behind a model that hands on what it gets."""

    def compute(x: np.ndarray, *blocks: Block, opset: int = 13, **more: np.ndarray) -> np.ndarray:
        path = tmp_path / "m.onnx"
        onnx.save(onnx.parser.parse_model(MODEL.format(opset=opset)), path)
        steps = (Keep(("token_embeddings", "last_hidden_state")), *blocks)
        model = chain_stages(path, [], [Stage(place=("stage", n), step=step) for n, step in enumerate(steps)])
        proto = embed_engines(Graph.of(model), (), {})
        assert passes_checker(proto)
        assert len(proto.graph.output) == 1
        (result,) = run(proto, {"x": x, "attention_mask": MASK, **more})
        return np.asarray(result)

    return compute


def pooled(by: str, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """One text's vector, as sentence-transformers pools it."""
    tokens = x[mask == 1]
    match by:
        case "cls":
            return np.asarray(tokens[0])
        case "lasttoken":
            return np.asarray(tokens[-1])
        case "max":
            return np.asarray(tokens.max(0))
        case "mean":
            return np.asarray(tokens.sum(0) / max(len(tokens), 1e-9))
        case "mean_sqrt_len":
            return np.asarray(tokens.sum(0) / math.sqrt(len(tokens)))
    weights = mask.cumsum() * mask
    return np.asarray((x * weights[:, np.newaxis]).sum(0) / weights.sum())


WAYS = ["cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken"]


@pytest.mark.parametrize("by", WAYS)
def test_tokens_become_one_vector(compute: Compute, hidden: np.ndarray, by: Any) -> None:
    found = compute(hidden, Pool((by,)))

    expected = [pooled(by, x, mask) for x, mask in zip(hidden, MASK, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_several_ways_stand_one_behind_the_other(compute: Compute, hidden: np.ndarray) -> None:
    both = compute(hidden, Pool(("cls", "mean")))

    np.testing.assert_array_equal(both[:, :3], compute(hidden, Pool(("cls",))))
    np.testing.assert_array_equal(both[:, 3:], compute(hidden, Pool(("mean",))))


def test_tokens_of_the_prompt_may_be_left_out(compute: Compute, hidden: np.ndarray) -> None:
    counted = np.array([[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 1]])

    found = compute(hidden, Pool(("mean",), include_prompt=False), pooling_mask=counted)

    expected = [pooled("mean", x, mask) for x, mask in zip(hidden, counted, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_vectors_get_the_length_one_and_zeros_stay(compute: Compute, hidden: np.ndarray) -> None:
    hidden[0] = 0

    found = compute(hidden, Pool(("cls",)), UnitLength())

    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [0, 1, 1, 1], rtol=1e-6)


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        (None, lambda x: x),
        ("tanh", np.tanh),
        ("relu", lambda x: np.maximum(x, 0)),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("gelu", lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2),
    ],
)
def test_a_linear_layer_with_its_activation(
    compute: Compute, hidden: np.ndarray, activation: Any, function: Callable[[np.ndarray], np.ndarray]
) -> None:
    rng = np.random.default_rng(5)
    weight, bias = rng.standard_normal((2, 3)).astype(np.float32), rng.standard_normal(2).astype(np.float32)

    found = compute(hidden, Pool(("cls",)), Dense(weight, bias, activation))

    expected = function(compute(hidden, Pool(("cls",))) @ weight.T + bias)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("opset", [11, 12, 17])
def test_models_of_other_opsets_are_raised(compute: Compute, hidden: np.ndarray, opset: int) -> None:
    found = compute(hidden, Pool(("mean",)), UnitLength(), opset=opset)

    np.testing.assert_allclose(found, compute(hidden, Pool(("mean",)), UnitLength()), rtol=1e-5)


@pytest.mark.parametrize(
    ("blocks", "problem"),
    [
        ([Pool(("cls",)), Pool(("cls",))], "takes vectors of tokens, [batch, tokens, size], but gets [N, 3]"),
        ([Dense(np.ones((2, 5), np.float32), None, None)], "takes vectors of 5 elements, but gets [N, T, 3]"),
        ([Pool(("cls",)), Keep(("a", "b"))], "there is no tensor 'a', 'b' here, only 'sentence_embedding'"),
    ],
)
def test_what_does_not_fit_is_refused(
    compute: Compute, hidden: np.ndarray, blocks: Sequence[Any], problem: str
) -> None:
    with pytest.raises(PipelineError) as caught:
        compute(hidden, *blocks)

    assert str(caught.value).endswith(problem)
