"""Indices and lengths of requests stay inside tensors, in every engine that runs here.

Each operator is run with indices at the ends of its range, beyond them, and far beyond. Where indices come as they are,
the outcome is that of native execution, errors included. Where they are computed, no memory outside is read.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from edited_models import edited, with_field
from index_sweep import CASES, FILL, Outcomes, sweep
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import ExecutionError
from trtnode.engines.openvino.indices import TABLE
from trtnode.engines.openvino.labels import label
from trtnode.engines.openvino.operators import CONSTANT_INPUTS
from trtnode.engines.sparse.library import missing_reason
from trtnode.partitioner.compiled.stripping import strip_fallback
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import clean_up
from workshop import Workshop

UNSIZED = ("GRU", "GatherND", "GatherND-batches", "GatherND-rows", "LSTM", "RNN", "RotaryEmbedding")
"""Cases whose weights or columns need sizes."""


def sources(workshop: Workshop, **kind: bool) -> dict[str, pathlib.Path]:
    names = [name for name in CASES if not (kind.get("dynamic") and name in UNSIZED)]
    return {name: workshop.write(CASES[name].text(**kind), opset=CASES[name].opset) for name in names}


def compiled(workshop: Workshop, files: dict[str, pathlib.Path], engine: str) -> dict[str, pathlib.Path]:
    return {name: workshop.compile_file(path, engine=engine, all_engines=True) for name, path in files.items()}


@pytest.fixture(scope="module")
def natively(shared_workshop: Workshop) -> Callable[[bool], Outcomes]:
    """Gives the outcomes of native execution, with sizes or without."""
    return functools.cache(lambda dynamic: sweep(sources(shared_workshop, dynamic=dynamic)))


def outcome(found: list[Any]) -> Any:
    """Return what a caller sees of a run: an error, or a result."""
    return found if found[0] == "signal" else found[0] if found[0] == "error" else found[1]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("engine", "dynamic"),
    [
        pytest.param("openvino", False, id="openvino"),
        pytest.param("openvino", True, id="openvino-dynamic"),
        pytest.param("sparse", False, id="sparse"),
    ],
)
def test_indices_of_a_request_have_the_outcome_of_native_execution(
    workshop: Workshop, engine: str, dynamic: bool, natively: Callable[[bool], Outcomes]
) -> None:
    if engine == "sparse" and (problem := missing_reason()):
        pytest.skip(problem)

    outcomes = sweep(compiled(workshop, sources(workshop, dynamic=dynamic), engine))

    for name, by_index in natively(dynamic).items():
        for index, expected in by_index.items():
            found = outcomes[name][index]
            assert (name, index, outcome(found)) == (name, index, outcome(expected))
            inside = -CASES[name].size <= index < CASES[name].size
            assert not (found[0] == "result" and inside and found[2]), f"{name} {index} was answered natively"


@pytest.mark.timeout(600)
def test_computed_indices_stay_inside_in_engines(workshop: Workshop) -> None:
    """Engines answer with an element that is there, with nothing, or not at all."""
    outcomes = sweep(compiled(workshop, sources(workshop, computed=True), "openvino"), computed=True)

    for name, by_index in outcomes.items():
        for index, found in by_index.items():
            assert found[0] != "signal", f"{name} {index}: {found}"
            if found[0] == "result" and name not in ("GRU", "LSTM", "RNN"):
                known = {0.0, FILL, 2 * FILL**2}  # the last one where elements are multiplied and added
                assert known.issuperset(np.unique(found[1])), f"{name} {index}: {found}"


@pytest.mark.timeout(600)
def test_the_reference_ends_no_process(workshop: Workshop) -> None:
    outcomes = sweep(compiled(workshop, sources(workshop), "reference"), most=1000)

    assert not [one for by_index in outcomes.values() for one in by_index.values() if one[0] == "signal"]


SIZES = {
    "AffineGrid": "g (float[1,2,3] t, int64[4] n) => (float[A,B,C,D] y) { y = AffineGrid(t, n) }",
    "BitShift": 'g (uint8[3] x, uint8[3] n) => (uint8[3] y) { y = BitShift<direction = "RIGHT">(x, n) }',
    "CenterCropPad": "g (float[3,4] x, int64[2] n) => (float[A,B] y) { y = CenterCropPad(x, n) }",
    "Compress": "g (float[3] x, bool[3] n) => (float[M] y) { y = Compress(x, n) }",
    "ConstantOfShape": "g (int64[2] n) => (float[A,B] y) { y = ConstantOfShape(n) }",
    "CumSum": "g (float[3] x, int64 n) => (float[3] y) { y = CumSum(x, n) }",
    "DFT": "g (float[1,8,1] x, int64 n) => (float[A,B,C] y) { y = DFT(x, n) }",
    "Expand": "g (float[1] x, int64[1] n) => (float[M] y) { y = Expand(x, n) }",
    "EyeLike": "g (float[3,3] n) => (float[3,3] y) { y = EyeLike(n) }",
    "MaxUnpool": "g (float[1,1,2,2] x, int64[1,1,2,2] n) => (float[A,B,C,D] y) "
    "{ y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, n) }",
    "NonMaxSuppression": "g (float[1,3,4] x, float[1,1,3] s, int64[1] n) => (int64[M,3] y) "
    "{ y = NonMaxSuppression(x, s, n) }",
    "OneHot": "g (int64[3] x, int64 n, float[2] v) => (float[A,B] y) { y = OneHot(x, n, v) }",
    "Pad": "g (float[3] x, int64[2] n) => (float[M] y) { y = Pad(x, n) }",
    "Range": "g (int64 a, int64 n, int64 c) => (int64[M] y) { y = Range(a, n, c) }",
    "ReduceSum": "g (float[3,4] x, int64[1] n) => (float[A,B] y) { y = ReduceSum(x, n) }",
    "Reshape": "g (float[4] x, int64[2] n) => (float[A,B] y) { y = Reshape(x, n) }",
    "Resize": "g (float[1,1,4,4] x, int64[4] n) => (float[A,B,C,D] y) { y = Resize(x, , , n) }",
    "STFT": "g (float[1,64,1] x, int64 n, float[16] w) => (float[A,B,C,D] y) { y = STFT(x, n, w) }",
    "Slice": "g (float[4] x, int64[1] n, int64[1] e) => (float[M] y) { y = Slice(x, n, e) }",
    "Split": "g (float[4] x, int64[2] n) => (float[A] y, float[B] z) { y, z = Split(x, n) }",
    "Squeeze": "g (float[4,1] x, int64[1] n) => (float[A] y) { y = Squeeze(x, n) }",
    "Tile": "g (float[4] x, int64[1] n) => (float[M] y) { y = Tile(x, n) }",
    "TopK": "g (float[4] x, int64[1] n) => (float[M] y, int64[M] z) { y, z = TopK(x, n) }",
    "Trilu": "g (float[4,4] x, int64 n) => (float[4,4] y) { y = Trilu(x, n) }",
    "Unsqueeze": "g (float[4] x, int64[1] n) => (float[A,B] y) { y = Unsqueeze(x, n) }",
    "Upsample": "g (float[1,1,4,4] x, float[4] n) => (float[A,B,C,D] y) { y = Upsample(x, n) }",
}


@pytest.mark.parametrize("op", SIZES)
def test_sizes_axes_and_counts_of_a_request_stay_with_the_library_that_checks_them(workshop: Workshop, op: str) -> None:
    source = workshop.write(SIZES[op], opset=9 if op == "Upsample" else 21)

    verdict = next(label(node) for node in clean_up(load_model(source)).nodes if node.op_type == op)

    assert verdict.code is not None


def test_a_size_that_a_branch_takes_from_a_request_is_none_of_dimensions(workshop: Workshop) -> None:
    source = workshop.write("""g (float[N] x, int64[1] n, bool c) => (float[M] y) { s = Shape(x)
        k = If(c) <then_branch = t () => (int64[1] u) { u = Identity(n) },
            else_branch = e () => (int64[1] v) { v = Identity(s) }> y = ConstantOfShape(k) }""")

    verdict = next(label(node) for node in clean_up(load_model(source)).nodes if node.op_type == "ConstantOfShape")

    assert verdict.code is ReasonCode.UNSUPPORTED_INPUT


def test_every_operator_of_the_tables_is_swept() -> None:
    swept = {name.partition("-")[0] for name in CASES}

    assert set(TABLE) | {"OneHot"} == swept
    reductions = {name for name in CONSTANT_INPUTS if name.startswith("Reduce")}
    assert set(CONSTANT_INPUTS) - reductions - {"DequantizeLinear", "MatMulNBits", "QuantizeLinear"} <= set(SIZES)


@pytest.mark.parametrize(
    ("moves", "shape"),
    [
        pytest.param("j = Identity(i)", "3, 2", id="identity"),
        pytest.param("k = Cast<to = 6>(i) j = Cast<to = 7>(k)", "3, 2", id="casts"),
        pytest.param("j = Reshape(i, shape)", "6", id="reshape"),
        pytest.param("j = Unsqueeze(i, axis)", "3, 2", id="unsqueeze"),
    ],
)
def test_indices_that_are_only_moved_are_refused_as_native_execution_does(
    workshop: Workshop, moves: str, shape: str
) -> None:
    executable = workshop.executable(
        f"""g (float[5, 4] x, int64[{shape}] i) => (float[A, B] y) <int64[2] shape = {{3, 2}}, int64[1] axis = {{0}}> {{
            {moves} z = GatherND(x, j) y = Flatten<axis = 0>(z) }}""",
        all_engines=True,
    )
    rows = {"x": np.arange(20, dtype=np.float32).reshape(5, 4)}
    sizes = tuple(map(int, shape.split(",")))
    inside = np.array([[4, 3], [-5, -4], [0, 1]]).reshape(sizes)
    outside = np.array([[0, 0], [0, 4], [0, 0]]).reshape(sizes)

    assert executable.run({**rows, "i": inside})["y"].ravel().tolist() == [19.0, 0.0, 1.0]
    with pytest.raises(ExecutionError, match="invalid index found, index = 4"):
        executable.run({**rows, "i": outside})


def test_a_size_that_varies_is_that_of_the_request(workshop: Workshop) -> None:
    executable = workshop.executable(
        "g (float[N, 4] x, int64[M] i) => (float[M, 4] y) { y = Gather(x, i) }", all_engines=True
    )

    def run(rows: int, index: int) -> Any:
        feeds = {"x": np.full((rows, 4), FILL, np.float32), "i": np.array([index, -1])}
        return executable.run(feeds)["y"][0, 0]

    assert [run(3, 2), run(7, 6), run(7, -7)] == [FILL] * 3
    with pytest.raises(ExecutionError, match="out of data bounds, idx=5"):
        run(5, 5)


def test_without_a_native_path_the_error_names_the_input_and_its_range(workshop: Workshop) -> None:
    source = workshop.write("g (float[5] x, int64[2] i) => (float[2] y) { y = Gather(x, i) }")
    path = workshop.folder / "stripped.onnx"
    compiled_model = workshop.compile(source, all_engines=True)
    strip_fallback(compiled_model.model)
    compiled_model.save(path)

    with pytest.raises(ExecutionError, match="'i' holds an index outside the allowed ones, which are -5 to 4"):
        open_model(path).run({"x": np.zeros(5, np.float32), "i": np.array([0, 5])})


CLAMPED = "g (float[5] x, int64[2, 1] i) => (float[2] y) { y = GatherND(x, i) }"


def test_an_engine_from_before_the_clamps_is_left_out(workshop: Workshop, caplog: pytest.LogCaptureFixture) -> None:
    path = workshop.compile_file(workshop.write(CLAMPED), all_engines=True)

    def as_before(proto: onnx.ModelProto) -> None:
        options = {"INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": "1", "PERFORMANCE_HINT": "LATENCY"}
        with_field(options=options)(proto)

    executable = open_model(edited(path, as_before))

    assert executable.facts.segments == 0
    assert "GatherND in it addresses memory by indices that are not checked; compile the model again." in caplog.text


@pytest.mark.parametrize(
    "bounds",
    ["[", "7", '[{"input": 9, "sizes": [5], "negative": true, "length": false}]', '[{"input": 1, "sizes": [[0, 7]]}]'],
)
def test_bounds_that_do_not_fit_the_engine_are_refused(
    workshop: Workshop, caplog: pytest.LogCaptureFixture, bounds: str
) -> None:
    path = workshop.compile_file(workshop.write(CLAMPED), all_engines=True)

    executable = open_model(edited(path, with_field(options={"INDICES": bounds})))

    assert executable.facts.segments == 0
    assert "can't be read" in caplog.text
