"""Execution streams on the real pycuda, over a stand-in driver whose copies are late. TensorRT is simulated.

``make test-pycuda`` builds both and runs these tests.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from arrays import floats
from pycuda_stand_in import StandInGpu, find_library
from simulated_tensorrt import Simulation
from streams import Machine, between
from trtnode.engines.cuda import context

pytestmark = [
    pytest.mark.pycuda,
    pytest.mark.skipif(find_library() is None, reason="pycuda over a stand-in driver is not here: make test-pycuda"),
]

HYBRID = (
    "g (float[n, 4] x) => (float[n, 4] y) { a = Relu(x) b = Softsign(a) c = Add(b, a) d = Softsign(c) y = Tanh(d) }"
)
FIXED = "g (float[2, 4] x) => (float[2, 4] y) { a = Relu(x) b = Softsign(a) y = Tanh(b) }"
MAY_STAY = {"streams", "retained contexts", "events"}
"""Objects that streams keep for the next model."""


@pytest.fixture
def gpu() -> StandInGpu:
    return StandInGpu(find_library())


@pytest.fixture
def machine(
    gpu: StandInGpu, simulate: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> Machine:
    real = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "pycuda"}
    driver = context.driver
    simulation = simulate(gpu=gpu)
    for name, module in real.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(context, "driver", driver)
    return Machine(simulation, tmp_path)


def test_it_is_the_real_pycuda(machine: Machine) -> None:
    assert machine.driver.__file__.endswith(".py")
    assert machine.driver.Device(0).name() == "simulated GPU"


def test_a_thousand_requests_from_eight_threads_are_right_and_leave_nothing(machine: Machine, gpu: StandInGpu) -> None:
    machine.profiles = [{"x": between((1, 4), (8, 4))}]
    hybrid = machine.load(HYBRID, native_ops=("Softsign",))
    fixed = machine.load(FIXED, native_ops=("Softsign",))

    def ask(number: int) -> None:
        if number % 3:
            hybrid.check(x=floats(1 + number % 8, 4, seed=number))
        else:
            fixed.check(x=floats(2, 4, seed=number))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(1000)))
    for model in (hybrid, fixed):
        assert model.fallbacks == []
        model.executable.close()
    machine.clean()

    assert gpu.misuse == ""
    assert set(gpu.leaks()) <= MAY_STAY, gpu.leaks()


def test_a_request_outside_of_all_profiles_is_answered_natively(machine: Machine) -> None:
    machine.profiles = [{"x": between((1, 4), (8, 4))}]
    model = machine.load(HYBRID, native_ops=("Softsign",))

    model.check(x=floats(9, 4))

    assert model.fallbacks == ["outside_profiles"]


def test_results_belong_to_the_caller(machine: Machine) -> None:
    model = machine.load(FIXED, native_ops=("Softsign",))
    first = model.check(x=floats(2, 4, seed=1))["y"]
    before = first.copy()

    model.check(x=floats(2, 4, seed=2))

    np.testing.assert_array_equal(first, before)
