"""Calls take turns, so that a change of the machine's speed hits all of them."""

from __future__ import annotations

import pathlib
import time
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from clock import FEEDS, GRAPH
from comparison import AssertSame, RunPlainly
from precision import precision_options
from stand_in_workers import InProcessWorker
from trtnode.engines.backends.progress import Progress, listening
from trtnode.engines.compile.opening import open_model
from trtnode.engines.precision.options import Calibration
from trtnode.engines.runtime.executor import Executable, open_executable
from trtnode.engines.tuning import timing
from trtnode.engines.tuning.timing import time_in_turn
from trtnode.partitioner.cut.labels import ReasonCode
from workshop import Workshop

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("brief_tuning", "choosing_engines")]


@pytest.mark.parametrize("seconds", [0.0, 0.01])
def test_calls_take_turns(seconds: float) -> None:
    order: list[str] = []

    turns = time_in_turn({n: lambda n=n: order.append(n) for n in "ab"}, seconds=seconds, rounds=6)  # type: ignore[misc]

    assert len(turns["a"]) == len(turns["b"]) in (5, 6)
    changes = "".join(n for n, before in zip(order, ["", *order], strict=False) if n != before)
    assert changes.startswith("abab")


def test_turns_are_told_as_progress() -> None:
    told: list[Progress] = []

    with listening(told.append):
        time_in_turn({"a": lambda: None}, seconds=0.01, rounds=6)

    assert told[0] == Progress("Measuring", 0, 6)
    assert told[-1] == Progress("Measuring", 6, 6)
    assert sorted(step.done for step in told) == [step.done for step in told]


def test_hopelessly_slow_call_takes_no_turns() -> None:
    order: list[str] = []
    naps = {"a": 0.0, "slow": 0.15}

    turns = time_in_turn(
        {n: lambda n=n: (order.append(n), time.sleep(naps[n])) for n in naps},  # type: ignore[misc]
        seconds=0.1,
        rounds=6,
    )

    assert order.count("slow") == 2
    assert order.count("a") > 6
    assert len(turns["a"]) == len(turns["slow"])
    assert min(turns["slow"]) > 100 > max(turns["a"])


class SpinningClock:
    """Stands for ``time``: threads burn processor time until ``spins_until``, which the system adds up once a tick."""

    def __init__(self, tick_s: float) -> None:
        self._tick_s = tick_s
        self.now = self.burnt = self.spins_until = 0.0

    def monotonic(self) -> float:
        return self.now

    def perf_counter_ns(self) -> int:
        self.now += 1e-6
        return int(self.now * 1e9)

    def process_time(self) -> float:
        return self.burnt // self._tick_s * self._tick_s

    def sleep(self, seconds: float) -> None:
        self.burnt += max(0.0, min(seconds, self.spins_until - self.now))
        self.now += seconds


@pytest.mark.parametrize("tick_s", [0.001, 0.004, 0.01])
def test_turn_begins_when_threads_of_the_one_before_no_longer_spin(
    tick_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, spinning = SpinningClock(tick_s), list[bool]()
    monkeypatch.setattr(timing, "time", clock)

    def leaves_a_thread_spinning() -> None:
        clock.spins_until = clock.now + 0.03

    calls = {"spins": leaves_a_thread_spinning, "other": lambda: spinning.append(clock.now < clock.spins_until)}
    time_in_turn(calls, seconds=0.0, rounds=5)

    assert len(spinning) > 5
    assert not any(spinning)


@pytest.mark.parametrize(
    ("graph", "feeds"),
    [
        pytest.param(GRAPH, FEEDS, id="fixed-shapes"),
        pytest.param(GRAPH.replace("[2,8]", "[N,8]"), FEEDS, id="open-shapes"),
        pytest.param(
            "g (float[N,4] x, string[N] s) => (float[N,4] y, string[N] t)"
            " { a = Relu(x) b = Erf(a) y = Neg(b) t = Identity(s) }",
            {"x": FEEDS["x"][:, :4], "s": np.array(["a", "b"], dtype=object)},
            id="strings-beside",
        ),
        pytest.param(
            "g (int64[4] x, bool[4] m) => (int64[4] y, float[4] z)"
            " { n = Not(m) f = Cast<to = 1>(n) z = Erf(f) y = Where(n, x, x) }",
            {"x": np.arange(4), "m": np.array([True, False, True, False])},
            id="integers",
        ),
    ],
)
def test_real_measurement_gives_a_model_that_answers_as_before(
    graph: str, feeds: dict[str, np.ndarray], workshop: Workshop, plain: RunPlainly, same: AssertSame
) -> None:
    source = workshop.write(graph)

    compiled = workshop.compile(source, native_ops=("Erf",))

    tuning = compiled.report.tuning
    by_name = {c["name"]: c for c in tuning["candidates"]}
    kept = by_name[tuning["chosen"]]["segments"]
    assert {"all native", "minimum cut"} <= by_name.keys()
    assert all(c["p50_ms"] > 0 for c in tuning["candidates"])
    assert [s["name"] for s in tuning["segments"] if s["kept"]] == kept
    assert len(compiled.report.segments) == len(kept)
    path = workshop.write(compiled.model)
    same(open_model(path).run(feeds), plain(source, feeds))
    same(plain(path, feeds), plain(source, feeds))


def test_choice_measures_the_engines_that_the_check_has_loaded(
    workshop: Workshop, in_process: InProcessWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def count(model: ir.Model, native: pathlib.Path, **options: Any) -> Executable:
        opened.append(native.name)
        return open_executable(model, native, **options)

    monkeypatch.setattr("trtnode.engines.tuning.timing.open_executable", count)
    source = workshop.write(GRAPH)

    compiled = workshop.compile(source, native_ops=("Erf",), worker=in_process)

    assert {one["name"] for one in compiled.report.tuning["candidates"]} >= {"all native", "minimum cut"}
    assert opened[0] == source.name
    assert opened.count("compiled.onnx") <= 1  # with the engines that gain alone


@pytest.mark.parametrize(
    ("padded", "sizes"), [pytest.param(False, 3, id="as-sent"), pytest.param(True, 1, id="padded")]
)
def test_a_choice_is_measured_on_calibration_samples_of_each_size(
    padded: bool, sizes: int, workshop: Workshop, tmp_path: pathlib.Path
) -> None:
    for number, length in enumerate([3, 5, 3, 9]):
        np.savez(tmp_path / f"{number}.npz", x=np.ones((1, length, 4), np.float32))
    source = workshop.write("g (float[N,L,4] x) => (float[N,L,4] y) { a = Relu(x) b = Erf(a) y = Neg(b) }")
    precision = precision_options("fp32", calibration=Calibration(data=str(tmp_path)))

    compiled = workshop.compile(source, native_ops=("Erf",), precision=precision, padded=padded)

    assert compiled.report.tuning["sizes"] == sizes
    left_out = [node.detail for node in compiled.report.native if node.code == ReasonCode.NOT_FASTER]
    assert all(("on samples of 3 sizes in turn" in detail) != padded for detail in left_out if "the model" in detail)
