"""The threads that run inference requests."""

from __future__ import annotations

import gc
import queue
import threading
import time
import weakref

import pytest

from serving.threads.inference_pool import InferencePool

PATIENCE_S = 120


def test_no_more_threads_are_at_work_than_allowed() -> None:
    pool, gate, begun = InferencePool(2), threading.Event(), threading.Semaphore(0)

    def work() -> None:
        begun.release()
        assert gate.wait(PATIENCE_S)

    futures = [pool.accept(pool.begins(work)) for _ in range(5)]
    assert all(begun.acquire(timeout=PATIENCE_S) for _ in range(2))
    assert not begun.acquire(timeout=0.1)
    assert not pool.wait_idle(0)
    gate.set()

    assert [future.result(PATIENCE_S) for future in futures] == [None] * 5
    assert pool.wait_idle(PATIENCE_S)
    pool.shutdown()


def test_requests_that_wait_for_others_do_not_keep_those_from_coming() -> None:
    pool, everyone = InferencePool(2), threading.Barrier(10)

    def work() -> None:
        with pool.waiting:
            everyone.wait(PATIENCE_S)

    futures = [pool.accept(pool.begins(work)) for _ in range(10)]

    assert [future.result(PATIENCE_S) for future in futures] == [None] * 10
    pool.shutdown()


@pytest.mark.parametrize(("newest_first", "order"), [(False, [0, 1, 2]), (True, [2, 1, 0])])
def test_the_newest_request_may_be_the_next_one(newest_first: bool, order: list[int]) -> None:
    pool, gate, done = InferencePool(1, newest_first=newest_first), threading.Event(), []
    first = pool.accept(pool.begins(gate.wait), PATIENCE_S)

    futures = [pool.accept(pool.begins(done.append), number) for number in range(3)]
    gate.set()

    assert first.result(PATIENCE_S)
    assert [future.result(PATIENCE_S) for future in futures] == [None] * 3
    assert done == order
    pool.shutdown()


def test_requests_whose_body_does_not_come_do_not_keep_others_from_being_answered() -> None:
    pool, come = InferencePool(2), threading.Event()
    slow = [pool.accept(come.wait, PATIENCE_S) for _ in range(5)]

    quick = [pool.accept(pool.begins(threading.get_ident)) for _ in range(5)]

    assert len([future.result(PATIENCE_S) for future in quick]) == 5
    assert not any(future.done() for future in slow)
    come.set()
    assert all(future.result(PATIENCE_S) for future in slow)
    assert pool.wait_idle(PATIENCE_S)
    pool.shutdown()


def test_after_bodies_that_came_late_no_more_threads_are_at_work_than_allowed() -> None:
    pool, come, gate, begun = InferencePool(2), threading.Event(), threading.Event(), threading.Semaphore(0)

    @pool.begins
    def work() -> None:
        begun.release()
        assert gate.wait(PATIENCE_S)

    def late() -> None:
        assert come.wait(PATIENCE_S)
        pool.begins(begun.release)()

    bodies = [pool.accept(late) for _ in range(4)]
    pool.accept(pool.begins(int)).result(PATIENCE_S)  # by now the others are not counted
    come.set()
    assert [future.result(PATIENCE_S) for future in bodies] == [None] * 4
    assert all(begun.acquire(timeout=PATIENCE_S) for _ in range(4))

    rest = [pool.accept(work) for _ in range(5)]

    assert all(begun.acquire(timeout=PATIENCE_S) for _ in range(2))
    assert not begun.acquire(timeout=0.2)
    gate.set()
    assert [future.result(PATIENCE_S) for future in rest] == [None] * 5
    pool.shutdown()


def test_a_request_that_fails_does_not_end_its_thread() -> None:
    pool = InferencePool(1)

    failed, done = pool.accept(int, "x"), pool.accept(threading.get_ident)

    assert isinstance(failed.exception(PATIENCE_S), ValueError)
    assert done.exception(PATIENCE_S) is None
    pool.shutdown()


def test_what_grpc_lets_out_is_logged_and_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    pool = InferencePool(1)

    pool.submit(int, "x")

    assert pool.accept(int, "7").result(PATIENCE_S) == 7
    assert "A request ended without an answer" in caplog.text
    assert "ValueError" in caplog.text
    pool.shutdown()


def test_a_thread_at_rest_keeps_no_request_in_memory() -> None:
    class Request:
        """Stands for megabytes."""

    pool, request = InferencePool(1), Request()
    seen = weakref.ref(request)
    pool.accept(pool.begins(id), request).result(PATIENCE_S)

    del request

    deadline = time.monotonic() + PATIENCE_S
    while seen() is not None:
        assert time.monotonic() < deadline
        gc.collect()
    pool.shutdown()


def test_requests_wait_for_a_thread_at_work_where_the_system_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, gate = InferencePool(4), threading.Event()
    first = pool.accept(pool.begins(gate.wait), PATIENCE_S)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    others = [pool.accept(pool.begins(threading.get_ident)) for _ in range(3)]
    assert not any(other.done() for other in others)
    gate.set()

    assert first.result(PATIENCE_S)
    assert len({other.result(PATIENCE_S) for other in others}) == 1
    assert pool.wait_idle(PATIENCE_S)
    pool.shutdown()


def test_a_closed_pool_leaves_no_thread_behind() -> None:
    pool = InferencePool(3)
    threads: list[threading.Thread] = []
    for _ in range(6):
        pool.accept(lambda: threads.append(threading.current_thread())).result(PATIENCE_S)

    pool.shutdown()

    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)


def test_what_is_not_admitted_is_refused_at_once_by_other_threads() -> None:
    pool, gate = InferencePool(1, max_requests=1), threading.Event()
    pool.elsewhere = InferencePool(1)
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()
    handler = pool.begins(
        lambda: answers.put("answered" if gate.wait(PATIENCE_S) else "late"), lambda: answers.put("refused")
    )

    pool.submit(handler)
    pool.submit(handler)

    assert answers.get(timeout=PATIENCE_S) == "refused"
    assert answers.empty()
    gate.set()
    assert answers.get(timeout=PATIENCE_S) == "answered"
    assert pool.wait_idle(PATIENCE_S)
    pool.submit(handler)
    assert answers.get(timeout=PATIENCE_S) == "answered"
    pool.shutdown()
    pool.elsewhere.shutdown()
