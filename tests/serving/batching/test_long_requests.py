"""Requests of more rows than an execution may have: parts by length, answers in order, and who runs between them."""

from __future__ import annotations

import pathlib
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import encoders
from tests.serving.conftest import Starter
from tests.serving.conftest import given as wire
from trtnode.engines.compile.opening import open_model
from trtnode.serving.batching.batcher import DynamicBatcher
from trtnode.serving.batching.length_batches import LengthBatches
from trtnode.serving.batching.lengths import Lengths
from trtnode.serving.batching.long_requests import rows_by_size
from trtnode.serving.batching.queued_request import Result
from trtnode.serving.batching.request_options import RequestOptions
from trtnode.serving.errors import (
    CancelledRequestError,
    InvalidOutputError,
    InvalidRequestError,
    QueueFullError,
    QueueTimeoutError,
)
from trtnode.serving.schema.model import BatchingConfig
from trtnode.serving.telemetry.request_stats import Durations, ModelCounts
from trtnode.serving.threads.request_pool import RequestPool

LENGTHS = Lengths(axes={"ids": 1, "mask": 1}, mask="mask", buckets=(4, 8, 16), outputs={"pooled": (), "hidden": (1,)})
POISON = 49
PATIENCE_S = 60


def masked_sum(feeds: Mapping[str, np.ndarray], names: Sequence[str] | None, _times: object) -> dict[str, np.ndarray]:
    """Answer as a model that sees no padding would."""
    seen = feeds["ids"] * feeds["mask"]
    if POISON in seen:
        raise ValueError("poisoned")
    results = {"pooled": seen.sum(1, keepdims=True), "hidden": np.repeat(seen[..., None], 2, -1)}
    return {name: results[name] for name in names or results}


def texts(lengths: Sequence[int], seed: int = 0, size: int = 0) -> dict[str, np.ndarray]:
    """Return a request with a text of each length."""
    width = max((*lengths, size))
    mask = (np.arange(width)[None] < np.array(lengths)[:, None]).astype(np.int64)
    return {"ids": np.random.default_rng(seed).integers(0, POISON, mask.shape), "mask": mask}


