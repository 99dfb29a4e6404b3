"""Inputs to check engines with: the user's, or generated ones that the model runs on."""

from __future__ import annotations

import pathlib
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest

from trtnode.engines.errors import EngineError, InvalidInputError
from trtnode.engines.inputs.samples import (
    MAX_ELEMENTS,
    Remembering,
    find_generated,
    find_samples,
    load_samples,
    one_step,
)
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.partitioner.graph.view import Graph, TensorSpec
from trtnode.partitioner.model.loading import load_model
from workshop import Workshop


def opened(workshop: Workshop, graph: str) -> tuple[NativeSession, tuple[TensorSpec, ...]]:
    path = workshop.write(graph)
    return NativeSession(path), tuple(TensorSpec.of(v) for v in Graph.of(load_model(path)).inputs)


def test_generated_inputs_are_normal_and_positive_numbers(workshop: Workshop) -> None:
    session, inputs = opened(workshop, "g (float[N,200] x) => (float[N,200] y) { y = Exp(x) }")

    normal, positive = find_samples(session, inputs, None)

    assert normal["x"].shape == positive["x"].shape == (2, 200)
    assert normal["x"].dtype == np.float32
    assert (normal["x"] < 0).any()
    assert (positive["x"] > 0).all()


def test_equal_inputs_do_not_run_again(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    session, _ = opened(workshop, "g (float[N] x) => (float[N] y) { y = Exp(x) }")
    ran: list[Any] = []
    run = session.run
    monkeypatch.setattr(session, "run", lambda feeds: ran.append(feeds["x"].tolist()) or run(feeds))
    remembering = Remembering(session)

    results = [remembering.run({"x": np.array(x, np.float32)}) for x in ([1], [2], [2], [3], [1], [2, 2])]

    assert ran == [[1], [2], [3], [2, 2]]
    for (result,), x in zip(results, ([1], [2], [2], [3], [1], [2, 2]), strict=True):
        np.testing.assert_allclose(result, np.exp(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("graph", "size"),
    [
        pytest.param("g (float[N] x) => (float[M,4] y) <int64[2] s = {-1,4}> { y = Reshape(x, s) }", 4, id="four"),
        pytest.param(
            "g (float[N] x) => (float[8,8] y) <int64[2] s = {8,8}> { y = Reshape(x, s) }", 64, id="sixty-four"
        ),
        pytest.param(
            "g (float[N] x) => (float[M] y) <int64[1] a = {3}, int64[1] b = {99}> { y = Slice(x, a, b) }",
            4,
            id="results-with-elements-are-better",
        ),
    ],
)
def test_sizes_are_tried_until_the_model_runs(graph: str, size: int, workshop: Workshop) -> None:
    session, inputs = opened(workshop, graph)

    samples = find_samples(session, inputs, None)

    assert [s["x"].shape for s in samples] == [(size,), (size,)]


def test_integers_are_valid_indices(workshop: Workshop) -> None:
    session, inputs = opened(
        workshop, "g (int64[N] i, int32[2] j) => (float[N] y) <float[1] w = {5}> { y = Gather(w, i) }"
    )

    samples = find_samples(session, inputs, None)

    assert {int(v) for s in samples for v in s["i"]} == {0}


@pytest.mark.parametrize("kind", ["bool", "uint8", "float16", "double", "bfloat16", "string"])
def test_every_type_is_generated(kind: str, workshop: Workshop) -> None:
    session, inputs = opened(workshop, f"g ({kind}[N] x) => ({kind}[N] y) {{ y = Identity(x) }}")

    assert len(find_samples(session, inputs, None)) == 2


def test_inputs_with_a_default_are_left_out(workshop: Workshop) -> None:
    session, inputs = opened(
        workshop, "g (float[4] x, float[4] w) => (float[4] y) <float[4] w = {1,2,3,4}> { y = Mul(x, w) }"
    )

    assert [list(s) for s in find_samples(session, inputs, None)] == [["x"], ["x"]]


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param("g (float[N] x) => (float[7,11] y) <int64[2] s = {7,11}> { y = Reshape(x, s) }", id="never-fits"),
        pytest.param("g (seq(float[N]) s) => (float[M] y) { y = ConcatFromSequence<axis = 0>(s) }", id="sequence"),
    ],
)
def test_model_that_runs_on_nothing_generated_has_no_samples(graph: str, workshop: Workshop) -> None:
    session, inputs = opened(workshop, graph)

    assert find_samples(session, inputs, None) == []


