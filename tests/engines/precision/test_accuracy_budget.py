"""The distance that answers have moved, and the budget for it."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import numpy as np
import pytest

from arrays import f32
from trtnode.engines.errors import MetricError
from trtnode.engines.precision.accuracy_budget import FEW_SAMPLES, OF_VECTORS, Comparison, Figures, adapted
from trtnode.engines.precision.options import AccuracyBudget
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import load_model
from workshop import Workshop


def compare(*samples: tuple[Any, Any], metric: str | None = None) -> Figures:
    comparison = Comparison(AccuracyBudget(metric=metric))
    for expected, actual in samples:
        comparison.add({"y": expected}, {"y": actual})
    return comparison.figures()


def test_equal_answers_have_not_moved() -> None:
    assert compare((f32(1, 2), f32(1, 2))) == Figures(cosine=1.0, top1_agreement=1.0, max_abs=0.0, samples=1)


def test_the_cosine_of_many_samples_is_over_all_of_them_together() -> None:
    figures = compare(*[(f32(3, 0), f32(3, 0))] * (FEW_SAMPLES - 1), (f32(0, 3), f32(3, 0)))

    assert figures.cosine == pytest.approx(1 - 1 / FEW_SAMPLES)
    assert figures.samples == FEW_SAMPLES


def test_of_few_samples_the_worst_counts() -> None:
    figures = compare(*[(f32(3, 0), f32(3, 0))] * (FEW_SAMPLES - 2), (f32(3, 4), f32(4, 3)))

    assert figures.cosine == pytest.approx(24 / 25)
    assert figures.samples == FEW_SAMPLES - 1


def test_a_silent_sample_counts_in_the_whole_only() -> None:
    figures = compare((f32(3, 0), f32(3, 0)), (f32(0, 1e-3), f32(1e-3, 0)), (f32(0, 0), f32(1e-4, 0)))

    assert figures.cosine == pytest.approx(1, abs=1e-6)


def test_the_worst_output_counts() -> None:
    comparison = Comparison(AccuracyBudget())
    comparison.add({"a": f32(1, 0), "b": f32(1, 0)}, {"a": f32(1, 0), "b": f32(0, 1)})

    figures = comparison.figures()

    assert (figures.cosine, figures.top1_agreement, figures.max_abs) == (0.0, 0.0, 1.0)


def test_best_classes_are_along_the_last_axis() -> None:
    figures = compare((np.float32([[1, 2], [2, 1], [0, 5], [5, 0]]), np.float32([[1, 3], [1, 2], [0, 1], [1, 0]])))

    assert figures.top1_agreement == 0.75


def test_an_axis_of_one_element_has_no_classes() -> None:
    scores = np.float32([1, 3, 2]).reshape(1, 3, 1, 1)

    assert compare((scores, scores[:, [1, 0, 2]])).top1_agreement == 0.0
    assert compare((np.float32([[1], [2]]), np.float32([[2], [1]]))).top1_agreement == 1.0


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        pytest.param(f32(1, 2), f32(1), id="shape"),
        pytest.param(f32(1, 2), f32(1, np.nan), id="nan"),
        pytest.param(f32(1, np.inf), f32(1, 2), id="infinity-lost"),
    ],
)
def test_results_that_can_not_be_compared_are_wrong(expected: np.ndarray, actual: np.ndarray) -> None:
    figures = compare((expected, actual))

    assert (figures.cosine, figures.top1_agreement, figures.max_abs) == (0.0, 0.0, math.inf)
    assert figures.breaking(adapted(AccuracyBudget(), None)) is not None


def test_equal_special_values_are_no_difference() -> None:
    figures = compare((f32(np.nan, np.inf, 1), f32(np.nan, np.inf, 1)))

    assert (figures.cosine, figures.max_abs) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("expected", "actual", "cosine"),
    [
        pytest.param(np.array([3, 7]), np.array([3, 8]), 0.5, id="integers"),
        pytest.param(np.array([True, False]), np.array([True, True]), 0.5, id="booleans"),
        pytest.param(["cat", "dog"], ["cat", "cow"], 0.0, id="sequences"),
        pytest.param([f32(1)], [f32(1)], 1.0, id="sequences-of-arrays"),
    ],
)
def test_of_other_results_the_share_that_is_equal_counts(expected: Any, actual: Any, cosine: float) -> None:
    assert compare((expected, actual)).cosine == cosine


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"min_cosine": 0.99}, "the cosine of an output is 0.90000, less than 0.99"),
        ({"min_top1_agreement": 0.95}, "80.00% of the best classes stay, fewer than 95.00%"),
        ({"max_abs": 0.1}, "an element differs by 0.5, more than 0.1"),
        ({"min_cosine": 0.9, "min_top1_agreement": 0.8, "max_abs": 0.5}, None),
        ({}, "the cosine of an output is 0.90000, less than 0.99"),
    ],
)
def test_each_limit_is_kept_or_named(limits: dict[str, float], sentence: str | None) -> None:
    figures = Figures(cosine=0.9, top1_agreement=0.8, max_abs=0.5, samples=9)

    assert figures.breaking(adapted(AccuracyBudget(**limits), None)) == sentence


def test_one_limit_replaces_the_default_one() -> None:
    figures = Figures(cosine=0.9, top1_agreement=0.8, max_abs=0.5, samples=9)

    assert figures.breaking(adapted(AccuracyBudget(max_abs=1.0), None)) is None


@pytest.fixture
def evaluation(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with measures of a user's own."""
    name = f"evaluation_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        """
