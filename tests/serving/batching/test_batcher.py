"""The batcher by itself, under threads that cancel, expire, overload and fail at random."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.serving.batching.conftest import outcome_of
from trtnode.engines.backends.stage_times import StageTime
from trtnode.serving.batching.batcher import DynamicBatcher
from trtnode.serving.batching.request_options import RequestOptions
from trtnode.serving.errors import CancelledRequestError, QueueFullError, QueueTimeoutError
from trtnode.serving.schema.model import BatchingConfig
from trtnode.serving.telemetry.request_stats import ModelCounts
from trtnode.serving.threads.request_pool import RequestPool

POISON = 666
CLIENTS, REQUESTS = 24, 40


def add_one(
    feeds: Mapping[str, np.ndarray], names: Sequence[str] | None, times: list[StageTime] | None
) -> dict[str, np.ndarray]:
    time.sleep(random.uniform(0, 0.002))
    if POISON in feeds["x"]:
        raise ValueError("poisoned")
    return {"y": feeds["x"] + 1}


def ask_at_random(batcher: DynamicBatcher, pool: RequestPool, seed: int) -> list[str]:
    """Send requests of all kinds; return how each ended."""
    rng, ends = random.Random(seed), []

    def leave_soon(leave: Callable[[], None]) -> bool:
        if rng.random() < 0.1:
            threading.Timer(rng.uniform(0, 0.003), leave).start()
        return rng.random() > 0.02

    for _ in range(REQUESTS):
        value = POISON if rng.random() < 0.03 else rng.random()
        x = np.full((rng.randint(1, 3), rng.randint(1, 2)), value, np.float32)
        terms = RequestOptions(pool, rng.randint(0, 4), rng.choice([0, 0, 3000]), leave_soon)
        try:
            answer = outcome_of(batcher, {"x": x}, terms)["y"]
        except (CancelledRequestError, QueueFullError, QueueTimeoutError, ValueError) as error:
            ends.append(type(error).__name__)
        else:
            np.testing.assert_array_equal(answer, x + 1)
            ends.append("answered")
    return ends


@pytest.mark.parametrize("instances", [1, 3])
def test_every_request_ends_once_and_is_counted_once(instances: int) -> None:
    counts, pool = ModelCounts("m", "1"), RequestPool(instances + 2)
    config = BatchingConfig(
        max_batch_size=6, max_queue_delay_us=2000, max_queue_size=12, priority_levels=3, preferred_batch_sizes=(4,)
    )
    batcher = DynamicBatcher(add_one, ["x"], config, instances, counts, lambda _: False)

    with ThreadPoolExecutor(CLIENTS) as clients:
        ends = Counter(
            end for some in clients.map(lambda seed: ask_at_random(batcher, pool, seed), range(CLIENTS)) for end in some
        )

    pool.close()
    now = counts.snapshot()
    assert ends.total() == CLIENTS * REQUESTS
    assert ends["answered"] > 0
    assert now.pending == 0
    assert Counter(now.rejections) == Counter(
        queue_full=ends["QueueFullError"], timeout=ends["QueueTimeoutError"], cancelled=ends["CancelledRequestError"]
    )
    assert max(now.batches) <= config.max_batch_size
    assert sum(rows * stats.executions for rows, stats in now.batches.items()) == now.rows
