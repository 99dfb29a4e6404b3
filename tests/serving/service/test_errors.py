from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.serving.conftest import Eventually, FakeExecutable, StartFake, given, refusal
from trtnode.engines.errors import ExecutionError, OutOfMemoryError, ThreadLimitError


class Remembering(FakeExecutable):
    """Remembers its inputs without holding them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[weakref.ref[np.ndarray]] = []

    def run(
        self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None, times: Any = None
    ) -> dict[str, np.ndarray]:
        self.seen.append(weakref.ref(feeds["x"]))
        return super().run(feeds, outputs, times)


@pytest.fixture
def fake() -> FakeExecutable:
    return Remembering()


@pytest.fixture
def _collector_off() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_collector_off")
@pytest.mark.parametrize("extra", ["", "batching: {max_batch_size: 4}"])
def test_a_request_that_fails_doesnt_wait_for_the_garbage_collector(
    start_fake: StartFake, fake: Remembering, eventually: Eventually, extra: str
) -> None:
    running = start_fake(extra)
    fake.error = ExecutionError("division by zero")
    fake.seen.clear()

    status, _ = refusal(lambda: running.client.infer("fake", [given("x", np.zeros(2, np.float32))]))

    assert status == "INTERNAL"
    assert fake.seen
    eventually(lambda: all(one() is None for one in fake.seen))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(ThreadLimitError("pids.max", 8, 34), ("UNAVAILABLE", "pids.max allows 8"), id="threads"),
        pytest.param(OutOfMemoryError(), ("RESOURCE_EXHAUSTED", "more memory"), id="memory"),
    ],
)
def test_a_request_at_a_limit_of_the_system_is_told_of_it(
    start_fake: StartFake, fake: Remembering, error: Exception, expected: tuple[str, str]
) -> None:
    running = start_fake()
    fake.error = error

    status, told = refusal(lambda: running.client.infer("fake", [given("x", np.zeros(2, np.float32))]))

    assert (status, expected[1] in told) == (expected[0], True)
