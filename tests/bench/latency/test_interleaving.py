"""The statistics of latencies, on samples whose answers are known."""

from __future__ import annotations

import time

import numpy as np
import pytest

from trtnode.bench.latency.interleaving import (
    Interleaving,
    Latencies,
    Turn,
    median_with_interval,
    ratio_with_interval,
    time_calls,
)


def latencies(*rounds: list[float], first: list[float] | None = None) -> Latencies:
    return Latencies(first=np.array(first or [1.0] * 12), steady=[np.array(times) for times in rounds])


def noisy_pair(rng: np.random.Generator, *, ratio: float, rounds: int = 15) -> tuple[Latencies, Latencies]:
    """A baseline and a candidate in rounds during which the machine's speed changes by more than they differ."""
    speeds = rng.uniform(1.0, 3.0, rounds)
    noise = rng.lognormal(0.0, 0.05, (2, rounds))
    return latencies(*([ratio * s * n] for s, n in zip(speeds, noise[0], strict=True))), latencies(
        *([s * n] for s, n in zip(speeds, noise[1], strict=True))
    )


def test_percentiles_are_taken_over_all_calls() -> None:
    times = latencies([float(ms) for ms in range(51)], [float(ms) for ms in range(51, 101)])

    assert [times.percentile_ms(q) for q in (0, 50, 95, 99, 100)] == [0, 50, 95, 99, 100]


def test_the_mean_of_ten_leaves_out_the_first_two() -> None:
    times = latencies([1.0], first=[1000.0, 500.0, *(float(ms) for ms in range(1, 11)), 1e9])

    assert times.mean10_ms == 5.5


def test_one_slow_call_or_one_slow_round_does_not_move_the_ratio() -> None:
    baseline = latencies([3.0, 3.0, 900.0], *([3.0, 3.0, 3.0] for _ in range(14)))
    candidate = latencies(*([1.0, 1.0, 1.0] for _ in range(14)), [50.0, 50.0, 50.0])

    ratio, low, high = ratio_with_interval(baseline, candidate)

    assert (ratio, low, high) == (3.0, 3.0, 3.0)


def test_the_interval_covers_the_true_ratio_as_often_as_it_promises() -> None:
    rng = np.random.default_rng(0)
    intervals = [ratio_with_interval(*noisy_pair(rng, ratio=1.3)) for _ in range(200)]

    covering = [low <= 1.3 <= high for _, low, high in intervals]

    assert 0.90 <= np.mean(covering) <= 1.0
    assert all(low <= ratio <= high for ratio, low, high in intervals)


def test_what_is_added_is_seen_through_a_machine_that_slows_down() -> None:
    baseline, candidate = latencies([1.0], [2.0], [40.0]), latencies([1.5], [2.5], [40.5])

    assert median_with_interval(candidate.over(baseline)) == (0.5, 0.5, 0.5)


def turn_of(name: str, log: list[tuple[str, int, float]], ms: float = 10.0) -> Turn:
    def turn(fewest: int, seconds: float) -> np.ndarray:
        log.append((name, fewest, seconds))
        return np.array([99.0 * ms, *([ms] * (fewest - 1))])

    return turn


def test_candidates_take_turns_and_another_begins_each_round() -> None:
    log: list[tuple[str, int, float]] = []
    interleaving = Interleaving({"a": turn_of("a", log), "b": turn_of("b", log)}, seconds_per_turn=0.1)

    interleaving.run(3)

    assert [name for name, _, _ in log] == ["a", "b", "a", "b", "b", "a", "a", "b"]
    assert {(fewest, seconds) for _, fewest, seconds in log[:2]} == {(12, 0.0)}
    assert {(fewest, seconds) for _, fewest, seconds in log[2:]} == {(3 + 1, 0.1)}


def test_the_first_call_of_a_turn_is_left_out() -> None:
    interleaving = Interleaving({"a": turn_of("a", [])})

    interleaving.run(2)

    assert interleaving.latencies()["a"].percentile_ms(100) == 10.0


def test_an_interrupted_race_keeps_its_complete_rounds() -> None:
    turns = 0

    def turn(fewest: int, seconds: float) -> np.ndarray:
        nonlocal turns
        turns += 1
        if turns == 8:  # two first turns, then three rounds of which the last one stops half-way
            raise KeyboardInterrupt
        return np.ones(fewest)

    interleaving = Interleaving({"a": turn, "b": turn})
    with pytest.raises(KeyboardInterrupt):
        interleaving.run(10)

    assert [len(interleaving.latencies()[name].steady) for name in ("a", "b")] == [2, 2]


def test_a_race_without_a_complete_round_tells_nothing() -> None:
    assert Interleaving({"a": turn_of("a", [])}).latencies() == {}


def test_calls_are_timed_one_by_one() -> None:
    calls: list[None] = []

    times = time_calls(lambda: calls.append(None), 5, 0.0)

    assert len(calls) == times.size == 5
    assert (times > 0).all()


def test_calls_are_repeated_until_the_time_is_over() -> None:
    times = time_calls(lambda: time.sleep(0.001), 1, 0.02)

    assert 1 < times.size <= 20
