"""The status page learns about the last hour."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtnode.serving.telemetry.latency_steps import latency_step, quantile_us
from trtnode.serving.telemetry.metrics import Metrics
from trtnode.serving.telemetry.recent_requests import RECENT_SLOTS, SLOTS
from trtnode.serving.telemetry.request_stats import BatchStats, Durations, FailureReason, ModelCounts

MS = 1_000_000


def answer(counts: ModelCounts, *times_ms: int) -> None:
    for time_ms in times_ms:
        counts.add_success(Durations(total=time_ms * MS, queue=time_ms * MS // 2, ended_ns=1))


@given(st.lists(st.lists(st.integers(1, 9), max_size=3), max_size=9))
def test_each_slot_has_the_requests_that_were_answered_in_it(slots: list[list[int]]) -> None:
    counts = ModelCounts()
    for number, times_ms in enumerate(slots):
        answer(counts, *times_ms)
        counts.end_slot(number, 0)

    told = counts.snapshot().recent

    assert {one.number: one.answered for one in told.slots} == {i: len(one) for i, one in enumerate(slots) if one}
    assert [one.waited_ns for one in told.slots] == [sum(one) * MS // 2 for one in slots if one]
    newest = [time_ms for one in slots[len(slots) - RECENT_SLOTS + 1 :] for time_ms in one]
    if len(slots) >= RECENT_SLOTS:
        assert told.latencies == Counter(latency_step(time_ms * MS) for time_ms in newest)


def test_the_slot_that_is_not_over_is_told_too() -> None:
    counts = ModelCounts()
    answer(counts, 1, 2)

    (slot,) = counts.snapshot().recent.slots

    assert slot.answered == 2


def test_an_hour_is_kept_and_no_more() -> None:
    counts = ModelCounts()
    for number in range(2 * SLOTS):
        answer(counts, 1)
        counts.end_slot(number, 0)

    assert [one.number for one in counts.snapshot().recent.slots] == list(range(SLOTS, 2 * SLOTS))


def test_latencies_of_a_slot_are_those_of_its_requests() -> None:
    counts = ModelCounts()
    answer(counts, *[500] * 50)
    counts.end_slot(0, 0)
    answer(counts, *[1] * 98, 100, 100)
    counts.end_slot(1, 0)

    _, slot = counts.snapshot().recent.slots

    assert slot.p50_us == pytest.approx(1e3, rel=0.1)
    assert slot.p99_us == pytest.approx(1e5, rel=0.1)


def test_without_latencies_there_is_no_quantile() -> None:
    assert quantile_us({}, 0.5) == 0


def test_time_on_processors_is_shared_out_by_the_time_of_executions() -> None:
    metrics = Metrics()
    models = [metrics.add_model(name, "1") for name in ("busy", "idle", "quick")]
    for slot in range(2):
        for counts, ran_ns in zip(models, (300, 0, 100), strict=True):
            answer(counts, 1)
            counts.add_batch(1, BatchStats(executions=1, compute_infer=ran_ns))
        metrics.end_slot(slot, 2000)

    assert [[slot.cpu_ns for slot in counts.snapshot().recent.slots] for counts in models] == [
        [1500, 1500],
        [0, 0],
        [500, 500],
    ]


def test_failures_are_counted_by_slot_and_the_last_one_is_kept() -> None:
    counts = ModelCounts()
    counts.add_failure(FailureReason.OTHER, detail="first")
    counts.end_slot(7, 0)
    counts.end_slot(8, 0)
    for _ in range(2):
        counts.add_failure(FailureReason.BACKEND, detail="last " + "x" * 1000)
    counts.end_slot(9, 0)

    told = counts.snapshot().recent

    assert {one.number: one.failed for one in told.slots} == {7: 1, 9: 2}
    assert told.last_failure is not None
    assert told.last_failure.detail.startswith("last xxx")
    assert len(told.last_failure.detail) == 300


def test_the_last_request_is_known_whether_it_was_answered_or_not() -> None:
    counts = ModelCounts()
    assert counts.snapshot().recent.last_ns == 0

    counts.add_success(Durations(total=1, ended_ns=5))

    assert counts.snapshot().recent.last_ns == 5
