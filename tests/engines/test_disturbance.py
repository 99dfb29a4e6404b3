"""What noise of a model's parts does to its answers."""

from __future__ import annotations

import math
import pathlib

import numpy as np
import onnx
import pytest

from engines.disturbance import NoiseMeter, make_disturbable
from engines.files import write_model
from partitioner import Graph, extract_model, load_model

EDGES = "net (float[1, 4] x) => (float[1, 4] y) { a = Add (x, x)  b = Neg (a)  c = Abs (b)  y = Add (c, b) }"


@pytest.fixture
def meter(workshop, tmp_path: pathlib.Path) -> NoiseMeter:
    graph = Graph.of(load_model(workshop.write(EDGES)))
    values = [node.op.outputs[0] for node in graph.nodes]
    model = extract_model(graph, graph.nodes, inputs=graph.inputs, outputs=values)
    write_model(make_disturbable(model, values), tmp_path / "disturbable.onnx")
    return NoiseMeter(tmp_path / "disturbable.onnx", ["y"])


def run(meter: NoiseMeter, x: np.ndarray) -> dict[str, np.ndarray]:
    return {"x": x, **dict(zip(meter.session.outputs, meter.session.run({"x": x}), strict=True))}


def test_without_noise_a_model_computes_what_it_did(meter, plain, workshop) -> None:
    x = np.float32([[1, -2, 3, -4]])

    np.testing.assert_array_equal(run(meter, x)["y"], plain(workshop.write(EDGES), {"x": x})["y"])


def test_noise_counts_by_what_is_left_of_it_in_the_answers(meter) -> None:
    x = np.float32([[-1, -1, -1, -1]])
    values = run(meter, x)

    meter.add("first", {"x": x}, values, {"a": values["a"] + np.float32(0.2)})
    meter.add("third", {"x": x}, values, {"c": values["c"] + np.float32(0.2)})

    found = meter.decibels()
    assert found["first"] == (pytest.approx(20), pytest.approx(20))
    assert found["third"] == (pytest.approx(20 * math.log10(20)), pytest.approx(20))


def test_noise_that_no_answer_shows_is_still_told(meter) -> None:
    x = np.float32([[1, 1, 1, 1]])
    values = run(meter, x)

    meter.add("first", {"x": x}, values, {"a": values["a"] + np.float32(0.2)})

    assert meter.decibels()["first"] == (math.inf, pytest.approx(20))


def test_what_is_exact_has_no_noise(meter) -> None:
    x = np.float32([[-1, 2, -3, 4]])
    values = run(meter, x)

    meter.add("first", {"x": x}, values, {"a": values["a"]})

    assert meter.decibels() == {"first": (math.inf, math.inf)}


def test_integers_take_no_noise(workshop) -> None:
    graph = Graph.of(
        load_model(workshop.write("net (float[1, 4] x) => (int64[1] y) { y = ArgMax <axis = 1, keepdims = 0> (x) }"))
    )
    values = [node.op.outputs[0] for node in graph.nodes]
    model = extract_model(graph, graph.nodes, inputs=graph.inputs, outputs=values)

    assert [v.name for v in make_disturbable(model, values).graph.input] == ["x"]
    assert model.graph.node[0].op_type == "ArgMax"
    onnx.checker.check_model(model)
