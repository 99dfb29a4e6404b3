"""The threads that run inference requests."""

import threading

from serving.admission import InferencePool

PATIENCE_S = 20


def test_no_more_threads_are_at_work_than_allowed() -> None:
    pool, gate, begun = InferencePool(2), threading.Event(), threading.Semaphore(0)

    def work() -> None:
        begun.release()
        assert gate.wait(PATIENCE_S)

    futures = [pool.submit(work) for _ in range(5)]
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

    futures = [pool.submit(work) for _ in range(10)]

    assert [future.result(PATIENCE_S) for future in futures] == [None] * 10
    pool.shutdown()


def test_a_request_that_fails_does_not_end_its_thread() -> None:
    pool = InferencePool(1)

    failed, done = pool.submit(int, "x"), pool.submit(threading.get_ident)

    assert isinstance(failed.exception(PATIENCE_S), ValueError)
    assert done.exception(PATIENCE_S) is None
    pool.shutdown()


def test_a_closed_pool_leaves_no_thread_behind() -> None:
    pool = InferencePool(3)
    threads: list[threading.Thread] = []
    for _ in range(6):
        pool.submit(lambda: threads.append(threading.current_thread())).result(PATIENCE_S)

    pool.shutdown()

    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