def margin(expected, actual):
    worst = max(abs(a["y"] - b["y"]).max() for a, b in zip(expected, actual))
    return 0.5 - worst

def same(expected, actual):
    return len(expected) == len(actual) == 2 and expected[0]["y"][0] == 1

def raises(expected, actual):
    return expected["y"]

def text(expected, actual):
    return "good"

constant = 3
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_a_measure_of_the_users_own_decides(evaluation: str) -> None:
    good, bad = (f32(1, 2), f32(1, 2.25)), (f32(1, 2), f32(1, 3))

    assert compare(good, metric=f"{evaluation}:margin").metric == pytest.approx(0.25)
    figures = compare(good, bad, metric=f"{evaluation}:margin")
    sentence = figures.breaking(AccuracyBudget(metric="m:f"))
    assert sentence == "m:f gives -0.5, less than 0"


def test_a_measure_may_say_yes_or_no(evaluation: str) -> None:
    sample = (f32(1), f32(1))

    assert compare(sample, sample, metric=f"{evaluation}:same").metric == 0
    assert compare(sample, metric=f"{evaluation}:same").metric == -1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{}:raises", "it failed \\(TypeError: "),
        ("{}:text", "it gave 'good'; it should give a number"),
        ("{}:absent", "it can't be imported \\(AttributeError"),
        ("{}:constant", "it is no function"),
        ("no_such_module:f", "it can't be imported \\(ModuleNotFoundError"),
        ("margin", "it should be MODULE:FUNCTION"),
    ],
)
def test_a_measure_that_can_not_be_used_is_an_error(evaluation: str, name: str, message: str) -> None:
    with pytest.raises(MetricError, match=message):
        compare((f32(1), f32(1)), metric=name.format(evaluation))


def test_figures_are_plain_json() -> None:
    figures = compare((f32(1), f32(1, 2)))

    assert figures.as_json() == {
        "cosine": 0.0,
        "top1_agreement": 0.0,
        "max_abs": None,
        "samples": 1,
        "worst_cosine": 0.0,
    }


OF_CLASSES, OF_OTHERS = AccuracyBudget(min_cosine=0.995), AccuracyBudget(min_cosine=0.99)


@pytest.mark.parametrize(
    ("graph", "limits"),
    [
        pytest.param("net (float[N, 9] x) => (float[N, 9] y) { y = Softmax (x) }", OF_CLASSES, id="probabilities"),
        pytest.param(
            "net (float[N, 9, 1, 1] x) => (float[N, 9] y) { s = LogSoftmax <axis = 1> (x)  y = Flatten (s) }",
            OF_CLASSES,
            id="reshaped",
        ),
        pytest.param("net (float[N, 9] x) => (float[N, 9] y) { y = Tanh (x) }", OF_OTHERS, id="no-classes"),
        pytest.param(
            "net (float[N, 9, 8, 8] x) => (float[N, 9, 8, 8] y) { y = Softmax <axis = 1> (x) }",
            OF_OTHERS,
            id="map",
        ),
    ],
)
def test_the_default_budget_of_a_classifier_is_narrower(graph: str, limits: AccuracyBudget, workshop: Workshop) -> None:
    model = Graph.of(load_model(workshop.write(graph)))

    assert adapted(AccuracyBudget(), model) == limits
    assert adapted(OF_OTHERS, model) == OF_OTHERS


