"""A simulated GPU machine is found like a real one, here and in worker processes."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable

import pytest

import simulated_machine
from simulated_tensorrt import Faults, Plan, Simulation
from trtnode.engines.backends import library_jobs
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.progress import Progress, listening
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.errors import WorkerError
from trtnode.partitioner.cut.labels import SUPPORTED


def test_the_backend_finds_the_library_and_the_gpu(simulate: Callable[..., Simulation]) -> None:
    simulate(version="10.13.3.9")

    backend = get_backend("tensorrt")

    assert backend.version() == "10.13.3.9+simulated"
    assert backend.device().name == "simulated GPU"


def test_nothing_of_a_simulation_is_left() -> None:
    before = {name: sys.modules.get(name) for name in ("tensorrt", "pycuda")}
    with pytest.MonkeyPatch.context() as patch:
        simulated_machine.install(patch, Simulation())
        assert sys.modules["tensorrt"] is not before["tensorrt"]
    simulated_machine.forget()

    assert {name: sys.modules.get(name) for name in before} == before


def test_a_worker_process_builds_on_the_same_machine(
    simulate: Callable[..., Simulation],
    simulated_worker: Callable[[Simulation], SubprocessWorker],
    model: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    worker = simulated_worker(simulate(version="10.16.1.11"))

    worker.call(library_jobs.build, 60, "tensorrt", model, tmp_path / "engine", BuildOptions())

    plan = Plan.from_bytes((tmp_path / "engine").read_bytes())
    assert (plan.version, plan.gpu) == ("10.16.1.11", "simulated GPU")
    assert worker.call(library_jobs.check_support, 60, "tensorrt", model) == SUPPORTED


def test_a_build_that_crashes_ends_the_worker_process_alone(
    simulate: Callable[..., Simulation],
    simulated_worker: Callable[[Simulation], SubprocessWorker],
    model: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    worker = simulated_worker(simulate(faults=Faults(build_crashes=True)))

    with pytest.raises(WorkerError, match="exit code 139"):
        worker.call(library_jobs.build, 60, "tensorrt", model, tmp_path / "engine", BuildOptions())


def test_a_worker_process_tells_how_far_a_build_is(
    simulate: Callable[..., Simulation],
    simulated_worker: Callable[[Simulation], SubprocessWorker],
    model: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    worker = simulated_worker(simulate())
    said: list[Progress] = []

    with listening(said.append):
        worker.call(library_jobs.build, 60, "tensorrt", model, tmp_path / "engine", BuildOptions())

    assert [(progress.phase, progress.done, progress.total) for progress in said] == [
        ("Building Engine", done, 3) for done in (0, 1, 2, 3, 3)
    ]


def test_a_build_that_takes_too_long_is_stopped_however_much_it_tells(
    simulate: Callable[..., Simulation],
    simulated_worker: Callable[[Simulation], SubprocessWorker],
    model: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    worker = simulated_worker(simulate(faults=Faults(build_step_s=100)))

    with pytest.raises(WorkerError, match="build took longer than 1 s and was stopped"):
        worker.call(library_jobs.build, 1, "tensorrt", model, tmp_path / "engine", BuildOptions())
