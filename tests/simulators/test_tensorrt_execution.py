"""Engines of TensorRT on the lanes of a GPU. Both are simulated: nothing here ran on TensorRT or on a GPU."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import gc
import pathlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import simulated_machine
from simulated_tensorrt import Simulation

from engines import CompileOptions, Executable, compile_model, load_executable, tensorrt_backend
from engines.errors import EngineError
from engines.tensorrt_build import BuildSettings, ShapeRange
from partitioner import Allowance, PartitionOptions

DIGITS = pathlib.Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
HYBRID = """g (float[2, 8] x) => (float[2, 8] y, float[2, 8] z) {
    a = Relu(x)
    b = Softsign(a)
    c = Add(b, a)
    y = Exp(c)
    d = Softsign(y)
    z = Mul(d, c)
}"""
"""Two engines with a native node between them, and a native node and an engine after them."""


class Here:
    """What a Worker does, in this process."""

    def call(self, function: Callable[..., Any], timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        del timeout_s
        return function(*args, **kwargs)


class Machine:
    """A machine with a simulated GPU.

    Attributes:
        simulation: Its TensorRT.
        gpu: Its GPU.
        profiles: For the engines that are built from now on.
    """

    def __init__(self, simulation: Simulation, folder: pathlib.Path) -> None:
        self.simulation = simulation
        self.gpu = simulation.gpu
        self.profiles: Sequence[dict[str, ShapeRange]] = ()
        self._folder = folder
        self._number = 0

    def compile(self, model: str | pathlib.Path, **options: Any) -> tuple[pathlib.Path, pathlib.Path]:
        """Give the source and the compiled file."""
        self._number += 1
        source = self._write(model) if isinstance(model, str) else model
        compiled = self._folder / f"compiled_{self._number}.onnx"
        wishes = CompileOptions(engine="tensorrt", partition=PartitionOptions(**options))
        compile_model(source, wishes, worker=Here()).save(compiled)  # type: ignore[arg-type]
        return source, compiled

    def load(self, model: str | pathlib.Path, **options: Any) -> Loaded:
        """Compile a model and load it."""
        source, compiled = self.compile(model, **options)
        return Loaded(load_executable(compiled), onnxruntime.InferenceSession(source))

    def _write(self, text: str) -> pathlib.Path:
        path = self._folder / f"model_{self._number}.onnx"
        onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'), path)
        return path


class Loaded:
    """A loaded model, and its source in ONNX Runtime.

    Attributes:
        executable: The model.
        fallbacks: Why requests were answered natively.
        losses: What ``on_loss`` was told.
    """

    def __init__(self, executable: Executable, session: onnxruntime.InferenceSession) -> None:
        self.executable = executable
        self.fallbacks: list[str] = []
        self.losses: list[str] = []
        executable.on_fallback = self.fallbacks.append
        executable.on_loss = self.losses.append
        self._session = session

    def check(self, **feeds: np.ndarray) -> dict[str, np.ndarray]:
        """Run, and compare the results with ONNX Runtime's."""
        results = self.executable.run(feeds)
        for value, (name, result) in zip(self._session.run(None, feeds), results.items(), strict=True):
            assert (result.dtype, result.shape) == (value.dtype, value.shape)
            np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6, err_msg=name)
        return results


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def between(low: tuple[int, ...], high: tuple[int, ...]) -> ShapeRange:
    return ShapeRange(low=low, best=high, high=high)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[Machine]:
    """Has built, loaded and freed all without misuse when the test ends."""
    simulation = Simulation()
    simulated_machine.install(monkeypatch, simulation)
    machine = Machine(simulation, tmp_path)
    monkeypatch.setattr(
        tensorrt_backend, "BuildSettings", lambda: BuildSettings(profiles=machine.profiles)
    )
    yield machine
    assert machine.gpu.misuses == []
    assert "pushed contexts" not in machine.gpu.leaks()


def test_network_with_a_dynamic_batch_gives_what_native_execution_gives(machine) -> None:
    machine.profiles = [{"image": between((1, 1, 8, 8), (16, 1, 8, 8))}]
    model = machine.load(DIGITS)

    for batch in (1, 16, 3, 3, 1):
        model.check(image=numbers(batch, 1, 8, 8, seed=batch))

    assert model.executable.description["engine"] == "tensorrt"
    assert model.fallbacks == []


def test_native_stages_between_engines_run_on_the_host(machine) -> None:
    model = machine.load(HYBRID, native_ops=("Softsign",))

    for seed in range(3):
        model.check(x=numbers(2, 8, seed=seed))

    assert model.executable.description["segments"] == 3
    assert model.fallbacks == []


def test_tensor_between_two_engines_stays_on_the_gpu(machine, monkeypatch) -> None:
    model = machine.load(HYBRID, native_ops=("Softsign",))
    model.check(x=numbers(2, 8))
    copies: list[str] = []
    machine.count_copies(monkeypatch, copies)

    model.check(x=numbers(2, 8))

    assert copies == []
