"""A server measures a new model once, in the process that loads it; times are injected."""

from __future__ import annotations

import logging
import os
import pathlib
import time

import pytest
from prometheus_client import generate_latest

from clock import Clock, table
from stand_in_workers import InProcessWorker, LoadingHere
from tests.serving.conftest import Eventually, Starter
from trtnode.engines.build.subprocess_worker import SpareWorkers

DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(InProcessWorker(), {}, table({"": 2.0, "0": 1.0}))
    monkeypatch.setattr("trtnode.serving.models.isolation.SubprocessWorker", LoadingHere)
    monkeypatch.setattr("trtnode.engines.build.context.BUILDERS", SpareWorkers(lambda: clock))
    return clock


@pytest.mark.usefixtures("choosing_engines")
@pytest.mark.parametrize(("key", "measurements"), [("measure: true", 1), ("measure: false", 0)])
def test_first_load_measures_and_the_second_does_not(
    key: str,
    measurements: int,
    clock: Clock,
    start: Starter,
    caplog: pytest.LogCaptureFixture,
) -> None:
    entry = f"- {{name: digits, path: {DIGITS}, engine: openvino, {key}}}\n"

    with caplog.at_level(logging.INFO):
        start(entry)
        first = len(clock.asked)
        start(entry)

    assert (first, len(clock.asked)) == (measurements, measurements)
    assert caplog.text.count("measured all native 2 ms, minimum cut 1 ms; minimum cut is kept") == measurements
    assert clock.sharing == [True] * measurements


@pytest.mark.usefixtures("choosing_engines")
def test_a_choice_beside_busy_programs_is_made_again_once_the_machine_is_quiet(
    clock: Clock,
    start: Starter,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    load = 3.0 * (os.cpu_count() or 1)
    monkeypatch.setattr("trtnode.serving.models.watcher.os.getloadavg", lambda: (load, load, load))
    monkeypatch.setattr("trtnode.serving.models.watcher.PAUSE_S", 0.0)
    monkeypatch.setattr("trtnode.serving.models.watcher.POLL_S", 0.05)
    clock.busy = True
    labels = 'model="digits",version="1"'

    with caplog.at_level(logging.INFO):
        server = start(f"- {{name: digits, path: {DIGITS}, engine: openvino, no_optimize: [reshapes]}}\n").server
        time.sleep(0.5)
        before = generate_latest(server.metrics.registry).decode()
        clock.busy, load = False, 0.1
        eventually(lambda: f'engine="openvino",{labels}}} 1.0' in generate_latest(server.metrics.registry).decode())

    assert f"trtnode_repeated_measurements_total{{{labels}}} 0.0" in before
    assert f"trtnode_repeated_measurements_total{{{labels}}} 1.0" in generate_latest(server.metrics.registry).decode()
    assert len(clock.asked) == 2
    assert "'digits' version 1 is measured again: the machine is quiet now" in caplog.text
