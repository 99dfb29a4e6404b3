"""The cores that the threads of the ports run on."""

from __future__ import annotations

import json
import os
import threading
import types
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.serving.conftest import FakeExecutable, Starter, given
from trtnode.serving.threads import cpu_affinity
from trtnode.serving.threads.cpu_affinity import LONG_NS, PortCores, placed

ALL = os.sched_getaffinity(0)

needs_two = pytest.mark.skipif(len(ALL) < 2, reason="one core leaves nothing to choose")


def in_thread(work: Callable[[], Any]) -> Any:
    """Run ``work`` in a thread of its own, whose cores concern no other test."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def after_settling(cores: PortCores) -> set[int]:
    def settle() -> set[int]:
        cores.settle()
        return os.sched_getaffinity(0)

    found: set[int] = in_thread(settle)
    return found


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Pretends that the process may run on so many cores."""
    chosen: dict[int, set[int]] = {}

    def pretend(count: int) -> None:
        everywhere = set(range(count))
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: chosen.get(threading.get_ident(), everywhere))
        monkeypatch.setattr(os, "sched_setaffinity", lambda _, some: chosen.update({threading.get_ident(): set(some)}))

    return pretend


@pytest.mark.parametrize(
    ("cores_here", "count", "place", "expected"),
    [
        pytest.param(2, None, 0, {0}, id="one-of-two"),
        pytest.param(2, None, 1, {1}, id="another-one-for-the-next-worker"),
        pytest.param(2, None, 2, {0}, id="and-round-again"),
        pytest.param(1, None, 0, {0}, id="the-only-one"),
        pytest.param(8, None, 0, set(range(8)), id="all-of-many"),
        pytest.param(8, 2, 0, {0, 1}, id="as-many-as-configured"),
        pytest.param(8, 3, 2, {6, 7, 0}, id="of-each-worker"),
        pytest.param(2, 2, 0, {0, 1}, id="both"),
        pytest.param(2, 9, 0, {0, 1}, id="more-than-there-are"),
    ],
)
def test_threads_keep_to(
    machine: Callable[[int], None], cores_here: int, count: int | None, place: int, expected: set[int]
) -> None:
    machine(cores_here)

    assert after_settling(PortCores(count, place)) == expected


def test_nothing_is_chosen_where_it_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(_process: int, _cores: set[int]) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", forbid)

    assert after_settling(PortCores(1)) == ALL


def test_cores_that_went_away_end_no_thread(machine: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    machine(2)
    cores = PortCores(1)

    def gone(_process: int, _cores: set[int]) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", gone)

    assert after_settling(cores) == {0, 1}


@needs_two
def test_threads_that_start_within_keep_to_them_and_others_do_not() -> None:
    cores = PortCores(1)

    def start() -> tuple[set[int], set[int]]:
        with cores.kept():
            within: set[int] = in_thread(lambda: os.sched_getaffinity(0))
        return within, os.sched_getaffinity(0)

    within, after = in_thread(start)

    assert len(within) == 1
    assert after == ALL


@needs_two
def test_long_runs_leave_them_and_short_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = types.SimpleNamespace(worked=0, waited=0)
    times = types.SimpleNamespace(
        thread_time_ns=lambda: clock.worked, perf_counter_ns=lambda: clock.worked + clock.waited
    )
    monkeypatch.setattr(cpu_affinity, "time", times)
    short, long = LONG_NS // 2, LONG_NS * 2

    @placed
    def run(works_ns: int, waits_ns: int) -> int:
        clock.worked += works_ns
        clock.waited += waits_ns
        return len(os.sched_getaffinity(0))

    def work() -> list[list[int]]:
        PortCores(1).settle()
        found = [
            [run(works_ns, waits_ns) for _ in range(times)]
            for times, works_ns, waits_ns in ((2, short, 0), (6, short, long), (5, long, 0), (2, short, 0))
        ]
        return [*found, [len(os.sched_getaffinity(0))]]

    free = len(ALL)
    assert in_thread(work) == [[free, 1], [1] * 6, [1] * 4 + [free], [free, 1], [1]]


@needs_two
def test_runs_that_wait_side_by_side_do_not_pass_for_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = types.SimpleNamespace(waited=0)
    times = types.SimpleNamespace(thread_time_ns=lambda: 0, perf_counter_ns=lambda: clock.waited)
    monkeypatch.setattr(cpu_affinity, "time", times)

    @placed
    def run(others: int) -> int:
        """Runs while others run, of which the last to begin ends first."""
        if others:
            clock.waited += LONG_NS * 2
            run(others - 1)
        return len(os.sched_getaffinity(0))

    def work() -> int:
        PortCores(1).settle()
        run(0)
        run(4)
        return run(0)

    assert in_thread(work) == 1


@needs_two
def test_server_answers_on_them_and_loads_everywhere(start: Starter, fake: FakeExecutable) -> None:
    loads: list[set[int]] = []
    runs: list[set[int]] = []
    answer = fake.run

    def load(_model: Any) -> Any:
        loads.append(os.sched_getaffinity(0))
        return fake

    def run(*arguments: Any) -> Any:
        runs.append(os.sched_getaffinity(0))
        return answer(*arguments)

    fake.run = run
    running = start(
        "- {name: m, path: fake.onnx}",
        ports="grpc: {port: 0, cores: 1}, http: {port: 0}",
        server="admin: {repository: true}",
        loader=load,
    )
    running.client.load_model("m")
    post(f"{running.http}/v2/repository/models/m/load", {})
    del runs[:]
    x = given("x", np.zeros(2, np.float32))
    for _ in range(8):
        running.client.infer("m", [x])
    post(
        f"{running.http}/v2/models/m/infer", {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}
    )

    assert loads == [ALL] * 3
    assert [len(some) for some in runs[-2:]] == [1, 1]


def post(url: str, content: Any) -> None:
    request = urllib.request.Request(url, json.dumps(content).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        assert response.status == 200
