"""A server measures a new model once, in the process that loads it; times are injected."""

from __future__ import annotations

import contextlib
import logging
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from clock import Clock, table
from stand_in_workers import InProcessWorker, LoadingHere

DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"


@pytest.mark.usefixtures("choosing_engines")
@pytest.mark.parametrize(("key", "measurements"), [("measure: true", 1), ("measure: false", 0)])
def test_first_load_measures_and_the_second_does_not(
    key: str,
    measurements: int,
    start: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock(InProcessWorker(), {}, table({"": 2.0, "0": 1.0}))
    monkeypatch.setattr("trtnode.serving.models.isolation.SubprocessWorker", LoadingHere)
    monkeypatch.setattr("trtnode.engines.build.context.SubprocessWorker", lambda: contextlib.nullcontext(clock))
    entry = f"- {{name: digits, path: {DIGITS}, engine: openvino, {key}}}\n"

    with caplog.at_level(logging.INFO):
        start(entry)
        first = len(clock.asked)
        start(entry)

    assert (first, len(clock.asked)) == (measurements, measurements)
    assert caplog.text.count("measured all native 2 ms, minimum cut 1 ms; minimum cut is kept") == measurements
    assert clock.sharing == [True] * measurements
