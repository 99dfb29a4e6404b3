"""Faults of the simulated TensorRT have the effects of real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from simulated_cuda.errors import ILLEGAL_ADDRESS, LAUNCH_FAILED
from simulated_tensorrt import Faults, Simulation
from workbench import Workbench, as_model

CHAIN = "g (float[2,3] x) => (float[2,3] y) { a = Relu(x) y = Tanh(a) }"
X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize("name", ["Builder", "Runtime"])
def test_without_a_gpu_nothing_starts(name: str, bench: Workbench) -> None:
    bench.simulation.faults.builder_missing = True

    with pytest.raises(TypeError, match="factory function returned nullptr"):
        getattr(bench.trt, name)(bench.logger)


@pytest.mark.parametrize(
    ("fault", "ask"),
    [
        ("build_fails", lambda bench, plan, engine: bench.build(CHAIN)),
        (
            "deserialize_fails",
            lambda bench, plan, engine: bench.trt.Runtime(bench.logger).deserialize_cuda_engine(plan),
        ),
        ("context_fails", lambda bench, plan, engine: engine.create_execution_context()),
    ],
)
def test_a_failure_gives_none_and_its_cause_is_in_the_log(
    fault: str, ask: Callable[..., Any], bench: Workbench
) -> None:
    plan, engine = bench.build(CHAIN), bench.engine(CHAIN)
    setattr(bench.simulation.faults, fault, "out of memory")

    assert ask(bench, plan, engine) is None
    assert bench.said[-1] == "out of memory"


def test_one_enqueue_of_several_fails(bench: Workbench) -> None:
    bound = bench.context(CHAIN)
    bound.give(x=X)
    bench.simulation.faults.enqueue_fails_after = 1

    assert [bound.enqueue() for _ in range(3)] == [True, False, True]
    assert bench.simulation.enqueues == 3
    np.testing.assert_allclose(bound.take("y", np.float32), np.tanh(X), atol=1e-6)


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (ILLEGAL_ADDRESS, "LogicError", "an illegal memory access was encountered"),
        (LAUNCH_FAILED, "LaunchError", "unspecified launch failure"),
    ],
)
def test_an_error_of_a_kernel_comes_late_and_stays(code: int, kind: str, said: str, bench: Workbench) -> None:
    bound = bench.context(CHAIN)
    bound.give(x=X)
    bench.gpu.fails_kernel = code

    assert bound.enqueue()
    for _ in range(2):
        with pytest.raises(getattr(bench.cuda, kind), match=said):
            bench.stream.synchronize()
    assert not bound.enqueue()


def test_engines_that_do_not_compute_cost_the_host_alone(bench: Workbench) -> None:
    bound = bench.context(CHAIN)
    bench.gpu.computes = False

    assert bound.enqueue()
    assert bench.simulation.enqueues == 0


def test_a_build_tells_its_progress_and_can_be_stopped(bench: Workbench) -> None:
    steps: list[object] = []

    class Monitor(bench.trt.IProgressMonitor):
        def __init__(self, last: int) -> None:
            bench.trt.IProgressMonitor.__init__(self)
            self._last = last

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int):
            steps.append((phase_name, num_steps))

        def step_complete(self, phase_name: str, step: int):
            steps.append(step)
            return step < self._last

        def phase_finish(self, phase_name: str):
            steps.append("finished")

    assert bench.build(CHAIN, progress_monitor=Monitor(9)) is not None
    assert steps == [("Building Engine", 2), 0, 1, "finished"]
    assert bench.build(CHAIN, progress_monitor=Monitor(0)) is None
    assert "cancelled" in bench.said[-1]


def test_a_monitor_that_raises_stops_the_build(bench: Workbench, capfd: pytest.CaptureFixture[str]) -> None:
    class Monitor(bench.trt.IProgressMonitor):
        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int):
            raise ValueError("the terminal is gone")

    assert bench.build(CHAIN, progress_monitor=Monitor()) is None
    assert "the terminal is gone" in capfd.readouterr().err


def test_too_little_workspace_fails_the_build(bench: Workbench) -> None:
    network, _, _ = bench.parse(CHAIN)
    config = network.builder.create_builder_config()
    config.set_memory_pool_limit(bench.trt.MemoryPoolType.WORKSPACE, 16)

    assert network.builder.build_serialized_network(network, config) is None
    assert "Workspace of 16 bytes is too small" in bench.said[-1]


def test_a_gpu_that_is_full_has_no_room_for_a_context() -> None:
    bench = Workbench()
    engine = bench.engine(CHAIN)
    bench.gpu.total_bytes = 128

    assert engine.create_execution_context() is None
    assert "out of memory" in bench.said[-1]


def test_faults_travel_to_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(version="10.3.0", faults=Faults(refuses={"Relu": ("INVALID_NODE", "odd")}))
    monkeypatch.setenv("SIMULATED_TENSORRT", simulation.to_json())

    found = Simulation.of_process()

    assert (found.version, dict(found.faults.refuses)) == ("10.3.0", {"Relu": ["INVALID_NODE", "odd"]})


def test_several_parsers_errors_are_told_with_their_nodes(bench: Workbench) -> None:
    network = bench.trt.Builder(bench.logger).create_network()
    parser = bench.trt.OnnxParser(network, bench.logger)
    text = "g (float[2,2] x) => (float y, float z) { a = Relu(x) y = Det(a) b = Relu(x) z = Det(b) }"

    assert not parser.supports_model_v2(as_model(text).SerializeToString())
    assert [parser.get_error(i).node() for i in range(parser.num_errors)] == [1, 3]
    assert [parser.get_subgraph_nodes(i) for i in range(parser.num_subgraphs)] == [[0], [2]]
    assert not parser.is_subgraph_supported(0)