class Server:
    """A batcher whose executions are recorded, and wait for a gate."""

    def __init__(self, run: Callable[..., Mapping[str, np.ndarray]] = masked_sum, **batching: int) -> None:
        instances = batching.pop("instances", 1)
        self.shapes: list[tuple[int, ...]] = []
        self.gate, self.begun = threading.Semaphore(0), threading.Semaphore(0)
        self.pool, self.counts = RequestPool(instances + 2), ModelCounts("m", "1")
        config = BatchingConfig(**{"max_batch_size": 4, "priority_levels": 2, **batching})
        unlike = LengthBatches(LENGTHS, self.counts, config.max_batch_tokens)
        self.outcomes: queue.SimpleQueue[tuple[str, Result]] = queue.SimpleQueue()
        self._free = False
        self._run = run
        self._batcher = DynamicBatcher(
            unlike.padding(self._record), ["ids", "mask"], config, instances, self.counts, lambda _: False, unlike
        )

    def _record(self, feeds: Mapping[str, np.ndarray], *rest: object) -> Mapping[str, np.ndarray]:
        self.shapes.append(feeds["ids"].shape)
        self.begun.release()
        assert self._free or self.gate.acquire(timeout=PATIENCE_S)
        return self._run(feeds, *rest)

    def send(self, name: str, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = ("pooled",)) -> None:
        """Send a request from a thread of its own, as the first one runs in it."""
        self.ask(name, feeds, RequestOptions(self.pool), outputs)

    def ask(
        self,
        name: str,
        feeds: Mapping[str, np.ndarray],
        options: RequestOptions,
        outputs: Sequence[str] | None = ("pooled",),
        durations: Durations | None = None,
    ) -> None:
        def then(outcome: Result) -> None:
            self.outcomes.put((name, outcome))

        def submit() -> None:
            try:
                self._batcher.submit(feeds, outputs, options, durations or Durations(), then)
            except (QueueFullError, InvalidRequestError) as error:
                then(error)

        self.pool.run(submit)

    def has_begun(self, executions: int = 1) -> None:
        for _ in range(executions):
            assert self.begun.acquire(timeout=PATIENCE_S)

    def has_waiting(self, requests: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.counts.snapshot().pending < requests:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def open(self) -> None:
        self._free = True
        self.gate.release(100)

    def ended(self, requests: int = 1) -> dict[str, Result]:
        return dict(self.outcomes.get(timeout=PATIENCE_S) for _ in range(requests))

    def answer(self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = ("pooled",)) -> Result:
        self.open()
        self.send("only", feeds, outputs)
        return self.ended()["only"]


sent = st.lists(
    st.tuples(st.lists(st.integers(1, 20), min_size=1, max_size=12), st.integers(0, 2), st.booleans()),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60)
@given(
    sent=sent,
    rows=st.integers(1, 6),
    tokens=st.none() | st.integers(1, 60),
    instances=st.integers(1, 3),
    outputs=st.sampled_from([("pooled",), ("hidden", "pooled"), None]),
)
def test_each_row_gets_its_own_answer_in_order(
    sent: list[tuple[list[int], int, bool]],
    rows: int,
    tokens: int | None,
    instances: int,
    outputs: Sequence[str] | None,
) -> None:
    limit = {} if tokens is None else {"max_batch_tokens": tokens}
    server = Server(max_batch_size=rows, instances=instances, **limit)
    server.open()
    requests = [texts(lengths, seed) for seed, (lengths, _, _) in enumerate(sent)]
    for number, (_, priority, poisoned) in enumerate(sent):
        if poisoned:
            requests[number]["ids"][-1, 0] = POISON
        server.ask(str(number), requests[number], RequestOptions(server.pool, priority), outputs)
    outcomes = server.ended(len(sent))
    server.pool.close()

    assert not any(len(shape) and shape[0] > rows for shape in server.shapes)
    assert tokens is None or all(
        one == 1 or one * length <= tokens for one, length in server.shapes if length in (4, 8, 16)
    )
    assert server.counts.snapshot().pending == 0
    for number, (_, _, poisoned) in enumerate(sent):
        outcome = outcomes[str(number)]
        if poisoned:
            assert isinstance(outcome, ValueError)
            continue
        assert not isinstance(outcome, BaseException)
        for name, expected in masked_sum(requests[number], outputs, None).items():
            np.testing.assert_array_equal(outcome[name], expected)


def test_short_texts_are_not_padded_to_the_longest() -> None:
    server = Server()

    answer = server.answer(texts([1, 16, 3, 15, 2, 14, 4, 13]))

    assert not isinstance(answer, BaseException)
    assert sorted(server.shapes) == [(4, 4), (4, 16)]
    assert server.counts.snapshot().rows == 8


def test_a_traced_request_has_the_time_and_the_rows_of_all_its_parts() -> None:
    server, spent = Server(), Durations(traced=True)
    server.open()

    server.ask("traced", texts([1, 16, 3, 15, 2, 14, 4, 13]), RequestOptions(server.pool), durations=spent)
    server.ended()

    assert spent.execution is not None
    assert spent.execution.rows == 8
    assert spent.execution.ended_ns > spent.execution.began_ns
    assert 0 < spent.compute_infer < spent.execution.ended_ns - spent.execution.began_ns


def test_rows_whose_length_an_output_shows_keep_the_size_of_their_request() -> None:
    server = Server()

    server.answer(texts([1, 16, 3, 15, 2]), ("hidden",))

    assert sorted(server.shapes) == [(1, 16), (4, 16)]


def test_a_text_longer_than_the_most_tokens_runs_by_itself() -> None:
    server = Server(max_batch_tokens=6)

    answer = server.answer(texts([16, 4, 20]))

    assert not isinstance(answer, BaseException)
    assert sorted(server.shapes) == [(1, 4), (1, 16), (1, 20)]


def test_requests_share_an_execution_up_to_the_most_tokens() -> None:
    server = Server(max_batch_tokens=12, max_batch_size=16)
    server.send("first", texts([2]))
    server.has_begun()
    for number in range(4):
        server.ask(str(number), texts([3]), RequestOptions(server.pool))
    server.has_waiting(4)
    server.open()

    server.ended(5)

    assert server.shapes == [(1, 4), (3, 4), (1, 4)]


def test_a_single_text_runs_behind_the_part_of_a_long_request_that_is_running() -> None:
    server = Server()
    server.send("long", texts([4] * 100))
    server.has_begun()
    server.send("single", texts([15]))
    server.has_waiting(1)
    server.gate.release(2)

    assert list(server.ended()) == ["single"]

    server.open()
    assert list(server.ended()) == ["long"]
    assert server.shapes[1] == (1, 16)


def test_a_long_request_that_is_cancelled_runs_no_further_and_is_counted_once() -> None:
    server = Server(instances=2)
    left: list[Callable[[], None]] = []

    def on_cancel(leave: Callable[[], None]) -> bool:
        left.append(leave)
        return True

    server.ask("long", texts([4] * 100), RequestOptions(server.pool, on_cancel=on_cancel))
    server.has_begun(2)
    while not left:
        server.gate.release()
        server.has_begun()
    left[0]()
    server.open()

    outcome = server.ended()["long"]
    now = server.counts.snapshot()
    assert isinstance(outcome, CancelledRequestError)
    assert (now.pending, now.rejections) == (0, {"cancelled": 1})
    assert len(server.shapes) < 25


def test_a_part_that_waits_too_long_ends_its_request_and_no_other() -> None:
    server = Server()
    server.send("first", texts([4]))
    server.has_begun()
    server.ask("long", texts([4] * 20), RequestOptions(server.pool, timeout_us=1000))

    assert isinstance(server.ended()["long"], QueueTimeoutError)
    server.open()
    assert not isinstance(server.ended()["first"], BaseException)
    assert server.counts.snapshot().rejections == {"timeout": 1}


def test_a_full_queue_refuses_a_long_request_as_any_other() -> None:
    server = Server(max_queue_size=1)
    server.send("first", texts([4]))
    server.has_begun()
    server.send("second", texts([4]))
    server.has_waiting(1)

    server.send("long", texts([4] * 20))

    assert isinstance(server.ended()["long"], QueueFullError)
    server.open()
    server.ended(2)


def test_a_model_that_gives_no_row_for_each_text_is_at_fault() -> None:
    server = Server(run=lambda *_: {"pooled": np.zeros(3)})

    assert isinstance(server.answer(texts([4] * 5)), InvalidOutputError)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=50), st.integers(1, 9), st.booleans())
