"""Owners of memory: results belong to the caller, buffers to the run."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trtnode.engines.runtime import contexts
from trtnode.engines.runtime.executor import Executable
from workshop import Workshop

SMALL, LARGE = 4, 8192  # elements; results from HAND_OUT_BYTES on are handed out without a copy

MODELS = {
    "fixed-small": ("g (float[4] x) => (float[4] y, float[4] e)", SMALL),
    "fixed-large": ("g (float[8192] x) => (float[8192] y, float[8192] e)", LARGE),
    "dynamic": ("g (float[N] x) => (float[N] y, float[N] e)", LARGE),
}

BODY = " { e = Exp(x) r = Relu(e) y = Neg(r) }"


@pytest.fixture(scope="module", params=list(MODELS))
def model(request: pytest.FixtureRequest, shared_workshop: Workshop) -> tuple[Executable, int]:
    graph, size = MODELS[request.param]
    return shared_workshop.executable(graph + BODY, native_ops=("Relu",)), size


def ramp(size: int, start: float) -> np.ndarray:
    return np.linspace(start, start + 1, size, dtype=np.float32)


def test_sizes_of_these_models_lie_on_both_sides_of_the_limit() -> None:
    assert SMALL * 4 < contexts.HAND_OUT_BYTES <= LARGE * 4


def test_earlier_results_stay_as_they_were(model: tuple[Executable, int]) -> None:
    executable, size = model

    answers = [executable.run({"x": ramp(size, i)}) for i in range(12)]

    for i, answer in enumerate(answers):
        np.testing.assert_allclose(answer["e"], np.exp(ramp(size, i)), rtol=1e-5)
        np.testing.assert_allclose(answer["y"], -np.exp(ramp(size, i)), rtol=1e-5)


@pytest.mark.parametrize(
    "keep",
    [
        pytest.param(lambda a: a[1:], id="slice"),
        pytest.param(lambda a: a.reshape(2, -1)[:, ::2].T, id="view-of-a-view"),
        pytest.param(lambda a: memoryview(a)[1:], id="memoryview"),
        pytest.param(lambda a: np.frombuffer(a, np.uint8), id="frombuffer"),
        pytest.param(lambda a: np.asarray(memoryview(a)), id="array-of-memoryview"),
        pytest.param(lambda a: a.view(np.recarray), id="subclass"),
        pytest.param(lambda a: np.lib.stride_tricks.as_strided(a, (2,), (4,)), id="strides"),
        pytest.param(lambda a: a.ctypes, id="ctypes"),
        pytest.param(lambda a: iter(a), id="iterator"),
        pytest.param(lambda a: a.base, id="base"),
    ],
)
def test_whatever_still_looks_at_a_result_keeps_it_as_it_was(keep: Any, model: tuple[Executable, int]) -> None:
    executable, size = model
    kept = [keep(executable.run({"x": ramp(size, i)})["y"]) for i in range(8)]
    seen = [look(view) for view in kept]

    for i in range(8, 16):
        executable.run({"x": ramp(size, i)})
    gc.collect()
    executable.run({"x": ramp(size, 16)})

    assert [look(view) for view in kept] == seen


def look(view: Any) -> Any:
    if isinstance(view, np.ndarray):
        return view.tobytes()
    if hasattr(view, "data_as"):
        return view._arr.tobytes()
    return bytes(view) if isinstance(view, memoryview | bytearray) else None


def test_results_belong_to_the_caller(model: tuple[Executable, int]) -> None:
    executable, size = model
    first = executable.run({"x": ramp(size, 0)})

    for value in first.values():
        assert value.flags.writeable
        value[:] = np.nan

    np.testing.assert_allclose(executable.run({"x": ramp(size, 0)})["y"], -np.exp(ramp(size, 0)), rtol=1e-5)


def test_a_result_may_be_the_next_input(model: tuple[Executable, int]) -> None:
    executable, size = model
    expected = value = ramp(size, -1)

    for _ in range(6):
        value = executable.run({"x": value})["y"]
        expected = -np.exp(expected)

    np.testing.assert_allclose(value, expected, rtol=1e-4)


def test_inputs_may_change_after_the_run(model: tuple[Executable, int]) -> None:
    executable, size = model
    x = ramp(size, 0)

    answers = executable.run({"x": x})
    x[:] = 100

    np.testing.assert_allclose(answers["e"], np.exp(ramp(size, 0)), rtol=1e-5)


def test_memory_of_results_is_used_again_once_the_caller_lets_go(model: tuple[Executable, int]) -> None:
    executable, size = model

    for i in range(3 * contexts.KEPT_SLOTS):
        held = [executable.run({"x": ramp(size, j)}) for j in range(i % 5)]
        for j, answer in enumerate(held):
            np.testing.assert_allclose(answer["y"], -np.exp(ramp(size, j)), rtol=1e-5)
        del held


@pytest.mark.parametrize("size", ["2,4", "N,4"], ids=["fixed", "dynamic"])
def test_outputs_that_are_inputs_or_constants_are_copies(size: str, workshop: Workshop) -> None:
    graph = f"g (float[{size}] x, float[4] d) => (float[{size}] x, float[2] k, float[4] d, float[{size}] y)"
    executable = workshop.executable(graph + " <float[2] k = {1,2}, float[4] d = {1,2,3,4}> { y = Exp(x) }")
    x = np.ones((2, 4), np.float32)

    answers = executable.run({"x": x})
    for value in answers.values():
        value[:] = -1

    assert (x == 1).all()
    again = executable.run({"x": x})
    assert list(again) == ["x", "k", "d", "y"]
    assert again["x"].tolist() == x.tolist()
    assert again["k"].tolist() == [1, 2]
    assert again["d"].tolist() == [1, 2, 3, 4]


def test_large_outputs_keep_the_order_of_the_model(workshop: Workshop) -> None:
    executable = workshop.executable(
        "g (float[8192] x) => (float[8192] big, float[2] k, float[1] small, float[8192] x, float[8192] e)"
        " <float[2] k = {1,2}, int64[1] a = {0}> { e = Exp(x) big = Neg(e) small = ReduceMax(e, a) }"
    )

    answers = executable.run({"x": ramp(LARGE, 0)})

    assert list(answers) == ["big", "k", "small", "x", "e"]
    assert answers["small"] == answers["e"].max()
    assert np.array_equal(answers["big"], -answers["e"])


def test_large_output_listed_twice_is_one_result(workshop: Workshop) -> None:
    executable = workshop.executable("g (float[8192] x) => (float[8192] y, float[8192] y) { y = Exp(x) }")

    answers = [executable.run({"x": ramp(LARGE, i)}) for i in range(3)]

    for i, answer in enumerate(answers):
        np.testing.assert_allclose(answer["y"], np.exp(ramp(LARGE, i)), rtol=1e-5)


def test_shapes_may_change_from_run_to_run(workshop: Workshop) -> None:
    executable = workshop.executable(MODELS["dynamic"][0] + BODY, native_ops=("Relu",))

    for size in (5, 3, 5, 5, 700, 1, 3, 64, 700):
        for start in (0, 1):
            answers = executable.run({"x": ramp(size, start)})
            np.testing.assert_allclose(answers["y"], -np.exp(ramp(size, start)), rtol=1e-5)


def test_scalars_stay_scalars_between_stages(workshop: Workshop, fallbacks: Callable[[Executable], list[str]]) -> None:
    executable = workshop.executable(
        "g (float s, float[N] x) => (float[N] y) { r = Relu(s) e = Exp(r) m = Mul(x, e) y = Neg(m) }",
        native_ops=("Relu",),
    )
    reasons = fallbacks(executable)

    answers = executable.run({"s": np.array(1, np.float32), "x": ramp(3, 0)})

    np.testing.assert_allclose(answers["y"], -np.e * ramp(3, 0), rtol=1e-5)
    assert executable.facts.segments == 1
    assert reasons == []
