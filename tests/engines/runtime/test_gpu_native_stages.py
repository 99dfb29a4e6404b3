"""Native stages on a GPU's streams, by ONNX Runtime's CUDA provider. It is simulated, as TensorRT and the GPU are."""

from __future__ import annotations

import numpy as np
import pytest

import simulated_cuda_provider
from arrays import floats
from simulated_cuda_provider import PROVIDER, Provider
from streams import ANYONE, NOTHING, Machine, between
from trtnode.engines.compile.opening import open_model
from trtnode.engines.runtime.options import RunOptions
from trtnode.partitioner.cut.options import Allowance

CHAIN = "g (float[2, 4] x) => (float[2, 4] y) { a = Relu(x) b = Softsign(a) c = Exp(b) d = Softsign(c) y = Abs(d) }"
ROWS = "g (float[N, 4] x) => (float[N, 4] y) { a = Relu(x) b = Softsign(a) y = Exp(b) }"


@pytest.fixture
def provider(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Provider:
    return simulated_cuda_provider.install(monkeypatch, machine.gpu)


def test_nothing_between_two_engines_leaves_the_gpu(
    machine: Machine, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[str] = []
    for name in ("memcpy_htod_async", "memcpy_dtoh_async"):
        copy = getattr(machine.driver, name)
        monkeypatch.setattr(
            machine.driver, name, lambda *args, copy=copy, name=name: (copies.append(name), copy(*args))
        )
    model = machine.load(CHAIN, native_ops=("Softsign",))
    copies.clear()

    model.check(x=floats(2, 4, seed=1))
    model.check(x=floats(2, 4, seed=2))

    assert copies == ["memcpy_htod_async", "memcpy_dtoh_async"] * 2
    assert model.fallbacks == []
    assert len(provider.sessions) >= 4


def test_sessions_never_ask_for_another_gpu_provider_and_never_fall_back(machine: Machine, provider: Provider) -> None:
    machine.load(CHAIN, native_ops=("Softsign",))

    assert {tuple(p[0] if isinstance(p, tuple) else p for p in s.providers) for s in provider.sessions} == {
        (PROVIDER, "CPUExecutionProvider")
    }
    assert not any(session.falls_back for session in provider.sessions)


@pytest.mark.parametrize("shift", [0, 64])
def test_results_of_any_shape_are_handed_on_in_place_or_aligned(
    shift: int, machine: Machine, provider: Provider
) -> None:
    machine.profiles = [{"x": between((1, 4), (8, 4))}]
    provider.shift = shift
    model = machine.load(ROWS, native_ops=("Softsign",))

    for rows in (2, 8, 8, 1):
        model.check(x=floats(rows, 4, seed=rows))

    assert model.fallbacks == []


def test_narrowed_tensors_pass_through_the_host(machine: Machine, provider: Provider) -> None:
    graph = "g (double[2, 3] x) => (double[2, 3] y) { a = Relu(x) b = Abs(a) y = Exp(b) }"
    model = machine.load(graph, allow=(Allowance.NARROW_DOUBLE,), native_ops=("Abs",))

    model.check(x=floats(2, 3).astype(np.float64))

    assert model.fallbacks == []


def test_results_of_fixed_and_of_other_shapes_are_told_apart(machine: Machine, provider: Provider) -> None:
    graph = """g (float[N, 4] x, float[6] w) => (float[N, 4] y, float[6] z) {
        a = Relu(x) c = Relu(w) b = Softsign(a) d = Softsign(c) y = Abs(b) z = Exp(d)
    }"""
    machine.profiles = [{"x": between((1, 4), (8, 4))}]
    model = machine.load(graph, native_ops=("Softsign",))

    model.check(x=floats(3, 4), w=floats(6))

    assert model.executable.facts.segments > 1
    assert model.fallbacks == []


def test_stage_that_the_provider_refuses_runs_on_the_host(
    machine: Machine, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    _, compiled = machine.compile(CHAIN, native_ops=("Softsign",))
    provider.refuses = "CUDA failure 100: no CUDA-capable device"

    results = open_model(compiled, run=RunOptions(trust=ANYONE)).run({"x": floats(2, 4)})

    assert results["y"].shape == (2, 4)
    assert "native_1 runs on the CPU, between copies" in caplog.text


def test_run_that_fails_is_answered_natively_and_the_next_works(
    machine: Machine, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    model = machine.load(CHAIN, native_ops=("Softsign",))
    provider.fails = "CUBLAS failure 3"

    model.check(x=floats(2, 4, seed=1))
    model.check(x=floats(2, 4, seed=2))

    assert model.fallbacks == ["engine_error"]
    assert "onnxruntime: CUBLAS failure 3" in caplog.text


def test_sessions_leave_nothing_behind(machine: Machine, provider: Provider) -> None:
    machine.profiles = [{"x": between((1, 4), (8, 4))}]
    model = machine.load(ROWS, native_ops=("Softsign",))
    for rows in (2, 8, 1):
        model.check(x=floats(rows, 4))

    provider.sessions.clear()
    model.executable.close()
    machine.clean()

    assert machine.gpu.leaks() == NOTHING
