from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from serving.batching.request_options import RequestOptions
from serving.errors import CancelledRequestError
from serving.executables.interface import always
from serving.models.instance_pool import InstancePool
from serving.telemetry.request_stats import Durations, ModelCounts
from tests.serving.conftest import FakeExecutable

X = {"x": np.zeros(1, np.float32)}


def test_a_request_runs_once_with_its_outputs_and_leaves_its_times() -> None:
    asked: list[Sequence[str] | None] = []

    def run(feeds: Mapping[str, np.ndarray], names: Sequence[str] | None, times: Any) -> Mapping[str, np.ndarray]:
        asked.append(names)
        return {"y": feeds["x"]}

    durations = Durations()
    results = InstancePool(always(run), 1, ModelCounts()).infer(X, ["y"], RequestOptions(), durations)

    assert (list(results), asked) == (["y"], [["y"]])
    assert durations.alone
    assert durations.compute_infer > 0
    assert durations.execution is None


@pytest.mark.parametrize("instances", [1, 2])
def test_as_many_requests_run_at_once_as_there_are_instances(fake: FakeExecutable, instances: int) -> None:
    counts = ModelCounts("m", "1")
    pool = InstancePool(always(fake.run), instances, counts)

    with ThreadPoolExecutor(6) as callers:
        answers = [callers.submit(pool.infer, X, None, RequestOptions(), Durations()) for _ in range(6)]
        assert [answer.result(120)["y"].tolist() for answer in answers] == [[1]] * 6

    assert fake.most_at_once <= instances
    assert (counts.snapshot().executions, counts.snapshot().pending) == (6, 0)


def test_a_run_that_fails_gives_its_instance_back(fake: FakeExecutable) -> None:
    pool = InstancePool(always(fake.run), 1, ModelCounts())
    fake.error = RuntimeError("broken")
    with pytest.raises(RuntimeError, match="broken"):
        pool.infer(X, None, RequestOptions(), Durations())
    fake.error = None

    assert pool.infer(X, None, RequestOptions(), Durations())["y"].tolist() == [1]


def test_a_request_whose_client_has_left_while_it_waited_never_runs(fake: FakeExecutable) -> None:
    counts = ModelCounts("m", "1")
    pool = InstancePool(always(fake.run), 1, counts)
    fake.gate.clear()

    with ThreadPoolExecutor(2) as callers:
        first = callers.submit(pool.infer, X, None, RequestOptions(), Durations())
        assert fake.started.acquire(timeout=120)
        gone = callers.submit(pool.infer, X, None, RequestOptions(on_cancel=lambda leave: False), Durations())
        while not counts.snapshot().pending:
            pass
        fake.gate.set()
        first.result(120)
        with pytest.raises(CancelledRequestError):
            gone.result(120)

    assert fake.runs == 1
    assert counts.snapshot().pending == 0
