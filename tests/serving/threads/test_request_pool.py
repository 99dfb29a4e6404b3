"""The threads that answer requests."""

from __future__ import annotations

import gc
import queue
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from trtnode.serving.threads.request_pool import RequestPool

PATIENCE_S = 120


@pytest.fixture
def pool() -> Iterator[RequestPool]:
    made = RequestPool(2, max_requests=3)
    yield made
    made.close()


def test_no_more_threads_work_than_allowed(pool: RequestPool) -> None:
    gate, begun = threading.Event(), threading.Semaphore(0)

    def work() -> bool:
        begun.release()
        return gate.wait(PATIENCE_S)

    futures = [pool.call(work) for _ in range(5)]

    assert all(begun.acquire(timeout=PATIENCE_S) for _ in range(2))
    assert not begun.acquire(timeout=0.1)
    gate.set()
    assert [future.result(PATIENCE_S) for future in futures] == [True] * 5


def test_more_threads_may_work_later_and_fewer_again(pool: RequestPool) -> None:
    gate, together = threading.Event(), threading.Barrier(4)

    pool.let_work(4)
    futures = [pool.call(lambda: together.wait(PATIENCE_S)) for _ in range(4)]

    assert sorted(future.result(PATIENCE_S) for future in futures) == [0, 1, 2, 3]
    pool.let_work(1)
    pool.call(int).result(PATIENCE_S)
    first, second = pool.call(lambda: gate.wait(PATIENCE_S)), pool.call(int)
    assert not second.done()
    gate.set()
    assert first.result(PATIENCE_S)


def test_work_that_fails_is_logged_and_does_not_end_its_thread(
    pool: RequestPool, caplog: pytest.LogCaptureFixture
) -> None:
    pool.let_work(1)

    pool.run(lambda: int("x"))
    failed = pool.call(lambda: int("x"))

    assert isinstance(failed.exception(PATIENCE_S), ValueError)
    assert pool.call(lambda: int("7")).result(PATIENCE_S) == 7
    assert "A request ended without an answer" in caplog.text


def test_work_is_done_at_the_last_time_that_was_set_for_it(pool: RequestPool) -> None:
    done: queue.SimpleQueue[int] = queue.SimpleQueue()

    def work() -> None:
        done.put(time.perf_counter_ns())

    now = time.perf_counter_ns()
    pool.run_at(now + 10**15, work)
    pool.run_at(now + 10**30, print)
    pool.run_at(now + 10**7, work)

    assert done.get(timeout=PATIENCE_S) >= now + 10**7
    pool.run_at(now, work)
    assert done.get(timeout=PATIENCE_S)
    pool.run_at(time.perf_counter_ns() + 10**8, work)
    pool.run_at(None, work)
    with pytest.raises(queue.Empty):
        done.get(timeout=0.3)


def test_requests_are_bounded_until_they_are_answered(pool: RequestPool) -> None:
    for _ in range(3):
        assert pool.admits()
        pool.enter()

    assert not pool.admits()
    assert not pool.wait_idle(0)
    pool.leave()
    assert pool.admits()
    pool.draining = True
    assert not pool.admits()
    pool.leave()
    pool.leave()
    assert pool.wait_idle(PATIENCE_S)


def test_a_thread_at_rest_keeps_no_request_in_memory(pool: RequestPool) -> None:
    class Request:
        pass

    request = Request()
    seen = weakref.ref(request)
    pool.call(lambda one=request: None).result(PATIENCE_S)

    del request

    deadline = time.monotonic() + PATIENCE_S
    while seen() is not None:
        assert time.monotonic() < deadline
        gc.collect()


def test_work_waits_for_the_threads_that_there_are_where_the_system_has_no_more(
    pool: RequestPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    first = pool.call(lambda: gate.wait(PATIENCE_S))

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    others = [pool.call(threading.get_ident) for _ in range(3)]

    assert not any(other.done() for other in others)
    gate.set()
    assert first.result(PATIENCE_S)
    assert len({other.result(PATIENCE_S) for other in others}) == 1


def test_a_closed_pool_leaves_no_thread_behind() -> None:
    pool, threads = RequestPool(3), set()
    together = threading.Barrier(3)
    for future in [pool.call(lambda: (together.wait(PATIENCE_S), threads.add(threading.current_thread())))
                   for _ in range(3)]:  # fmt: skip
        future.result(PATIENCE_S)
    pool.run_at(time.perf_counter_ns() + 10**12, print)

    pool.close()

    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(threads) == 3
    assert not any(thread.is_alive() for thread in threads)
