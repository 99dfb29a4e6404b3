"""Engines round where a model casts to float16, and stay inside their memory where nothing is left to compute."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import passed_through
from rounding_sweep import MOVES, roundings
from sweeps import wrong_answers
from trtnode.engines.inputs.input_uses import BEYOND_HALF, STEPS_APART, uses_of
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import clean_up
from workshop import Workshop


@pytest.mark.filterwarnings("ignore")
def test_casts_through_float16_round(tmp_path: pathlib.Path) -> None:
    wrong, taken = wrong_answers(list(roundings(("float",), ("float",))), tmp_path)

    assert wrong == []
    assert taken >= len(MOVES)


def test_inputs_that_pass_through_an_engine_leave_memory_whole(tmp_path: pathlib.Path) -> None:
    ran = passed_through.in_a_child("float", tmp_path)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.split() == ["right"] * len(list(passed_through.graphs("float")))


@pytest.mark.parametrize(
    ("graph", "unit"),
    [
        pytest.param(
            "g (float[N] x) => (float[N] y) { a = Cast<to = 10>(x) b = Identity(a) c = Neg(b) d = Abs(b)"
            " e = Cast<to = 1>(a) y = Identity(e) }",
            BEYOND_HALF,
            id="cast",
        ),
        pytest.param(
            "g (float[N] x) => (int8[N] y) <float s = {0.5}, int8 z = {0}> { y = QuantizeLinear(x, s, z) }",
            STEPS_APART / 2,
            id="quantization",
        ),
        pytest.param(
            "g (float[N] x) => (float[N] y) <float low = {-3}, float high = {6}> { y = Clip(x, low, high) }",
            6.0,
            id="clip",
        ),
    ],
)
def test_samples_lie_beyond_narrower_ranges(workshop: Workshop, graph: str, unit: float) -> None:
    assert any(np.isclose(tie, unit) for tie in uses_of(clean_up(load_model(workshop.write(graph)))).ties)
