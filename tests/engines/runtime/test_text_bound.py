"""Bounds on the text that a model makes of a request."""

from __future__ import annotations

import math

import numpy as np
import pytest

from model_texts import parse
from trtnode.engines.runtime.text_bound import TextBound
from trtnode.partitioner.model.loading import view_model

HEADER = '<ir_version: 8, opset_import: ["": 20, "ai.onnx.ml": 3, "com.microsoft": 1, "other": 1]>'
WORDS = np.array(["one", "x" * 100], object)


def bound(graph: str) -> TextBound | None:
    return TextBound.of(view_model(parse(f"{HEADER} g {graph}"), __file__))


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param("(float[n] x) => (float[n] y) { y = Relu(x) }", id="numbers"),
        pytest.param("(float[n] x) => (string[n] y) { y = Cast<to = 8>(x) }", id="text-of-numbers"),
        pytest.param(
            """(int64[n] x) => (string[n] y) {
            y = ai.onnx.ml.LabelEncoder<keys_int64s = [1], values_strings = ["cat"]>(x) }""",
            id="labels",
        ),
        pytest.param('(string[n] x) => (bool[n] y) { y = RegexFullMatch<pattern = "a">(x) }', id="tests-of-texts"),
    ],
)
def test_models_that_make_no_long_text_need_no_bound(graph: str) -> None:
    assert bound(graph) is None


@pytest.mark.parametrize(
    ("graph", "most"),
    [
        pytest.param("(string[n] x) => (string[n] y) { y = StringConcat(x, x) }", 2 * 2 * 400, id="twice"),
        pytest.param("(string[n] x) => (string[1, n] y) { i = Constant<value_ints = [0]>() y = Unsqueeze(x, i) }",
                     2 * 400, id="as-it-is"),
        pytest.param("(string[n] x) => (string[n, k] y, int64[n] c) { y, c = StringSplit(x) }", 1600, id="parts"),
        pytest.param("(string[n] x) => (string[m] y) { r = Constant<value_ints = [9]>() y = Tile(x, r) }",
                     math.inf, id="sizes-that-nothing-tells"),
        pytest.param("(string[n] x) => (string[n] y) { y = other.Sing(x) }", math.inf, id="unknown-operators"),
    ],
)  # fmt: skip
def test_text_is_bounded_by_the_longest_and_the_number_of_texts(graph: str, most: float) -> None:
    found = bound(graph)

    assert found is not None
    assert found.bytes_of({"x": WORDS}) == most
