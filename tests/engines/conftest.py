"""Fixtures of all tests of engines: a workshop for models, fake backends, samples of digits."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from comparison import AssertSame, RunPlainly, assert_same, run_plainly
from faulty_backends import UnreliableBackend
from model_texts import parse
from offered_engines import forget_engines, offer
from precision import precision_options
from simulated_tensorrt import Faults, Simulation, make_tensorrt
from stand_in_workers import InProcessWorker
from streams import Machine
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.precision.options import Calibration
from trtnode.engines.runtime.executor import Executable
from workshop import Workshop

DIGITS = pathlib.Path(__file__).parents[2] / "examples" / "digits"

PAIR = """g (float[1,4] x) => (float[1,4] y) {
    [first] a = MatMul(x, w) [middle] r = Relu(a) [second] y = MatMul(r, v)
}"""


@pytest.fixture
def workshop(tmp_path: pathlib.Path, worker: SubprocessWorker) -> Workshop:
    return Workshop(tmp_path, worker)


@pytest.fixture(scope="module")
def shared_workshop(tmp_path_factory: pytest.TempPathFactory, worker: SubprocessWorker) -> Workshop:
    """For models that several tests of a file only read."""
    return Workshop(tmp_path_factory.mktemp("models"), worker)


@pytest.fixture
def in_process() -> InProcessWorker:
    return InProcessWorker()


@pytest.fixture
def plain() -> RunPlainly:
    return run_plainly


@pytest.fixture
def same() -> AssertSame:
    return assert_same


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[type[Any]], None]]:
    """Registers a backend by its name, for workers that run in this process."""

    def add(backend: type[Any]) -> None:
        offer(monkeypatch, backend.name, backend)

    yield add
    forget_engines()


@pytest.fixture
def unreliable(register: Callable[[type[Any]], None]) -> type[UnreliableBackend]:
    """A backend named ``unreliable``, for workers that run in this process."""
    backend = type("Unreliable", (UnreliableBackend,), {})
    register(backend)
    return backend


@pytest.fixture
def cache(tmp_path: pathlib.Path) -> EngineCache:
    return EngineCache(tmp_path / "cache", 2**30)


@pytest.fixture
def fallbacks() -> Callable[[Executable], list[str]]:
    """Collects the reasons for which an executable answers natively."""

    def watch(executable: Executable) -> list[str]:
        reasons: list[str] = []
        executable.on_fallback = reasons.append
        return reasons

    return watch


@pytest.fixture(scope="session")
def digits() -> pathlib.Path:
    return DIGITS / "digits.onnx"


@pytest.fixture(scope="session")
def digits_test() -> Mapping[str, np.ndarray]:
    with np.load(DIGITS / "test.npz") as archive:
        return dict(archive)


@pytest.fixture
def pair(workshop: Workshop) -> pathlib.Path:
    """A model of two layers with an activation between them."""
    rng = np.random.default_rng(3)
    weights = {name: rng.normal(size=(4, 4)).astype(np.float32) for name in "wv"}
    return workshop.write(parse(PAIR, **weights))


@pytest.fixture
def vectors(tmp_path: pathlib.Path) -> Calibration:
    """Calibration data for ``pair``."""
    path = tmp_path / "vectors.npz"
    np.savez(path, x=np.random.default_rng(5).normal(size=(40, 1, 4)).astype(np.float32))
    return Calibration(data=str(path), method="minmax")


@pytest.fixture(scope="module")
def int8(shared_workshop: Workshop, digits: pathlib.Path) -> CompiledModel:
    """The digits in INT8."""
    return shared_workshop.compile(digits, precision=precision_options("int8", min_top1_agreement=0.975))


@pytest.fixture
def tensorrt() -> Callable[..., Any]:
    """Makes a simulated tensorrt module of some version, in which some things go wrong."""

    def make(*, version: str = "11.1.0.1", **faults: Any) -> Any:
        return make_tensorrt(Simulation(version=version, faults=Faults(**faults)))

    return make


@pytest.fixture
def machine(simulate: Callable[..., Simulation], tmp_path: pathlib.Path) -> Iterator[Machine]:
    """A machine with a simulated GPU, on which nothing was misused when the test ends."""
    machine = Machine(simulate(), tmp_path)
    yield machine
    assert "pushed contexts" not in machine.gpu.leaks()
