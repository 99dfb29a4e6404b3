"""Dynamic batching through a real server: what runs together, in which order, and what leaves the queue unanswered.

The executable records each execution and can be held back, so that a test decides what waits at the same time."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.serving.batching.conftest import PATIENCE_S, POISON, Recorder, Service, fails_with
from tests.serving.conftest import Starter, given


def test_requests_that_wait_at_the_same_time_run_together(serve: Callable[..., Service]) -> None:
    service = serve()
    blocker = service.block()
    answers = [service.send(1), service.send(2, 3), service.send(4)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[2], [3, 4], [5]]
    assert blocker.result() == [1]
    assert service.fake.executed == [[0], [1, 2, 3, 4]]


def test_a_lone_request_runs_at_once_and_without_a_copy(serve: Callable[..., Service]) -> None:
    service = serve("max_queue_delay_us: 20000000")

    assert service.infer(1) == [2]
    assert service.infer(2) == [3]

    assert service.fake.copied == [False, False]


@pytest.mark.parametrize("identity", ["", "7", "77", "777"])
def test_long_requests_run_alone_and_together_wherever_in_the_message_their_tensors_begin(
    serve: Callable[..., Service], identity: str
) -> None:
    service = serve()
    long = {"columns": 40_000, "request_id": identity}
    alone = [service.infer(1, **long), service.infer(2, **long)]  # the first one becomes the template of the others
    service.block()
    together = [service.send(3, **long), service.send(4, 5, **long)]

    service.fake.gate.set()

    assert [*alone, *(answer.result() for answer in together)] == [[2], [3], [4], [5, 6]]
    assert service.fake.executed == [[1], [2], [0], [3, 4, 5]]
    assert all(service.fake.aligned)


def test_a_batch_has_no_more_rows_than_allowed(serve: Callable[..., Service]) -> None:
    service = serve("max_batch_size: 4")
    service.block()
    answers = [service.send(number, number) for number in range(1, 6)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[n + 1.0] * 2 for n in range(1, 6)]
    assert service.fake.executed == [[0], [1, 1, 2, 2], [3, 3, 4, 4], [5, 5]]


def test_a_preferred_size_runs_before_the_delay_is_over(serve: Callable[..., Service]) -> None:
    service = serve("max_queue_delay_us: 20000000, preferred_batch_sizes: [2]")
    service.block()
    answers = [service.send(number) for number in range(1, 5)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[2], [3], [4], [5]]


def test_requests_of_different_shape_are_not_mixed_and_keep_their_order(serve: Callable[..., Service]) -> None:
    service = serve()
    service.block()
    answers = [service.send(1, columns=2), service.send(2, columns=2), service.send(3), service.send(4, columns=2)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[2], [3], [4], [5]]
    assert service.fake.executed == [[0], [1, 2], [3], [4]]


def test_a_request_with_nan_runs_by_itself_and_its_neighbours_together(serve: Callable[..., Service]) -> None:
    service = serve()
    service.block()
    answers = [service.send(1), service.send(math.nan), service.send(2), service.send(3)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[2], [pytest.approx(math.nan, nan_ok=True)], [3], [4]]
    assert sorted(map(len, service.fake.executed)) in ([1, 1, 1, 2], [1, 1, 3])
    assert all(len(rows) == 1 or math.nan not in rows for rows in service.fake.executed)


def test_a_request_with_more_rows_than_a_batch_is_refused(serve: Callable[..., Service]) -> None:
    service = serve("max_batch_size: 2")

    message = fails_with("INVALID_ARGUMENT", lambda: service.infer(1, 2, 3))

    assert message == "the request has 3 rows, but 2 are the most (batching.max_batch_size)"


@pytest.mark.parametrize(
    ("batching", "sizes"),
    [
        ("max_batch_size: 4", [1, 1, 2, 3, 4]),
        ("max_batch_size: 40", [1, 1, 2, 4, 8, 16, 32, 40]),
        ("max_batch_size: 40, preferred_batch_sizes: [10, 20]", [1, 1, 10, 20, 40]),
    ],
)
def test_batch_sizes_run_before_the_first_request(start: Starter, batching: str, sizes: list[int]) -> None:
    fake = Recorder()
    model = f"- {{name: fake, path: fake.onnx, warmup: 2, batching: {{{batching}}}}}\n"

    start(model, loader=lambda _: fake)

    assert [len(rows) for rows in fake.executed][-len(sizes) :] == sizes


def test_a_full_queue_refuses_and_counts(serve: Callable[..., Service]) -> None:
    service = serve("max_queue_size: 2")
    service.block()
    answers = [service.send(1), service.send(2)]

    message = fails_with("UNAVAILABLE", lambda: service.infer(3))
    service.fake.gate.set()

    assert message == "2 requests wait for the model already (batching.max_queue_size); try later"
    assert [answer.result() for answer in answers] == [[2], [3]]
    assert service.sample("trtnode_rejected_requests_total", reason="queue_full") == 1
    assert service.sample("nv_inference_request_failure", reason="REJECTED") == 1


@pytest.mark.parametrize(
    ("batching", "options"),
    [
        pytest.param("timeout_ms: 30", {}, id="configured"),
        pytest.param("", {"timeout": 30_000}, id="of-the-request-in-microseconds"),
        pytest.param("timeout_ms: 20000", {"timeout": 30_000}, id="the-shorter-one"),
    ],
)
def test_a_request_leaves_the_queue_when_its_time_is_over_and_never_runs(
    serve: Callable[..., Service], batching: str, options: dict[str, Any]
) -> None:
    service = serve(batching)
    service.block()

    message = fails_with("UNAVAILABLE", lambda: service.infer(1, **options))  # while the first one still runs
    service.fake.gate.set()

    assert "longer than its timeout or batching.timeout_ms allows" in message
    assert service.infer(2) == [3]
    assert service.fake.executed == [[0], [2]]
    assert service.sample("trtnode_rejected_requests_total", reason="timeout") == 1


@pytest.mark.parametrize("timeout_us", [2**62, 2**63 - 1])
def test_a_request_may_be_ready_to_wait_for_longer_than_any_clock_counts(
    serve: Callable[..., Service], timeout_us: int
) -> None:
    service = serve()
    service.block()

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(service.infer, 1, timeout=timeout_us)
        service.wait_for(lambda: service.waiting() == 1)
        service.fake.gate.set()

        assert answer.result() == [2]


def test_a_request_whose_client_leaves_never_runs(serve: Callable[..., Service]) -> None:
    service = serve()
    service.block()
    x = given("x", np.ones((1, 1), np.float32))
    call = service.running.client.async_infer("fake", [x], lambda result, error: None)
    service.wait_for(lambda: service.waiting() == 1)

    call.cancel()
    service.wait_for(lambda: service.waiting() == 0)
    service.fake.gate.set()

    assert service.infer(2) == [3]
    assert service.fake.executed == [[0], [2]]
    assert service.sample("trtnode_rejected_requests_total", reason="cancelled") == 1
    service.wait_for(lambda: service.sample("nv_inference_request_failure", reason="CANCELED") == 1)


def test_a_higher_priority_runs_first_and_equal_ones_keep_their_order(serve: Callable[..., Service]) -> None:
    service = serve("priority_levels: 2, max_batch_size: 1")
    service.block()
    answers = [service.send(1), service.send(2, priority=2), service.send(3, priority=1), service.send(4, priority=1)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[2], [3], [4], [5]]
    assert service.fake.executed == [[0], [3], [4], [1], [2]]


def test_a_request_that_makes_a_batch_fail_fails_alone(serve: Callable[..., Service]) -> None:
    service = serve()
    service.block()
    good, bad, other = service.send(1), service.send(POISON), service.send(3)

    service.fake.gate.set()

    assert (good.result(), other.result()) == ([2], [4])
    assert fails_with("INTERNAL", bad.result) == "poisoned"
    assert service.fake.executed == [[0], [1, POISON, 3], [1], [POISON], [3]]
    assert service.sample("nv_inference_request_failure", reason="BACKEND") == 1


def test_instances_run_batches_side_by_side(serve: Callable[..., Service]) -> None:
    service = serve("max_batch_size: 2", extra="instances: 2")
    service.block()
    service.block()
    answers = [service.send(number) for number in range(1, 5)]

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[2], [3], [4], [5]]
    assert sorted(service.fake.executed) == [[0], [0], [1, 2], [3, 4]]


def test_a_server_that_stops_answers_what_waits(serve: Callable[..., Service]) -> None:
    service = serve()
    service.block()
    answers = [service.send(1), service.send(2)]
    stop = threading.Thread(target=service.running.server.stop, args=(PATIENCE_S,))
    stop.start()

    service.fake.gate.set()

    assert [answer.result() for answer in answers] == [[2], [3]]
    stop.join()
