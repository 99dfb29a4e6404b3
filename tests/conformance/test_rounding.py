"""All types through what an engine's library rounds or folds away; the ordinary tests have a sample of it."""

from __future__ import annotations

import pathlib

import pytest

import passed_through
from rounding_sweep import MOVES, roundings
from sweeps import TYPES, wrong_answers


@pytest.mark.filterwarnings("ignore")
def test_casts_through_float16_round(tmp_path: pathlib.Path) -> None:
    sources = ("float", "int32", "int64")

    wrong, taken = wrong_answers(list(roundings(sources, (*sources, "bool"))), tmp_path)

    assert wrong == []
    assert taken >= len(sources) * len(MOVES)


@pytest.mark.parametrize("kind", TYPES)
def test_inputs_that_pass_through_an_engine_leave_memory_whole(kind: str, tmp_path: pathlib.Path) -> None:
    ran = passed_through.in_a_child(kind, tmp_path)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.split() == ["right"] * len(list(passed_through.graphs(kind)))
