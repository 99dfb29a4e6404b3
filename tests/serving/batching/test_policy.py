"""The requests that form the next batch, and its time: properties of the pure policy, on a simulated clock."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtnode.serving.batching.policy import BatchLimits, Decision, next_batch


@dataclasses.dataclass(frozen=True)
class Request:
    number: int
    rows: int = 1
    key: str | None = "a"
    arrived_ns: int = 0


def queue(*rows: int, key: str | None = "a") -> list[Request]:
    return [Request(number, count, key) for number, count in enumerate(rows)]


LIMITS = BatchLimits(max_rows=8, max_delay_ns=100, preferred_rows=frozenset({4}))


@pytest.mark.parametrize(
    ("waiting", "now_ns", "more_expected", "decision"),
    [
        pytest.param(queue(1), 0, False, Decision(1, 0), id="a-lone-request-runs-at-once"),
        pytest.param(queue(1), 0, True, Decision(0, 100), id="it-waits-where-others-are-expected"),
        pytest.param(queue(1), 100, True, Decision(1, 100), id="but-no-longer-than-the-delay"),
        pytest.param(queue(1, 1, 1, 1), 0, True, Decision(4, 0), id="a-preferred-size-runs-at-once"),
        pytest.param(queue(1, 1, 1, 1, 1), 0, True, Decision(4, 0), id="the-rest-stays"),
        pytest.param(queue(1, 1, 1, 1, 1), 100, True, Decision(5, 100), id="unless-its-time-is-over"),
        pytest.param(queue(2, 3, 3, 1), 0, True, Decision(3, 0), id="a-full-batch-runs-at-once"),
        pytest.param(queue(5, 4, 1), 0, True, Decision(1, 0), id="nobody-overtakes-a-request-that-does-not-fit"),
        pytest.param(queue(9, 1), 0, True, Decision(1, 0), id="a-request-beyond-the-limit-runs-by-itself"),
        pytest.param(queue(1, 1, key=None), 0, True, Decision(1, 0), id="requests-without-a-key-never-share"),
        pytest.param([Request(0), Request(1, key="b"), Request(2)], 0, True, Decision(1, 0), id="kinds-are-not-mixed"),
    ],
)
def test_the_next_batch(waiting: list[Request], now_ns: int, more_expected: bool, decision: Decision) -> None:
    assert next_batch(waiting, LIMITS, now_ns, more_expected=more_expected) == decision


limits = st.builds(
    BatchLimits,
    max_rows=st.integers(1, 8),
    max_delay_ns=st.integers(0, 50),
    preferred_rows=st.frozensets(st.integers(1, 8), max_size=3),
)
arrivals = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 8), st.sampled_from(["a", "b", None])), min_size=1, max_size=25
)


@dataclasses.dataclass(frozen=True)
class Batch:
    requests: list[Request]
    at_ns: int
    idle_since_ns: int


def simulate(pending: list[Request], limits: BatchLimits, service_ns: int, expected: list[bool]) -> list[Batch]:
    """Run one instance until all requests are answered. It asks again when the policy says so, or one arrives."""
    waiting: list[Request] = []
    batches: list[Batch] = []
    now = idle_since = 0
    for step in range(10 * len(pending) + 10):
        while pending and pending[0].arrived_ns <= now:
            waiting.append(pending.pop(0))
        if not waiting:
            if not pending:
                return batches
            now = pending[0].arrived_ns
            continue
        decision = next_batch(waiting, limits, now, more_expected=expected[step % len(expected)])
        if decision.count:
            batches.append(Batch(waiting[: decision.count], now, idle_since))
            del waiting[: decision.count]
            now = idle_since = now + service_ns
        else:
            assert decision.due_ns > now, "an instance that waits makes progress"
            now = min([decision.due_ns, *(one.arrived_ns for one in pending[:1])])
    raise AssertionError("the simulation does not end")


@given(arrivals, limits, st.integers(0, 100), st.lists(st.booleans(), min_size=1))
def test_every_request_runs_once_in_order_in_bounds_and_in_time(
    gaps: list[tuple[int, int, str | None]], limits: BatchLimits, service_ns: int, expected: list[bool]
) -> None:
    now, requests = 0, []
    for number, (gap, rows, key) in enumerate(gaps):
        now += gap
        requests.append(Request(number, rows, key, now))

    batches = simulate(list(requests), limits, service_ns, expected)

    assert [one for batch in batches for one in batch.requests] == requests
    for batch in batches:
        first = batch.requests[0]
        assert len(batch.requests) == 1 or sum(one.rows for one in batch.requests) <= limits.max_rows
        assert len(batch.requests) == 1 or first.key is not None
        assert {one.key for one in batch.requests} == {first.key}
        assert batch.at_ns <= max(first.arrived_ns + limits.max_delay_ns, batch.idle_since_ns)
