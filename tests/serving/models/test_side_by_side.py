"""Models load side by side, small ones first; those that answer natively already build behind requests."""

from __future__ import annotations

import os
import pathlib
import threading
import urllib.request

import pytest
from prometheus_client import generate_latest

from tests.serving.conftest import Adders, Eventually, FakeExecutable, Starter
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.serving.models import repository
from trtnode.serving.models.isolation import half_of_memory_mb, loads_at_a_time
from trtnode.serving.schema.model import ModelConfig
from trtnode.serving.schema.server import LimitsConfig
from trtnode.serving.threads import background
from trtnode.serving.threads.background import background_cores, in_background, is_in_background

WAIT_S = 60


@pytest.fixture
def two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "loads_at_a_time", lambda _limits: 2)


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "loads_at_a_time", lambda _limits: 1)


def files(folder: pathlib.Path, **sizes: int) -> str:
    """Write files of these sizes; return their entries of servable.yaml."""
    for name, size in sizes.items():
        (folder / f"{name}.onnx").write_bytes(bytes(size))
    return "".join(f"- {{name: {name}, path: {name}.onnx}}\n" for name in sizes)


@pytest.mark.usefixtures("two_at_a_time")
def test_two_models_load_at_the_same_time(start: Starter, adders: Adders, fake: FakeExecutable) -> None:
    together = threading.Barrier(2, timeout=WAIT_S)

    def load(_model: ModelConfig) -> FakeExecutable:
        together.wait()
        return fake

    running = start(files(adders.folder, a=1, b=1), loader=load)

    assert running.client.is_server_ready()


@pytest.mark.usefixtures("two_at_a_time")
def test_models_of_one_file_load_at_the_same_time(start: Starter, adders: Adders) -> None:
    adders.write("m.onnx", 1)
    names = ("a", "b", "c", "d")

    running = start("".join(f"- {{name: {name}, path: m.onnx, engine: native}}\n" for name in names))

    assert [adders.ask(running.client, model=name) for name in names] == [1] * len(names)


@pytest.mark.usefixtures("one_at_a_time")
def test_small_models_load_first(start: Starter, adders: Adders, fake: FakeExecutable) -> None:
    loaded: list[str] = []

    def load(model: ModelConfig) -> FakeExecutable:
        loaded.append(model.name)
        return fake

    start(files(adders.folder, large=3000, small=10, middle=200), loader=load)

    assert loaded == ["small", "middle", "large"]


def test_loads_take_no_more_than_all_of_the_memory() -> None:
    half_mb = half_of_memory_mb()

    assert loads_at_a_time(LimitsConfig(load_memory_mb=2 * half_mb)) == 1
    assert loads_at_a_time(LimitsConfig(load_memory_mb=64)) == loads_at_a_time(LimitsConfig(load_memory_mb=65))
    assert 1 <= loads_at_a_time(LimitsConfig()) <= 2


@pytest.mark.usefixtures("two_at_a_time")
def test_models_that_answer_natively_build_one_by_one_behind_requests(
    start: Starter, adders: Adders, fake: FakeExecutable, eventually: Eventually
) -> None:
    may_build = threading.Event()
    building: list[str] = []

    def load(model: ModelConfig) -> FakeExecutable:
        if model.options.engine != "native":
            assert is_in_background()
            building.append(model.name)
            assert may_build.wait(WAIT_S)
        return fake

    running = start(files(adders.folder, a=1, b=1), server="startup: native", loader=load)
    eventually(lambda: bool(building))

    notes = readyz(running.http)
    metrics = generate_latest(running.server.metrics.registry).decode()
    assert notes == [
        "ready",
        "model 'a' version 1 answers natively: its engines are being built",
        "model 'b' version 1 answers natively: its engines are being built",
    ]
    assert 'trtnode_model_building{model="b",version="1"} 1.0' in metrics
    assert building == ["a"]
    may_build.set()

    eventually(lambda: readyz(running.http) == ["ready"])
    assert building == ["a", "b"]


def readyz(address: str) -> list[str]:
    with urllib.request.urlopen(f"{address}/readyz", timeout=WAIT_S) as answer:
        return answer.read().decode().splitlines()


def test_background_work_has_half_of_the_cores_at_a_low_priority() -> None:
    with SubprocessWorker(niceness=background.NICENESS, cores=background_cores()) as worker:
        cores = worker.call(os.sched_getaffinity, WAIT_S, 0)
        niceness = worker.call(os.nice, WAIT_S, 0)

    assert len(cores) == max(1, len(os.sched_getaffinity(0)) // 2)
    assert niceness == os.nice(0) + background.NICENESS
    with in_background():
        assert is_in_background()
    assert not is_in_background()
