"""Stand-ins for libraries whose native parts can't be installed here. What runs on them did not run on the library."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import onnx
import pytest

from engines.tensorrt_parser import make_logger
from lanes import Machine
from simulated_tensorrt import Faults, Simulation, make_tensorrt


@pytest.fixture
def tensorrt() -> Iterator[Callable[..., Any]]:
    """Makes a simulated tensorrt module of some version, in which some things go wrong."""

    def make(*, version: str = "11.1.0.1", **faults: Any) -> Any:
        return make_tensorrt(Simulation(version=version, faults=Faults(**faults)))

    yield make
    make_logger.cache_clear()


@pytest.fixture
def model(tmp_path: pathlib.Path) -> pathlib.Path:
    text = "g (float[2] x) => (float[2] y) { a = Relu(x) b = Softsign(a) y = Tanh(b) }"
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'), path)
    return path


@pytest.fixture
def machine(simulate: Callable[..., Simulation], tmp_path: pathlib.Path) -> Iterator[Machine]:
    """A machine with a simulated GPU, on which nothing was misused when the test ends."""
    machine = Machine(simulate(), tmp_path)
    yield machine
    assert "pushed contexts" not in machine.gpu.leaks()
