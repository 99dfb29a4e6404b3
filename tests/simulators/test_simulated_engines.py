"""Simulated engines keep TensorRT's rules: a mistake gives None, False, an exception or poison, as it does there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from simulated_cuda import POISON
from simulated_cuda.errors import ILLEGAL_ADDRESS, LAUNCH_FAILED
from workbench import BoundContext, Workbench

CHAIN = "g (float[2,3] x) => (float[2,3] y) { a = Relu(x) y = Tanh(a) }"
BATCHES = "g (float[N,3] x) => (float[N,3] y) { a = Relu(x) y = Tanh(a) }"
SMALL = {"x": [(1, 3), (2, 3), (4, 3)]}
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def chain(bench: Workbench) -> BoundContext:
    return bench.context(CHAIN)


def test_results_are_those_of_the_model_and_come_late(bench: Workbench, chain: BoundContext) -> None:
    early = np.empty((2, 3), np.float32)
    chain.give(x=X)
    assert chain.enqueue()

    early[:] = bench.gpu.view(int(chain.memory["y"]), 24).view(np.float32).reshape(2, 3)

    np.testing.assert_allclose(chain.take("y", np.float32), np.tanh(np.maximum(X, 0)), atol=1e-6)
    assert early.tobytes() == bytes([POISON]) * 24


def test_scratch_memory_holds_poison_after_a_run(bench: Workbench, chain: BoundContext) -> None:
    bench.cuda.memset_d8(chain.arena, 0, 256)
    chain.give(x=X)
    chain.enqueue()
    bench.stream.synchronize()

    assert set(bench.gpu.view(int(chain.arena), 256)) == {POISON}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(lambda c: c.context.set_tensor_address("x", 0), "address of x is not set", id="null-address"),
        pytest.param(
            lambda c: c.context.set_tensor_address("y", int(c.memory["y"]) + 4), "is not aligned", id="not-aligned"
        ),
        pytest.param(lambda c: c.context.set_device_memory(int(c.arena), 0), "0 bytes of device memory", id="no-arena"),
        pytest.param(lambda c: c.bench.cuda.Context.pop(), "invalid device context", id="no-context"),
        pytest.param(lambda c: setattr(c.bench.stream, "_queue", object()), "invalid resource handle", id="no-stream"),
        pytest.param(lambda c: c.bench.gpu.fail(700), "illegal memory access", id="lost-context"),
    ],
)
def test_an_enqueue_that_can_not_work_gives_false_and_says_why(
    spoil: Callable[..., Any], said: str, bench: Workbench, chain: BoundContext
) -> None:
    queue = bench.stream._queue
    chain.give(x=X)
    spoil(chain)

    accepted = chain.enqueue()
    bench.stream._queue = queue

    assert not accepted
    assert said in bench.said[-1]


def test_an_address_outside_of_device_memory_loses_the_context_later(bench: Workbench, chain: BoundContext) -> None:
    chain.give(x=X)
    chain.context.set_tensor_address("x", 1 << 40)

    assert chain.enqueue()
    with pytest.raises(bench.cuda.LogicError, match="illegal memory access"):
        bench.stream.synchronize()


def test_shapes_that_were_not_set_are_told(bench: Workbench) -> None:
    bound = bench.context(BATCHES, profiles=[SMALL])

    assert bound.context.infer_shapes() == ["x"]
    assert not bound.enqueue()
    assert tuple(bound.context.get_tensor_shape("y")) == (-1, 3)


@pytest.mark.parametrize("shape", [(5, 3), (0, 3), (2, 4), (2,)])
def test_a_shape_outside_of_the_profile_is_refused(shape: tuple[int, ...], bench: Workbench) -> None:
    bound = bench.context(BATCHES, profiles=[SMALL])

    assert not bound.context.set_input_shape("x", shape)
    assert not bound.context.set_input_shape("z", (1, 3))


def test_an_engine_needs_a_current_context(bench: Workbench) -> None:
    plan = bench.build(CHAIN)
    bench.cuda.Context.pop()

    assert bench.read(plan) is None
    assert "no current context" in bench.said[-1]


def test_two_threads_in_one_context_are_a_misuse(bench: Workbench, chain: BoundContext) -> None:
    entered, left = threading.Event(), threading.Event()

    def hold() -> None:
        with chain.context._alone():
            entered.set()
            left.wait(120)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(120)
    chain.context.set_input_shape("x", (2, 3))
    left.set()
    thread.join()

    assert bench.gpu.misuses == ["two threads use one context at once"]


@pytest.mark.parametrize("waits", [False, True])
def test_scratch_memory_is_not_used_by_two_streams_at_once(waits: bool, bench: Workbench, chain: BoundContext) -> None:
    other, event = bench.context(CHAIN), bench.cuda.Event()
    other.context.set_device_memory(int(chain.arena), 256)
    second = bench.cuda.Stream()
    chain.enqueue()

    if waits:
        event.record(bench.stream)
        second.wait_for_event(event)
    other.context.execute_async_v3(second.handle)
    bench.cuda.Context.synchronize()

    assert bench.gpu.misuses == ([] if waits else ["two streams use the same scratch memory at once"])


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (ILLEGAL_ADDRESS, "LogicError", "an illegal memory access was encountered"),
        (LAUNCH_FAILED, "LaunchError", "unspecified launch failure"),
    ],
)
def test_an_error_of_a_kernel_comes_late_and_stays(code: int, kind: str, said: str, bench: Workbench) -> None:
    bound = bench.context(CHAIN)
    bound.give(x=X)
    bench.gpu.fails_kernel = code

    assert bound.enqueue()
    for _ in range(2):
        with pytest.raises(getattr(bench.cuda, kind), match=said):
            bench.stream.synchronize()
    assert not bound.enqueue()
