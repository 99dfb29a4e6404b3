"""Runs: natively where engines can't answer, by several threads at once, and after every failure."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from arrays import floats
from comparison import AssertSame, RunPlainly
from edited_models import edited, without_option
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import ExecutionError, InvalidInputError
from trtnode.engines.runtime.executor import Executable, open_executable
from trtnode.partitioner.model.loading import load_model
from workshop import Workshop

Feeds = Mapping[str, Any]


def test_batch_of_nothing_is_answered_natively_where_its_engine_was_not_compared_with_one(
    workshop: Workshop, fallbacks: Callable[[Executable], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    compiled = workshop.compile_file(workshop.write("g (float[N,4] x) => (float[N,4] y) { e = Exp(x) y = Neg(e) }"))
    executable = open_model(edited(compiled, without_option("EMPTY")))
    reasons = fallbacks(executable)

    answers = executable.run({"x": floats(0, 4)})

    assert answers["y"].shape == (0, 4)
    assert reasons == ["empty_tensor"]
    assert "Request answered natively (empty_tensor): 'x' has no elements" in caplog.text
    assert executable.run({"x": floats(2, 4)})["y"].shape == (2, 4)
    assert reasons == ["empty_tensor"]


@pytest.fixture(scope="module", params=["N", "3"], ids=["dynamic", "fixed"])
def ids(request: pytest.FixtureRequest, shared_workshop: Workshop) -> Executable:
    graph = """g (int64[S] i) => (int64[S] y, bool[S] same) <int64[3] order = {2,1,0}, int64 seven = {-7}> {
        y = Gather(i, order) same = Equal(i, seven) }"""
    return shared_workshop.executable(graph.replace("S", request.param))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(2**31 - 1, [], id="largest-that-fits"),
        pytest.param(-(2**31), [], id="smallest-that-fits"),
        pytest.param(2**31, ["int64_range"], id="one-too-large"),
        pytest.param(-(2**31) - 1, ["int64_range"], id="one-too-small"),
        pytest.param(2**40 + 1, ["int64_range"], id="a-hash"),
    ],
)
def test_int64_beyond_32_bits_is_answered_natively(
    value: int, expected: list[str], ids: Executable, fallbacks: Callable[[Executable], list[str]]
) -> None:
    reasons = fallbacks(ids)

    answers = ids.run({"i": np.array([5, value, -7])})

    assert answers["y"].tolist() == [-7, value, 5]
    assert answers["same"].tolist() == [False, False, True]
    assert reasons == expected


@pytest.mark.parametrize(
    ("batches", "expected"),
    [pytest.param((2, 2), [], id="equal"), pytest.param((1, 2), ["unequal_sizes"], id="one-of-1")],
)
def test_sizes_of_one_name_that_differ_are_answered_natively(
    batches: tuple[int, int], expected: list[str], workshop: Workshop, fallbacks: Callable[[Executable], list[str]]
) -> None:
    graph = "g (float[N,3] x, float[N,3] state) => (float[?,3] y) { s = Add(x, state) y = Neg(s) }"
    executable = workshop.executable(graph)
    reasons = fallbacks(executable)
    x, state = (np.ones((batch, 3), np.float32) for batch in batches)

    answer = executable.run({"x": x, "state": state})["y"]

    assert answer.tolist() == [[-2.0] * 3] * 2
    assert reasons == expected


def test_a_name_that_one_input_has_twice_says_nothing(
    workshop: Workshop, fallbacks: Callable[[Executable], list[str]]
) -> None:
    executable = workshop.executable("g (float[N,N] x, float[N] z) => (float[N,N] y) { s = Add(x, z) y = Neg(s) }")
    reasons = fallbacks(executable)

    assert executable.run({"x": np.ones((2, 3), np.float32), "z": np.ones(3, np.float32)})["y"].shape == (2, 3)
    assert reasons == []


def test_a_file_that_was_replaced_never_answers_for_the_model_before(workshop: Workshop) -> None:
    compiled = workshop.compile_file(workshop.write("g (float[N,4] x) => (float[N,4] y) { e = Exp(x) y = Neg(e) }"))
    executable = open_model(compiled)
    other = workshop.write("g (float[N,4] x) => (float[N,4] y) { e = Exp(x) y = Abs(e) }")

    other.replace(compiled)

    assert (executable.run({"x": floats(2, 4)})["y"] < 0).all()
    with pytest.raises(ExecutionError, match="the file changed since it was loaded"):
        executable.run({"x": np.full((2, 4), np.nan, np.float32)})


@pytest.mark.parametrize(
    ("graph", "feeds"),
    [
        pytest.param("g (float x) => (float y) { y = Exp(x) }", {"x": floats(3)}, id="fixed"),
        pytest.param(
            "g (float x, float[N] z) => (float[N] y) { e = Exp(x) y = Add(e, z) }",
            {"x": floats(3), "z": floats(3)},
            id="dynamic",
        ),
    ],
)
def test_scalar_input_takes_other_shapes_as_onnxruntime_does(
    graph: str,
    feeds: Feeds,
    workshop: Workshop,
    plain: RunPlainly,
    same: AssertSame,
    fallbacks: Callable[[Executable], list[str]],
) -> None:
    source = workshop.write(graph)
    executable = open_model(workshop.compile_file(source))
    reasons = fallbacks(executable)

    answers = executable.run(feeds)

    same(answers, plain(source, feeds))
    assert len(reasons) == 1


@pytest.mark.parametrize(
    ("graph", "sizes"),
    [
        pytest.param("g (float[8,64] x) => (float[8,64] y, float[8,64] e)", (8,), id="fixed-small"),
        pytest.param("g (float[128,64] x) => (float[128,64] y, float[128,64] e)", (128,), id="fixed-large"),
        pytest.param("g (float[N,64] x) => (float[N,64] y, float[N,64] e)", (1, 8, 128), id="dynamic"),
    ],
)
def test_many_threads_get_their_own_answers(graph: str, sizes: Sequence[int], workshop: Workshop) -> None:
    body = " { e = Exp(x) r = Relu(e) n = Neg(r) s = Relu(n) t = Add(s, n) y = Sub(t, e) }"
    executable = workshop.executable(graph + body, native_ops=("Relu",))
    assert executable.facts.segments == 3
    together = threading.Barrier(6)

    def ask(thread: int) -> int:
        rng = np.random.default_rng(thread)
        together.wait()
        wrong = 0
        kept = []
        for _ in range(60):
            x = rng.standard_normal((int(rng.choice(sizes)), 64)).astype(np.float32)
            answers = executable.run({"x": x})
            kept.append((np.exp(x), answers))
        for exp, answers in kept:
            wrong += not np.allclose(answers["e"], exp, rtol=1e-4)
            wrong += not np.allclose(answers["y"], -2 * exp, rtol=1e-4)
        return wrong

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        wrong = list(pool.map(ask, range(6)))

    assert wrong == [0] * 6


@pytest.mark.parametrize("graph", ["g (float[4] x) => (float[4] y)", "g (float[N] x) => (float[N] y)"])
def test_threads_that_fall_back_do_not_disturb_the_others(
    graph: str, workshop: Workshop, fallbacks: Callable[[Executable], list[str]]
) -> None:
    graph = graph.replace("float", "int64") + " <int64[4] order = {3,2,1,0}> { y = Gather(x, order) }"
    executable = workshop.executable(graph)
    reasons = fallbacks(executable)

    def ask(number: int) -> bool:
        large = 2**40 if number % 3 == 0 else 0
        x = np.arange(4) + number + large
        return bool(np.array_equal(executable.run({"x": x})["y"], x[::-1]))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        right = list(pool.map(ask, range(90)))

    assert all(right)
    assert reasons == ["int64_range"] * 30


def test_failing_run_is_reported_and_leaves_the_executable_usable(
    workshop: Workshop, fallbacks: Callable[[Executable], list[str]]
) -> None:
    executable = workshop.executable(
        "g (float[N] x) => (float[M,2] y) <int64[2] s = {-1, 2}> { e = Exp(x) y = Reshape(e, s) }"
    )
    assert executable.facts.segments == 1
    reasons = fallbacks(executable)

    for size in (6, 5, 6, 8, 7, 7, 8, 6, 2, 9, 2, 4):
        x = floats(size)
        if size % 2:
            with pytest.raises(ExecutionError, match=r"onnxruntime: .*Reshape"):
                executable.run({"x": x})
        else:
            np.testing.assert_allclose(executable.run({"x": x})["y"], np.exp(x).reshape(-1, 2), rtol=1e-5)

    reasons.clear()
    executable.run({"x": floats(6)})
    assert reasons == []


def test_failing_native_model_is_reported(workshop: Workshop) -> None:
    executable = workshop.executable(
        "g (float[N] x) => (float[M,2] y) <int64[2] s = {-1, 2}> { y = Reshape(x, s) }", engine="native"
    )

    with pytest.raises(ExecutionError, match="Reshape"):
        executable.run({"x": floats(5)})

    assert executable.run({"x": floats(6)})["y"].shape == (3, 2)


def test_missing_sequence_is_an_error_that_names_it(workshop: Workshop) -> None:
    executable = workshop.executable("g (seq(float[N]) s) => (float[M] z) { z = ConcatFromSequence<axis = 0>(s) }")

    with pytest.raises((InvalidInputError, ExecutionError), match=r"\bs\b"):
        executable.run({})


def test_closed_executable_lets_go_and_runs_under_way_finish(workshop: Workshop) -> None:
    executable = workshop.executable("g (float[64,64] x) => (float[64,64] y) { e = Exp(x) y = Neg(e) }")
    x = floats(64, 64)
    started = threading.Barrier(5)

    def ask(_: int) -> bool:
        started.wait()
        return all(np.allclose(executable.run({"x": x})["y"], -np.exp(x), rtol=1e-4) for _ in range(30))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        running = pool.map(ask, range(4))
        started.wait()
        executable.close()
        right = list(running)

    assert right == [True] * 4


def test_facts_say_what_runs_where(workshop: Workshop) -> None:
    executable = workshop.executable(
        "g (float[2,4] x) => (float[2,4] y) { e = Exp(x) r = Relu(e) y = Neg(r) }", native_ops=("Relu",)
    )

    facts = executable.facts
    assert (facts.engine, facts.segments, facts.native_nodes) == ("openvino", 2, 1)
    assert (facts.precision_asked, facts.precision) == ("fp32", "fp32")
    assert (facts.rejected, facts.unchecked, facts.native_fallback) == ((), 0, True)
    assert [s.name for s in executable.inputs] == ["x"]
    assert [s.static_shape for s in executable.outputs] == [(2, 4)]


def test_engines_that_are_not_asked_for_run_natively(workshop: Workshop, plain: RunPlainly, same: AssertSame) -> None:
    source = workshop.write("g (float[2,4] x) => (float[2,4] y) { a = Exp(x) b = Erf(a) y = Neg(b) }")
    path = workshop.compile_file(source, native_ops=("Erf",))

    for only, segments in ((None, 2), (("segment_1",), 1), ((), 0)):
        executable = open_executable(load_model(path), path, folder=path.parent, only=only)

        feeds = {"x": floats(2, 4)}
        assert executable.facts.segments == segments
        assert executable.facts.rejected == ()
        same(executable.run(feeds), plain(source, feeds))
