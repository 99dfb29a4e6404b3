"""The clock of the load generator: when requests start, and from when their latency counts."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from trtnode.bench.load.load_level import Level, poisson_arrivals
from trtnode.bench.load.loops import OK, Done, Record, Traffic, closed_loop, open_loop
from trtnode.bench.load.samples import Samples

EVERY_10_MS = [due / 100 for due in range(300)]


class Simulation:
    """Virtual time, and in it a server that answers one request after another, but not during a stall."""

    def __init__(self, *, service_s: float, stall: tuple[float, float] = (math.inf, math.inf)) -> None:
        self.time = 0.0
        self.send_s = 0.0
        self._service_s = service_s
        self._stall = stall
        self._free_at = 0.0
        self._answers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self.time

    def sleep_until(self, moment: float) -> bool:
        while self._answers and self._answers[0][0] <= moment:
            at, _, answer = heapq.heappop(self._answers)
            self.time = max(self.time, at)
            answer()
        self.time = max(self.time, moment)
        return True

    def send(self, done: Done) -> None:
        self.time += self.send_s
        start = max(self.time, self._free_at)
        if self._stall[0] <= start < self._stall[1]:
            start = self._stall[1]
        self._free_at = start + self._service_s
        heapq.heappush(self._answers, (self._free_at, next(self._order), lambda: done(OK, "")))


def latencies(records: list[Record]) -> dict[float, float]:
    """Latency of each request by the time at which it was due."""
    return {record.intended: record.answered - record.intended for record in records}


def test_an_open_loop_shows_a_stall_in_every_request_that_was_due_meanwhile() -> None:
    world = Simulation(service_s=0.001, stall=(1.0, 2.0))
    traffic = Traffic(world.send, world)

    open_loop(traffic, world, EVERY_10_MS)

    found = latencies(traffic.records)
    assert list(found) == EVERY_10_MS
    assert all(found[due] == pytest.approx(0.001) for due in EVERY_10_MS[:100])
    assert all(found[due] > 2.0 - due for due in EVERY_10_MS[100:200])
    assert sum(latency > 0.5 for latency in found.values()) >= 50


def test_a_closed_loop_shows_a_stall_once_a_caller() -> None:
    world = Simulation(service_s=0.01, stall=(1.0, 2.0))
    traffic = Traffic(world.send, world)

    closed_loop(traffic, world, 4, Level(callers=4, seconds=3.0).allowance(0.0, world.now))

    found = latencies(traffic.records)
    assert sum(record.answered - record.intended > 0.5 for record in traffic.records) == 4
    assert max(found.values()) == pytest.approx(1.04)


def test_latency_counts_from_when_a_request_was_due_even_if_the_client_sends_it_late() -> None:
    world = Simulation(service_s=0.0)
    world.send_s = 0.02  # sending takes twice as long as there is between two requests
    traffic = Traffic(world.send, world)

    open_loop(traffic, world, EVERY_10_MS[:100])

    last = traffic.records[-1]
    assert last.intended == 0.99
    assert last.sent - last.intended == pytest.approx(99 * 0.01)
    assert last.answered - last.intended == pytest.approx(100 * 0.01, abs=0.011)


def test_a_closed_loop_has_as_many_requests_on_their_way_as_callers() -> None:
    world = Simulation(service_s=0.01)
    traffic = Traffic(world.send, world)

    closed_loop(traffic, world, 3, Level(callers=3, requests=10).allowance(0.0, world.now))

    assert len(traffic.records) == 10
    moments = [record.sent for record in traffic.records]
    on_their_way = [sum(r.sent <= moment < r.answered for r in traffic.records) for moment in moments]
    assert max(on_their_way) == 3


def test_a_client_that_comes_to_run_after_its_time_still_measures_one_request() -> None:
    world = Simulation(service_s=0.01)
    traffic = Traffic(world.send, world)

    closed_loop(traffic, world, 3, Level(callers=3, seconds=0.1).allowance(-5.0, world.now))

    assert len(traffic.records) == 1


def test_requests_without_an_answer_at_the_end_are_told() -> None:
    world = Simulation(service_s=0.001, stall=(0.015, math.inf))
    stopping = iter([True] * 5 + [False] * 1000)
    go_on = world.sleep_until
    world.sleep_until = lambda moment: go_on(moment) and next(stopping)  # type: ignore[method-assign]
    traffic = Traffic(world.send, world)

    open_loop(traffic, world, EVERY_10_MS)

    assert (len(traffic.records), traffic.unanswered) == (2, 3)


def test_poisson_arrivals_are_exponential_gaps_of_the_right_mean() -> None:
    times = list(itertools.islice(poisson_arrivals(rate=250.0, seed=1), 100_000))

    gaps = np.diff(times, prepend=0.0)
    assert gaps.min() >= 0
    assert gaps.mean() == pytest.approx(1 / 250, rel=0.01)
    assert gaps.std() == pytest.approx(1 / 250, rel=0.02)
    assert (gaps > 1 / 250).mean() == pytest.approx(math.exp(-1), abs=0.01)


def test_poisson_arrivals_depend_on_their_seed_alone() -> None:
    first, again, other = (list(itertools.islice(poisson_arrivals(10.0, seed), 2000)) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_an_open_loop_ends_after_its_seconds_or_its_requests() -> None:
    by_time = list(Level(rate=100.0, seconds=2.0).arrivals(start=50.0))
    by_count = list(Level(rate=100.0, requests=7).arrivals(start=50.0))

    assert 50.0 < by_time[0] < by_time[-1] < 52.0
    assert by_count == by_time[:7]


def test_processes_share_a_level() -> None:
    closed = Level(callers=5, requests=7).split(8)
    opened = Level(rate=90.0, seconds=2.0, seed=3).split(3)

    assert [(part.callers, part.requests) for part in closed] == [(1, 2), (1, 2), (1, 1), (1, 1), (1, 1)]
    assert [(part.rate, part.seconds, part.seed) for part in opened] == [(30.0, 2.0, 3), (30.0, 2.0, 4), (30.0, 2.0, 5)]


def answered(*latencies_ms: float, status: str = OK, message: str = "") -> list[Record]:
    return [Record(0.0, 0.001, ms / 1e3, status, message) for ms in latencies_ms]


def test_figures_of_known_samples() -> None:
    samples = Samples.of(answered(*range(1, 101)), start=0.0, cpu_s=0.025)

    figures = samples.figures()

    assert {name: figures[name] for name in ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms", "mean_ms")} == {
        "p50_ms": 50.5,
        "p90_ms": 90.1,
        "p95_ms": 95.05,
        "p99_ms": 99.01,
        "max_ms": 100.0,
        "mean_ms": 50.5,
    }
    assert (figures["requests"], figures["seconds"], figures["throughput_per_s"]) == (100, 0.1, 1000.0)
    assert (figures["send_lag_p99_ms"], figures["client_cores"], figures["client_processes"]) == (1.0, 0.25, 1)


def test_failed_requests_are_counted_by_status_and_in_no_other_figure() -> None:
    broken = answered(5, 6, status="INTERNAL", message="it broke")
    full = answered(9000, status="UNAVAILABLE", message="full")

    samples = Samples.of(answered(1, 2, 3) + broken + full, start=0.0, cpu_s=0.0)

    figures = samples.figures()
    assert (figures["requests"], figures["errors"]) == (6, {"INTERNAL": 2, "UNAVAILABLE": 1})
    assert (figures["max_ms"], figures["throughput_per_s"]) == (3.0, round(3 / 9, 2))
    assert samples.messages == {"INTERNAL": "it broke", "UNAVAILABLE": "full"}


def test_a_level_without_an_answer_has_no_times() -> None:
    figures = Samples.of([], start=1.0, cpu_s=0.0).figures()

    assert (figures["requests"], figures["throughput_per_s"], figures["p50_ms"], figures["mean_ms"]) == (
        0,
        0.0,
        None,
        None,
    )


def test_processes_of_a_level_are_put_together() -> None:
    parts = [
        Samples.of(answered(1, 2), start=0.5, cpu_s=1.0),
        Samples.of(answered(3) + answered(4, status="INTERNAL", message="m"), start=0.4, cpu_s=2.0),
    ]

    joined = Samples.joined(parts)

    assert (joined.start, joined.requests, joined.errors, joined.cpu_s) == (0.4, 4, {"INTERNAL": 1}, (1.0, 2.0))
    assert sorted(joined.latencies_ms) == pytest.approx([1, 2, 3])