def test_parts_have_every_row_once_and_no_more_than_may_run(sizes: list[int], most: int, pays: bool) -> None:
    parts = rows_by_size(np.array(sizes), lambda size: max(1, 4 * most // size), lambda *_: pays)

    assert sorted(np.concatenate([rows for rows, _ in parts])) == list(range(len(sizes)))
    assert all(
        len(rows) <= max(1, 4 * most // size) and size == max(sizes[row] for row in rows) for rows, size in parts
    )
    assert [size for _, size in parts] == sorted((size for _, size in parts), reverse=True)
    assert pays or all(2 * sizes[row] > size for rows, size in parts for row in rows)


@pytest.mark.parametrize("leak", [encoders.SEALED, encoders.OPEN_FOR_ONE_WORD], ids=["padded", "answers-show-padding"])
def test_a_served_model_answers_a_request_of_many_texts(leak: str, start: Starter, tmp_path: pathlib.Path) -> None:
    onnx.save(encoders.encoder(leak=leak), tmp_path / "encoder.onnx")
    running = start(
        f"- {{name: m, path: {tmp_path}/encoder.onnx, engine: native, lengths: auto, "
        "batching: {max_batch_size: 8, max_batch_tokens: 64}}\n"
    )
    feeds = encoders.request(30, 200, 7)

    answer = running.client.infer("m", [wire(name, array) for name, array in feeds.items()])

    for name, expected in open_model(tmp_path / "encoder.onnx", use_engines=False).run(feeds).items():
        np.testing.assert_allclose(answer.as_numpy(name), expected, rtol=1e-4, atol=1e-4)
