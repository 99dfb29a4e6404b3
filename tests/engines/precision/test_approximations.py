"""Approximations of activations: where they are found, and what they compute."""

from __future__ import annotations

import math
import pathlib

import numpy as np
import onnx
import pytest

from trtnode.engines.inputs.source import cleaned
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.precision.approximations import FORMS, FUNCTIONS, approximate, context_of, find_places
from trtnode.partitioner.compiled.trtnode import embed_engines
from trtnode.partitioner.graph.view import Graph
from workshop import Workshop

X = np.linspace(-6, 6, 64, dtype=np.float32)

DIVIDED = "u = Div(x, r) e = Erf(u) p = Add(e, one) m = Mul(x, p) y = Mul(m, half)"
HALVED_FIRST = "u = Mul(x, s) e = Erf(u) p = Add(one, e) h = Mul(half, x) y = Mul(h, p)"
CONSTANTS = "<float r = {1.41421356}, float s = {0.70710678}, float one = {1}, float half = {0.5}>"

SPELLINGS = [
    pytest.param(DIVIDED, 13, "GELU", id="gelu-divided"),
    pytest.param(HALVED_FIRST, 13, "GELU", id="gelu-halved-first"),
    pytest.param("y = Gelu(x)", 20, "GELU", id="gelu-operator"),
    pytest.param("u = Sigmoid(x) y = Mul(x, u)", 13, "SiLU", id="silu"),
    pytest.param("y = Sigmoid(x)", 13, "sigmoid", id="sigmoid"),
]

EXPECTED = {
    "tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "sigmoid": lambda x: x / (1 + np.exp(-1.702 * x)),
    "hard swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "hard sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
}


def graph_of(workshop: Workshop, nodes: str, opset: int, outputs: str = "float[64] y") -> Graph:
    return cleaned(workshop.write(f"g (float[64] x) => ({outputs}) {CONSTANTS} {{ {nodes} }}", opset=opset), ())


@pytest.mark.parametrize(("nodes", "opset", "function"), SPELLINGS)
def test_a_function_is_found_however_it_is_spelled(workshop: Workshop, nodes: str, opset: int, function: str) -> None:
    graph = graph_of(workshop, nodes, opset)

    (place,) = find_places(graph)

    assert (place.function, place.x.name, place.result.name) == (function, "x", "y")
    assert len(place.nodes) == len(graph.nodes)


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        pytest.param('y = Gelu<approximate = "tanh">(x)', "float[64] y", id="approximated-already"),
        pytest.param("y = Erf(x)", "float[64] y", id="erf-alone"),
        pytest.param(
            "u = Mul(x, half) e = Erf(u) p = Add(e, one) m = Mul(x, p) y = Mul(m, half)", "float[64] y", id="other"
        ),
        pytest.param(DIVIDED, "float[64] y, float[64] e", id="inner-value-is-an-output"),
    ],
)
def test_other_nodes_are_no_place(workshop: Workshop, nodes: str, outputs: str) -> None:
    assert find_places(graph_of(workshop, nodes, 20, outputs)) == []


def test_a_sigmoid_whose_value_is_read_elsewhere_is_a_place_without_its_product(workshop: Workshop) -> None:
    graph = graph_of(workshop, "u = Sigmoid(x) y = Mul(x, u)", 13, "float[64] y, float[64] u")

    assert [place.function for place in find_places(graph)] == ["sigmoid"]


@pytest.mark.parametrize(("nodes", "opset", "function"), SPELLINGS)
def test_each_form_computes_its_formula(
    workshop: Workshop, tmp_path: pathlib.Path, nodes: str, opset: int, function: str
) -> None:
    for form in FORMS[function]:
        graph = graph_of(workshop, nodes, opset)
        graph = approximate(graph, {place.name: form for place in find_places(graph)})
        path = tmp_path / "approximated.onnx"
        onnx.save(embed_engines(graph, (), {}), path)

        (y,) = NativeSession(path).run({"x": X})

        np.testing.assert_allclose(y, EXPECTED[form](X), rtol=1e-5, atol=1e-5)
        assert np.abs(y - FUNCTIONS[function](X)).max() <= 0.15


def test_the_surroundings_are_the_nodes_before_and_behind(workshop: Workshop) -> None:
    graph = graph_of(workshop, "[a] a = Neg(x) [b] b = Abs(a) [s] c = Sigmoid(b) [d] d = Neg(c) [e] y = Abs(d)", 13)

    (place,) = find_places(graph)

    assert [node.name for node in context_of(graph, place)] == ["b", "s", "d"]
