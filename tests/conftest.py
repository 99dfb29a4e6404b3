"""Options and fixtures of all tests."""

from __future__ import annotations

import faulthandler
import os
import pathlib
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import onnx
import pytest

import kept_workers
import simulated_machine
from simulated_tensorrt import Simulation
from trtnode.engines.build.options import EVERY_ENGINE
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.partitioner.model import garbage
from trtnode.serving.threads.grpc_event_engine import read_sockets_directly

CRASHES = "TRTNODE_TEST_CRASHES"
"""Names the folder where each process of tests writes where it crashes."""


@pytest.hookimpl(trylast=True)  # behind pytest's handler of crashes, whose words end up between other processes' lines
def pytest_configure() -> None:
    if process := os.environ.get("PYTEST_XDIST_WORKER"):
        faulthandler.enable(os.open(f"{os.environ[CRASHES]}/{process}", os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    else:
        os.environ[CRASHES] = tempfile.mkdtemp()
    os.environ[EVERY_ENGINE] = "1"  # tests are about engines of tiny models, which are slower; see choosing_engines
    hypothesis.settings.register_profile("untimed", deadline=None)  # the machine may be busy
    hypothesis.settings.load_profile("untimed")
    read_sockets_directly()  # as servers do
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for what a script starts in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the programs that tests start would inherit that


def pytest_collection_finish() -> None:
    garbage.freeze()  # servers collect garbage as models retire: half a second each time among all tests' objects


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where processes of tests crashed; one that was killed wrote nothing."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    for path in sorted(pathlib.Path(os.environ[CRASHES]).iterdir()):
        if text := path.read_text():
            terminalreporter.section(f"{path.name} crashed")
            terminalreporter.write_line(text)
    shutil.rmtree(os.environ.pop(CRASHES))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--conformance",
        choices=("sample", "openvino", "tensorrt-rtx", "all"),
        default="sample",
        help="what to run the whole onnx backend test suite with, and the other engines with a sample of it",
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
    for simulation in made:
        simulation.gpu.removed = True
    assert [misuse for simulation in made for misuse in simulation.gpu.misuses] == []


@pytest.fixture
def simulated_worker(
    simulate: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> Iterator[Callable[[Simulation], SubprocessWorker]]:
    """Makes workers whose process has the same simulation as this one."""
    workers: list[SubprocessWorker] = []

    def make(simulation: Simulation) -> SubprocessWorker:
        simulated_machine.install_in_children(monkeypatch, simulation, tmp_path)
        workers.append(SubprocessWorker())
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


@pytest.fixture
def model(tmp_path: pathlib.Path) -> pathlib.Path:
    """A model whose middle node TensorRT does not have."""
    text = "g (float[2] x) => (float[2] y) { a = Relu(x) b = Softsign(a) y = Tanh(b) }"
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'), path)
    return path


@pytest.fixture(scope="session")
def worker() -> Iterator[SubprocessWorker]:
    """The child that builds and checks engines for all tests that run in this process."""
    with SubprocessWorker() as worker:
        yield worker


@pytest.fixture(scope="session", autouse=True)
def _kept_workers() -> Iterator[None]:
    """Has commands and servers in this process leave their workers to the next."""
    with pytest.MonkeyPatch.context() as patch:
        for name in kept_workers.places():
            patch.setattr(name, kept_workers.LentWorker)
        patch.setattr("trtnode.serving.models.isolation.IDLE_S", 0)  # a server that has stopped holds none back
        yield
    for _, worker in kept_workers.idle:
        worker.close()


@pytest.fixture
def no_kept_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the test start its own workers."""
    monkeypatch.setattr(kept_workers, "idle", [])


@pytest.fixture
def choosing_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options choose the engines that stay, as they do outside tests."""
    monkeypatch.delenv(EVERY_ENGINE)


@pytest.fixture(scope="module")
def brief_tuning() -> Iterator[None]:
    """Compilations measure for moments: for tests about what is measured and told, whatever turns out to be faster."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("WHOLE_S", "PARTS_S", "SUBSET_S"):
            patch.setattr(f"trtnode.engines.tuning.tuner.{name}", 0.1)
        yield
