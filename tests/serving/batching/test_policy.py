"""The requests that form the next batch, and its time: properties of the pure policy, on a simulated clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtnode.serving.batching.policy import BatchLimits, Decision, LatencyController, next_batch


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
    ends_ns: int
    idle_since_ns: int


def simulate(
    pending: list[Request],
    limits: BatchLimits,
    service_ns: Callable[[int], int],
    expected: list[bool],
    controller: LatencyController | None = None,
) -> list[Batch]:
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
            rows = sum(one.rows for one in waiting[: decision.count])
            took = service_ns(rows)
            batches.append(Batch(waiting[: decision.count], now, now + took, idle_since))
            del waiting[: decision.count]
            now = idle_since = now + took
            if controller is not None:
                limits = controller.observe(rows, took)
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

    batches = simulate(list(requests), limits, lambda rows: service_ns, expected)

    assert [one for batch in batches for one in batch.requests] == requests
    for batch in batches:
        first = batch.requests[0]
        assert len(batch.requests) == 1 or sum(one.rows for one in batch.requests) <= limits.max_rows
        assert len(batch.requests) == 1 or first.key is not None
        assert {one.key for one in batch.requests} == {first.key}
        assert batch.at_ns <= max(first.arrived_ns + limits.max_delay_ns, batch.idle_since_ns)


MS = 1_000_000
WIDE = BatchLimits(max_rows=32, max_delay_ns=40 * MS)


def p99_ms(batches: list[Batch]) -> float:
    return (
        float(np.percentile([batch.ends_ns - one.arrived_ns for batch in batches for one in batch.requests], 99)) / MS
    )


def poisson(per_second: float, count: int, seed: int) -> list[Request]:
    gaps = np.random.default_rng(seed).exponential(1e9 / per_second, count)
    return [Request(number, arrived_ns=int(time)) for number, time in enumerate(np.cumsum(gaps))]


def noisy_service(seed: int) -> Callable[[int], int]:
    """2 ms for an execution and 0.3 ms for each row, a tenth more or less."""
    rng = np.random.default_rng(seed)
    return lambda rows: int((2 + 0.3 * rows) * MS * rng.uniform(0.9, 1.1))


@pytest.mark.parametrize("per_second", [50, 200, 800])
@pytest.mark.parametrize("target_ms", [10, 20])
def test_the_controller_keeps_the_99th_percentile_under_its_target(per_second: float, target_ms: int) -> None:
    requests = poisson(per_second, 3000, seed=1)

    fixed = simulate(list(requests), WIDE, noisy_service(2), [True])
    adaptive = simulate(list(requests), WIDE, noisy_service(2), [True], LatencyController(target_ms * MS, WIDE))

    assert p99_ms(fixed) > target_ms
    assert p99_ms(adaptive) <= target_ms


def test_the_controller_leaves_alone_what_is_fast_enough() -> None:
    controller = LatencyController(200 * MS, WIDE)

    assert controller.observe(4, 3 * MS) == WIDE


def test_a_batch_size_that_was_slow_once_is_tried_again() -> None:
    controller = LatencyController(20 * MS, WIDE)
    controller.observe(8, 3 * MS)
    assert controller.observe(32, 500 * MS).max_rows < 32

    limits = [controller.observe(8, 2 * MS) for _ in range(3000)]

    assert limits[-1].max_rows == 32


def test_one_row_is_the_least_even_if_the_target_is_out_of_reach() -> None:
    limits = LatencyController(MS, WIDE).observe(1, 50 * MS)

    assert (limits.max_rows, limits.max_delay_ns) == (1, 0)
