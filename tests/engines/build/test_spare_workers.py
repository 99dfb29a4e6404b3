"""A child process that did its job well does the next one, too."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from trtnode.engines.build import subprocess_worker
from trtnode.engines.build.subprocess_worker import SpareWorkers, SubprocessWorker
from trtnode.engines.errors import WorkerError


@pytest.fixture
def spare() -> Iterator[SpareWorkers]:
    workers = SpareWorkers(SubprocessWorker, idle_s=60)
    yield workers
    with workers.lent() as worker:
        worker.cancel()


def identify(workers: SpareWorkers) -> int:
    with workers.lent() as worker:
        return worker.call(os.getpid, 60)


def test_a_clean_child_does_the_next_job(spare: SpareWorkers) -> None:
    assert identify(spare) == identify(spare)


def test_jobs_at_the_same_time_have_a_child_each(spare: SpareWorkers) -> None:
    with spare.lent() as one, spare.lent() as other:
        assert one.call(os.getpid, 60) != other.call(os.getpid, 60)


def test_a_child_that_nobody_asks_for_ends() -> None:
    workers = SpareWorkers(SubprocessWorker, idle_s=0.1)
    pid = identify(workers)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    pytest.fail("it still runs")


def test_a_child_whose_job_failed_unexpectedly_does_no_other(spare: SpareWorkers) -> None:
    with spare.lent() as worker:
        pid = worker.call(os.getpid, 60)
        with pytest.raises(WorkerError, match="ZeroDivisionError"):
            worker.call(divmod, 60, 1, 0)
        assert worker.call(os.getpid, 60) == pid  # which is good enough for the job that it is lent to

    assert identify(spare) != pid


def test_a_child_that_keeps_much_memory_does_no_other_job(spare: SpareWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    before = identify(spare)
    monkeypatch.setattr(subprocess_worker, "CLEAN_BYTES", 1 << 20)
    assert identify(spare) == before  # it was lent while it was clean

    assert identify(spare) != before


def test_a_child_that_was_cancelled_does_no_other_job(spare: SpareWorkers) -> None:
    with spare.lent() as worker:
        before = worker.call(os.getpid, 60)
        worker.cancel()

    assert identify(spare) != before
