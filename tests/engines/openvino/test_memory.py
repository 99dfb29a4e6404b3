"""Large tensors of varying shapes: read where they lie, handed out without a copy, and never overwritten in use."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from stand_in_workers import InProcessWorker
from trtnode.engines.compile.opening import open_model
from trtnode.engines.openvino.memory import LARGE_BYTES
from trtnode.engines.runtime.executor import Executable
from workshop import Workshop

WIDE = LARGE_BYTES // 4 // 8
"""Elements of a row, of which eight are large."""

GRAPH = f"""g (float[N,{WIDE}] past, float[M,{WIDE}] x) => (float[P,{WIDE}] present, float[N,{WIDE}] same, float[1] s)
    <int64[2] all = {{-1, {WIDE}}}, int64[1] flat = {{-1}}> {{
    present = Concat<axis = 0>(past, x) row = Reshape(past, flat) same = Reshape(row, all)
    t = ReduceSum<keepdims = 0>(x) s = Reshape(t, flat) }}"""


@pytest.fixture
def executable(workshop: Workshop, in_process: InProcessWorker) -> Executable:
    return open_model(workshop.compile_file(workshop.write(GRAPH), worker=in_process))


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, WIDE)).astype(np.float32)


def test_results_that_a_caller_holds_stay(executable: Executable) -> None:
    past, expected = rows(8), rows(8)
    held = []

    for step in range(12):
        results = executable.run({"past": past, "x": rows(1, step)})
        expected = np.concatenate([expected, rows(1, step)])
        held.append((results["present"], results["same"], results["s"], expected))
        past = results["present"]

    for step, (present, same, total, right) in enumerate(held):
        np.testing.assert_array_equal(present, right)
        np.testing.assert_array_equal(same, right[:-1])
        np.testing.assert_allclose(total, [rows(1, step).sum()], rtol=1e-4)


def test_a_view_keeps_its_result(executable: Executable) -> None:
    for _ in range(2):
        view = executable.run({"past": rows(8), "x": rows(1)})["present"][3:5]

    for _ in range(5):
        executable.run({"past": rows(8, seed=1), "x": rows(1)})

    np.testing.assert_array_equal(view, rows(8)[3:5])


def test_memory_of_results_is_used_again(executable: Executable) -> None:
    places = [executable.run({"past": rows(8), "x": rows(1)})["present"].ctypes.data for _ in range(9)]

    assert len(set(places[1:])) <= 2


def test_results_may_shrink_and_grow(executable: Executable) -> None:
    for count in (8, 9, 40, 1, 8, 300, 2, 301, 9):
        results = executable.run({"past": rows(count), "x": rows(2, 1)})

        np.testing.assert_array_equal(results["present"], np.concatenate([rows(count), rows(2, 1)]))
        np.testing.assert_array_equal(results["same"], rows(count))


def read_only(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(array.tobytes(), np.float32).reshape(array.shape)


def unaligned(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(bytearray(b"x" + array.tobytes()), np.uint8)[1:].view(np.float32).reshape(array.shape)


def strided(array: np.ndarray) -> np.ndarray:
    return np.repeat(array, 2, axis=0)[::2]


@pytest.mark.parametrize("made", [read_only, unaligned, strided])
def test_inputs_may_lie_anywhere(made: Callable[[np.ndarray], np.ndarray], executable: Executable) -> None:
    for seed in range(3):
        results = executable.run({"past": made(rows(9, seed)), "x": rows(1)})

        np.testing.assert_array_equal(results["same"], rows(9, seed))


@pytest.mark.parametrize("made", [rows, lambda count: read_only(rows(count))])
def test_memory_of_inputs_is_let_go(made: Callable[[int], np.ndarray], executable: Executable) -> None:
    past = made(9)
    before = sys.getrefcount(past)

    for _ in range(3):
        results = executable.run({"past": past, "x": rows(1)})

    assert sys.getrefcount(past) == before
    assert not any(np.shares_memory(past, result) for result in results.values())


def test_results_that_come_back_are_not_searched_for_nan_again(executable: Executable) -> None:
    reasons: list[str] = []
    executable.on_fallback = reasons.append
    for _ in range(2):
        past = executable.run({"past": rows(9), "x": rows(1)})["present"]

    past[0, 0] = np.nan
    executable.run({"past": past, "x": rows(1)})
    assert not reasons

    executable.run({"past": past.copy(), "x": rows(1)})
    executable.run({"past": past[:], "x": rows(1)})
    assert reasons == ["non_finite_input"] * 2