@pytest.mark.parametrize(
    ("graph", "limits"),
    [
        pytest.param(
            "net (float[N, T, 32] x) => (float[N, 32] y) { axes = Constant <value_ints = [1]> () "
            "m = ReduceMean <keepdims = 0> (x, axes)  n = ReduceL2 <axes = [1]> (m)  y = Div (m, n) }",
            OF_VECTORS,
            id="pooled-and-normalized",
        ),
        pytest.param(
            "net (float[N, T, 32] x) => (float[N, 32] y) { first = Constant <value_int = 0> () "
            "y = Gather <axis = 1> (x, first) }",
            OF_VECTORS,
            id="first-token",
        ),
        pytest.param(
            "net (float[N, 32, 8, 8] x) => (float[N, 32] y) { p = GlobalAveragePool (x)  y = Flatten (p) }",
            OF_VECTORS,
            id="map",
        ),
        pytest.param("net (float[N, 32] x) => (float[N, 32] y) { y = Tanh (x) }", OF_OTHERS, id="not-pooled"),
        pytest.param(
            "net (float[N, T, 3] x) => (float[N, 3] y) { axes = Constant <value_ints = [1]> () "
            "y = ReduceMean <keepdims = 0> (x, axes) }",
            OF_OTHERS,
            id="scores",
        ),
    ],
)
def test_of_vectors_the_neighbours_count(graph: str, limits: AccuracyBudget, workshop: Workshop) -> None:
    assert adapted(AccuracyBudget(), Graph.of(load_model(workshop.write(graph)))) == limits


def turned(vectors: np.ndarray, share: float) -> np.ndarray:
    """Vectors with noise of a share of their length."""
    noise = np.random.default_rng(7).normal(size=vectors.shape)
    return (vectors + share * noise).astype(np.float32)


VECTORS = np.random.default_rng(3).normal(size=(60, 32)).astype(np.float32)


def test_neighbours_that_change_break_the_budget_of_vectors() -> None:
    figures = compared_by(OF_VECTORS, VECTORS, turned(VECTORS, 0.1))

    assert figures.cosine > 0.99
    assert set(figures.named) == {"recall@10", "recall@1"}
    assert str(figures.breaking(OF_VECTORS)).startswith("recall@10 is 0.")
    assert compared_by(OF_VECTORS, VECTORS, 2 * VECTORS).breaking(OF_VECTORS) is None


def test_few_vectors_have_a_narrower_cosine_instead() -> None:
    near, far = (compared_by(OF_VECTORS, VECTORS[:20], turned(VECTORS[:20], share)) for share in (0.05, 0.12))

    assert near.breaking(OF_VECTORS) is None
    assert "less than 0.995, which counts since fewer than 50 vectors say little" in str(far.breaking(OF_VECTORS))
    assert far.cosine > 0.98


@pytest.mark.parametrize(
    ("metric", "noise", "sentence"),
    [
        ("recall@10", 0.001, None),
        ("recall@5>=0.999", 0.1, "recall@5 is 0."),
        ("spearman, psnr", 0.01, None),
        ("spearman>=0.999", 0.3, "spearman is 0."),
        ("psnr>=60", 0.01, "psnr is "),
    ],
)
def test_metrics_have_names_and_limits(metric: str, noise: float, sentence: str | None) -> None:
    budget = AccuracyBudget(metric=metric)

    problem = compared_by(budget, VECTORS, turned(VECTORS, noise)).breaking(budget)

    assert (problem is None) if sentence is None else str(problem).startswith(sentence)


def test_the_order_of_scores_counts_not_their_size() -> None:
    scores = np.float32([[0.1], [0.7], [0.2], [0.2]])
    budget = AccuracyBudget(metric="spearman")

    assert compared_by(budget, scores, scores**3).named == {"spearman": pytest.approx(1)}
    assert compared_by(budget, scores, -scores).named == {"spearman": pytest.approx(-1)}


@pytest.mark.parametrize("metric", ["recall@0", "recall", "spearman>=x", "psnr;recall@1", ""])
def test_an_unknown_name_of_a_metric_is_refused(metric: str) -> None:
    with pytest.raises(MetricError, match="recall@K, spearman or psnr"):
        Comparison(AccuracyBudget(metric=metric))


def test_too_few_rows_for_neighbours_say_so() -> None:
    with pytest.raises(MetricError, match="4 rows have no 10 neighbours each; give more samples"):
        compared_by(AccuracyBudget(metric="recall@10"), VECTORS[:4], VECTORS[:4])


def compared_by(budget: AccuracyBudget, expected: np.ndarray, actual: np.ndarray) -> Figures:
    comparison = Comparison(budget)
    for want, got in zip(np.split(expected, len(expected) // 2), np.split(actual, len(actual) // 2), strict=True):
        comparison.add({"y": want}, {"y": got})
    return comparison.figures()
