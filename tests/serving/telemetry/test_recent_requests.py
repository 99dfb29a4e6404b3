"""What the status page learns about the last two minutes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trtnode.serving.telemetry.recent_requests import LATENCY_SLOTS, SLOT_NS, SLOTS, RecentRequests
from trtnode.serving.telemetry.request_stats import Durations, ModelCounts

NOW = 1000
"""A slot."""


def count(requests: list[tuple[int, int]]) -> tuple[RecentRequests, Counter[int]]:
    """Count requests, each by its slot and the step of its latency, in the order in which they end."""
    recent, latencies = RecentRequests(), Counter[int]()
    for slot, step in requests:
        if slot * SLOT_NS >= recent.ends_ns:
            recent.begin_slot(slot * SLOT_NS, latencies.total(), latencies)
        latencies[step] += 1
    return recent, latencies


@given(st.lists(st.tuples(st.integers(NOW - 2 * SLOTS, NOW), st.integers(0, 9)), max_size=60))
def test_each_slot_has_the_requests_that_ended_in_it(requests: list[tuple[int, int]]) -> None:
    recent, latencies = count(sorted(requests))

    told = recent.as_of(NOW * SLOT_NS, latencies.total(), latencies)

    assert told.answered == Counter(slot for slot, _ in requests if slot > NOW - SLOTS)
    assert told.latencies == Counter(step for slot, step in requests if slot > NOW - LATENCY_SLOTS)


def test_requests_of_a_model_that_is_idle_now_are_forgotten() -> None:
    recent, latencies = count([(NOW, 3)] * 5)

    told = recent.as_of((NOW + SLOTS) * SLOT_NS, 5, latencies)

    assert (told.answered, told.latencies) == ({}, {})


def test_failures_are_counted_by_slot_and_the_last_one_is_kept() -> None:
    recent = RecentRequests()
    for slot in (NOW - 2 * SLOTS, NOW - 1, NOW, NOW):
        recent.add_failure(slot * SLOT_NS, "OTHER", f"{slot} " + "x" * 1000)

    told = recent.as_of(NOW * SLOT_NS, 0, {})

    assert told.failed == {NOW - 1: 1, NOW: 2}
    assert told.last_failure is not None
    assert told.last_failure.detail.startswith("1000 xxx")
    assert len(told.last_failure.detail) == 300


def test_the_last_request_is_known_whether_it_was_answered_or_not() -> None:
    counts = ModelCounts()
    assert counts.snapshot().recent.last_ns == 0

    counts.add_success(Durations(total=1, ended_ns=5))

    assert counts.snapshot().recent.last_ns == 5