STEP = "g (float[b, 2, past, 4] c, float[b, 2, new, 4] x) => (float[b, 2, all, 4] y) { y = Concat<axis = 2>(c, x) }"
MASKED = """g (float[1, past, 4] c, float[1, new, 4] x, float[1, total] mask) => (float[1, n, 4] y, float[1, n, 4] all)
    <int64[1] axis = {2}> {
    column = Unsqueeze(mask, axis) all = Concat<axis = 1>(c, x) y = Mul(all, column)
}"""


@pytest.mark.parametrize(
    ("graph", "shapes"),
    [
        pytest.param(STEP, [(4, 2, 4, 4), (4, 2, 1, 4)], id="decoder"),
        pytest.param(MASKED, [(1, 4, 4), (1, 1, 4), (1, 5)], id="with-a-mask-of-all"),
        pytest.param("g (float[a, 4] x) => (float[b, 4] y) { y = Concat<axis = 0>(x, x) }", [(4, 4)], id="no-cache"),
        pytest.param("g (float[a, 4] x) => (float[a, 4] y) { y = Relu(x) }", [(4, 4)], id="nothing-grows"),
    ],
)
def test_one_step_of_a_decoder_keeps_its_past(graph: str, shapes: list[tuple[int, ...]], workshop: Workshop) -> None:
    session, inputs = opened(workshop, graph)
    related, samples = find_generated(session, inputs, (4,))

    step = one_step(session, related, samples[0])

    assert [array.shape for array in step.values()] == shapes


def test_huge_guesses_are_not_made(workshop: Workshop) -> None:
    session, inputs = opened(
        workshop, "g (float[a,b,c,d,e] x) => (float[7,11] y) <int64[2] s = {7,11}> { y = Reshape(x, s) }"
    )
    tracemalloc.start()

    samples = find_samples(session, inputs, None)

    assert samples == []
    assert tracemalloc.get_traced_memory()[1] < 16 * MAX_ELEMENTS
    tracemalloc.stop()


def test_given_inputs_that_the_model_refuses_are_an_error(workshop: Workshop) -> None:
    session, inputs = opened(workshop, "g (float[4] x) => (float[4] y) { y = Exp(x) }")
    np.savez(workshop.folder / "in.npz", x=np.ones(7, np.float32))

    with pytest.raises(InvalidInputError, match=r"in\.npz: the model does not run on these inputs: .*x"):
        find_samples(session, inputs, workshop.folder / "in.npz")


def write_array(path: pathlib.Path) -> None:
    np.save(path.open("wb"), np.ones(3))


def write_pickled(path: pathlib.Path) -> None:
    np.savez(path, x=np.array([{}], dtype=object))


def write_cut_short(path: pathlib.Path) -> None:
    np.savez(path, x=np.ones(1000))
    path.write_bytes(path.read_bytes()[:500])


MISSING, NO_ARCHIVE = "there is no such file. Check the path", "not an .npz file of arrays. Write one with numpy.savez"


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        pytest.param(lambda path: None, MISSING, id="missing"),
        pytest.param(lambda path: path.mkdir(), MISSING, id="a-folder"),
        pytest.param(lambda path: path.touch(), NO_ARCHIVE, id="empty"),
        pytest.param(lambda path: path.write_bytes(b"garbage"), NO_ARCHIVE, id="garbage"),
        pytest.param(lambda path: path.write_bytes(b"PK\3\4garbage"), NO_ARCHIVE, id="broken-zip"),
        pytest.param(write_cut_short, NO_ARCHIVE, id="cut-short"),
        pytest.param(write_array, NO_ARCHIVE, id="one-array-without-a-name"),
        pytest.param(write_pickled, "array 'x' holds Python objects", id="pickled-objects"),
    ],
)
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_file_that_is_no_npz_is_an_error(write: Any, problem: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "in.npz"
    write(path)

    with pytest.raises(EngineError, match=re.escape(f"in.npz: {problem}")):
        load_samples(path)


def test_names_and_values_are_read(tmp_path: pathlib.Path) -> None:
    np.savez(tmp_path / "in.npz", a=np.array(["x", "ü"]), b=np.arange(3))

    samples = load_samples(tmp_path / "in.npz")

    assert {name: value.tolist() for name, value in samples.items()} == {"a": ["x", "ü"], "b": [0, 1, 2]}


def test_declared_sizes_are_kept_however_large(workshop: Workshop) -> None:
    session, inputs = opened(workshop, "g (float[4200,4200] x) => (float[4200,4200] y) { y = Identity(x) }")

    assert find_samples(session, inputs, None)[0]["x"].shape == (4200, 4200)
