from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.serving.batching.conftest import outcome_of
from tests.serving.conftest import FakeExecutable
from trtnode.serving.batching.instance_pool import InstancePool
from trtnode.serving.batching.queued_request import Result
from trtnode.serving.batching.request_options import RequestOptions
from trtnode.serving.errors import CancelledRequestError
from trtnode.serving.telemetry.request_stats import Durations, ModelCounts
from trtnode.serving.threads.request_pool import RequestPool

X = {"x": np.zeros(1, np.float32)}


@pytest.fixture
def options() -> Iterator[RequestOptions]:
    pool = RequestPool(4)
    yield RequestOptions(pool)
    pool.close()


def test_a_request_runs_once_with_its_outputs_and_leaves_its_times(options: RequestOptions) -> None:
    asked: list[Sequence[str] | None] = []
    outcomes: list[Result] = []

    def run(feeds: Mapping[str, np.ndarray], names: Sequence[str] | None, times: Any) -> Mapping[str, np.ndarray]:
        asked.append(names)
        return {"y": feeds["x"]}

    durations = Durations()
    InstancePool(run, 1, ModelCounts()).submit(X, ["y"], options, durations, outcomes.append)

    assert ([list(one) for one in outcomes], asked) == ([["y"]], [["y"]])
    assert durations.alone
    assert durations.compute_infer > 0
    assert durations.execution is None


@pytest.mark.parametrize("instances", [1, 2])
def test_as_many_requests_run_at_once_as_there_are_instances(
    fake: FakeExecutable, options: RequestOptions, instances: int
) -> None:
    counts = ModelCounts("m", "1")
    pool = InstancePool(fake.run, instances, counts)

    with ThreadPoolExecutor(6) as callers:
        answers = [callers.submit(outcome_of, pool, X, options) for _ in range(6)]
        assert [answer.result(120)["y"].tolist() for answer in answers] == [[1]] * 6

    assert fake.most_at_once <= instances
    assert (counts.snapshot().executions, counts.snapshot().pending) == (6, 0)


def test_a_run_that_fails_gives_its_instance_back(fake: FakeExecutable, options: RequestOptions) -> None:
    pool = InstancePool(fake.run, 1, ModelCounts())
    fake.error = RuntimeError("broken")
    with pytest.raises(RuntimeError, match="broken"):
        outcome_of(pool, X, options)
    fake.error = None

    assert outcome_of(pool, X, options)["y"].tolist() == [1]


def test_a_request_whose_client_has_left_while_it_waited_never_runs(
    fake: FakeExecutable, options: RequestOptions
) -> None:
    counts = ModelCounts("m", "1")
    pool = InstancePool(fake.run, 1, counts)
    fake.gate.clear()

    with ThreadPoolExecutor(1) as callers:
        first = callers.submit(outcome_of, pool, X, options)
        assert fake.started.acquire(timeout=120)
        with pytest.raises(CancelledRequestError):
            outcome_of(pool, X, options._replace(on_cancel=lambda leave: False))
        fake.gate.set()
        first.result(120)

    assert fake.runs == 1
    assert counts.snapshot().pending == 0
