"""Options and fixtures of all tests."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import simulated_machine
from engines import Worker
from simulated_tensorrt import Simulation


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--conformance",
        choices=("sample", "all"),
        default="sample",
        help="how much of the onnx backend test suite to run",
    )


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Simulation]]:
    """Puts a simulated GPU with TensorRT into this process. At the end nothing may have been misused."""
    made: list[Simulation] = []

    def make(**settings: Any) -> Simulation:
        made.append(Simulation(**settings))
        simulated_machine.install(monkeypatch, made[-1])
        return made[-1]

    yield make
    monkeypatch.undo()
    simulated_machine.forget()
    assert [misuse for simulation in made for misuse in simulation.gpu.misuses] == []


@pytest.fixture
def simulated_worker(
    simulate: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> Iterator[Callable[[Simulation], Worker]]:
    """Makes workers whose process has the same simulation as this one."""
    workers: list[Worker] = []

    def make(simulation: Simulation) -> Worker:
        simulated_machine.install_in_children(monkeypatch, simulation, tmp_path)
        workers.append(Worker())
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()
