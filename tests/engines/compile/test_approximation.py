"""Compilation with approximations: which places are taken, and what the report says of all."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

from comparison import RunPlainly
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.compile.prepare import load_executable
from trtnode.engines.precision.options import AccuracyBudget, PrecisionOptions
from workshop import Workshop

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("briefly", "one_builder")]

GRAPH = """g (float[4,64] x) => (float[4,64] y) {
    [in] a = Neg(x) [sig] s = Sigmoid(a) [mid] b = Abs(s) [gelu] c = Gelu(b) [out] y = Neg(c)
}"""

ERRORS = {"hard sigmoid": 0.07, "tanh": 1e-3, "sigmoid": 0.03}


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PLACE_S", "WHOLE_S"):
        monkeypatch.setattr(f"trtnode.engines.compile.approximation.{name}", 0.02)


@pytest.fixture
def all_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trtnode.engines.compile.approximation.is_faster", lambda *_: True)
    monkeypatch.setattr("trtnode.engines.compile.approximation._gain", lambda _: 1.5)


def compile_approximately(workshop: Workshop, source: pathlib.Path, **limits: float) -> CompiledModel:
    precision = PrecisionOptions(approximate=True, budget=AccuracyBudget(**limits))
    return workshop.compile(source, engine="native", precision=precision)


def places(compiled: CompiledModel) -> list[dict[str, Any]]:
    found = compiled.report.as_json()["approximations"]
    return list(found["places"])


@pytest.mark.usefixtures("all_pay")
def test_places_that_pay_are_taken_and_told_with_their_figures(workshop: Workshop) -> None:
    compiled = compile_approximately(workshop, workshop.write(GRAPH))

    taken = {(p["node"], p["function"], p["form"]) for p in places(compiled) if p["taken"]}
    assert taken == {("sig", "sigmoid", "hard sigmoid"), ("gelu", "GELU", "tanh")}
    assert all(0 < p["error"]["max_abs"] <= ERRORS[p["form"]] for p in places(compiled))
    assert all(p["alone"] == p["speed_up"] == 1.5 and p["share"] > 0 for p in places(compiled))
    assert compiled.report.approximations is not None
    assert compiled.report.approximations["together"]["speed_up"] == 1.5
    assert {"HardSigmoid", "Gelu"} <= {node.op_type for node in compiled.model.graph.node}


@pytest.mark.usefixtures("all_pay")
def test_what_breaks_the_budget_is_named_and_left_out(workshop: Workshop) -> None:
    compiled = compile_approximately(workshop, workshop.write(GRAPH), max_abs=0.005)

    by_form = {p["form"]: p for p in places(compiled)}
    assert {form for form, p in by_form.items() if p["taken"]} == {"tanh"}
    assert "more than 0.005" in by_form["hard sigmoid"]["why"]
    assert compiled.approximated


def test_places_that_do_not_pay_are_named_and_left_out(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trtnode.engines.compile.approximation.is_faster", lambda *_: False)

    compiled = compile_approximately(workshop, workshop.write(GRAPH))

    assert [p["why"] for p in places(compiled)] == ["it is not faster in its surroundings"] * 3
    assert not compiled.approximated
    assert {node.op_type for node in compiled.model.graph.node} == {"Neg", "Sigmoid", "Abs", "Gelu"}


def test_a_model_without_places_is_as_it_would_be(workshop: Workshop) -> None:
    compiled = compile_approximately(workshop, workshop.write("g (float[4] x) => (float[4] y) { y = Neg(x) }"))

    assert places(compiled) == []


def test_nothing_is_approximated_by_default(workshop: Workshop) -> None:
    compiled = workshop.compile(workshop.write(GRAPH), engine="native")

    assert compiled.report.approximations is None


@pytest.mark.usefixtures("all_pay")
def test_places_in_engines_are_measured_in_engines(workshop: Workshop, plain: RunPlainly) -> None:
    compiled = workshop.compile(workshop.write(GRAPH), engine="openvino", approximate=True, all_engines=True)

    assert {p["backend"] for p in places(compiled)} == {"openvino"}
    path = workshop.folder / "compiled.onnx"
    compiled.save(path)
    x = np.linspace(-3, 3, 256, dtype=np.float32).reshape(4, 64)
    executable = load_executable(path)
    assert executable.description["segments"] == 1
    assert 1e-4 < np.abs(executable.run({"x": x})["y"] - plain(workshop.write(GRAPH), {"x": x})["y"]).max() < 0.1
