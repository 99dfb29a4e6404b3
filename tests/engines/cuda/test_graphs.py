# ruff: noqa: N802  (names of the driver)
"""Engines captured as CUDA graphs. The capture is simulated, as TensorRT and the GPU are."""

from __future__ import annotations

import types
from typing import Any

import pytest

from arrays import floats
from simulated_cuda import SimulatedGpu
from streams import NOTHING, Machine, between
from trtnode.engines.backends.build_options import BuildOptions, TensorRtOptions
from trtnode.partitioner.cut.options import Allowance

FIXED = "g (float[2, 4] x) => (float[2, 4] y) { a = Relu(x) y = Exp(a) }"
ROWS = "g (float[N, 4] x) => (float[N, 4] y) { a = Relu(x) y = Exp(a) }"
SUCCESS, INVALIDATED = 0, 901


class Graphs:
    """The part of ``cuda.bindings.driver`` that captures and launches graphs.

    Attributes:
        alive: Graphs and executables that are not destroyed.
        launches: Number of launches.
        fails: Name of the function that fails.
    """

    CUstreamCaptureMode = types.SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)

    def __init__(self, gpu: SimulatedGpu) -> None:
        self.alive: set[object] = set()
        self.launches = 0
        self.fails = ""
        self._gpu = gpu
        self._before: dict[int, int] = {}

    def cuStreamBeginCapture(self, stream: int, mode: int) -> tuple[int]:
        assert mode == self.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        assert self._gpu.stream(stream).is_idle
        return (self._result("cuStreamBeginCapture"),)

    def cuStreamEndCapture(self, stream: int) -> tuple[int, Any]:
        """Take what was put on the stream off again."""
        work = self._gpu.stream(stream).take()
        if code := self._result("cuStreamEndCapture"):
            return code, None
        return SUCCESS, self._new([item.run for item in work])

    def cuGraphInstantiate(self, graph: Any, flags: int) -> tuple[int, Any]:
        assert flags == 0
        if code := self._result("cuGraphInstantiate"):
            return code, None
        return SUCCESS, self._new(graph.work)

    def cuGraphLaunch(self, executable: Any, stream: int) -> tuple[int]:
        assert executable in self.alive
        if code := self._result("cuGraphLaunch"):
            return (code,)
        self.launches += 1
        for run in executable.work:
            self._gpu.stream(stream).add(run)
        return (SUCCESS,)

    def cuGraphExecDestroy(self, executable: Any) -> tuple[int]:
        self.alive.remove(executable)
        return (SUCCESS,)

    def cuGraphDestroy(self, graph: Any) -> tuple[int]:
        self.alive.remove(graph)
        return (SUCCESS,)

    def _result(self, name: str) -> int:
        return INVALIDATED if self.fails == name else SUCCESS

    def _new(self, work: list[Any]) -> Any:
        made = _Graph(work)
        self.alive.add(made)
        return made


class _Graph:
    def __init__(self, work: list[Any]) -> None:
        self.work = work


@pytest.fixture
def graphs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Graphs:
    graphs = Graphs(machine.gpu)
    monkeypatch.setattr("trtnode.engines.cuda.graphs.cuda_bindings", graphs)
    return graphs


@pytest.fixture
def one_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that each request finds what the one before has left."""
    monkeypatch.setattr("trtnode.engines.tensorrt.backend.STREAMS", 1)


def load(machine: Machine, graphs: Graphs, graph: str, **options: Any) -> Any:
    """Load a model, and forget the captures of its engine's check."""
    model = machine.load(graph, **options)
    machine.clean()
    graphs.launches = 0
    return model


def test_engine_is_enqueued_once_then_recorded_then_replayed(machine: Machine, graphs: Graphs, one_lane: None) -> None:
    model = load(machine, graphs, FIXED)

    for seed in range(5):
        model.check(x=floats(2, 4, seed=seed))

    assert graphs.launches == 4
    assert model.fallbacks == []


def test_nothing_is_recorded_where_that_is_turned_off(machine: Machine, graphs: Graphs, one_lane: None) -> None:
    machine.build = BuildOptions(tensorrt=TensorRtOptions(cuda_graphs=False))
    model = load(machine, graphs, FIXED)

    for seed in range(3):
        model.check(x=floats(2, 4, seed=seed))

    assert graphs.launches == 0


def test_other_shapes_are_recorded_anew(machine: Machine, graphs: Graphs, one_lane: None) -> None:
    machine.profiles = [{"x": between((1, 4), (8, 4))}]
    model = load(machine, graphs, ROWS)

    for rows in (2, 2, 2, 8, 8, 8, 2):
        model.check(x=floats(rows, 4, seed=rows))

    assert graphs.launches == 4
    assert len(graphs.alive) == 0


def test_arena_that_moves_drops_what_was_recorded(machine: Machine, graphs: Graphs, one_lane: None) -> None:
    model = load(machine, graphs, FIXED)
    for _ in range(3):
        model.check(x=floats(2, 4))

    load(machine, graphs, "g (float[4096] x) => (float[4096] y) { a = Relu(x) b = Exp(a) y = Tanh(b) }")
    model.check(x=floats(2, 4, seed=1))

    assert graphs.launches == 0
    assert model.fallbacks == []


@pytest.mark.parametrize("call", ["cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate"])
def test_recording_that_fails_is_given_up_and_the_engine_enqueued(
    call: str, machine: Machine, graphs: Graphs, one_lane: None
) -> None:
    model = load(machine, graphs, FIXED)
    graphs.fails = call

    for seed in range(4):
        model.check(x=floats(2, 4, seed=seed))

    assert graphs.launches == 0
    assert not graphs.alive
    assert model.fallbacks == []


def test_replay_that_fails_is_answered_natively(machine: Machine, graphs: Graphs, one_lane: None) -> None:
    model = load(machine, graphs, FIXED)
    for _ in range(2):
        model.check(x=floats(2, 4))
    graphs.fails = "cuGraphLaunch"

    model.check(x=floats(2, 4))
    graphs.fails = ""
    model.check(x=floats(2, 4))

    assert model.fallbacks == ["engine_error"]


def test_shapes_that_a_run_reveals_are_not_recorded(machine: Machine, graphs: Graphs, one_lane: None) -> None:
    graph = "g (float[2, 3] x) => (int64[2, M] y) { a = Relu(x) y = NonZero(a) }"
    model = load(machine, graphs, graph, allow=(Allowance.DATA_DEPENDENT,))

    for seed in range(4):
        model.check(x=floats(2, 3, seed=seed))

    assert graphs.launches == 0


def test_closed_model_destroys_its_graphs(machine: Machine, graphs: Graphs, one_lane: None) -> None:
    model = load(machine, graphs, FIXED)
    for _ in range(3):
        model.check(x=floats(2, 4))

    model.executable.close()
    machine.clean()

    assert not graphs.alive
    assert machine.gpu.leaks() == {**NOTHING, "streams": 1}
