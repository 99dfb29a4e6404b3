"""Inputs are checked by name, type and shape before anything runs, with a sentence that says what they must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from arrays import floats
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import InvalidInputError
from trtnode.engines.inputs.signature import Signature
from trtnode.engines.runtime.executor import Executable
from trtnode.partitioner.graph.view import TensorSpec, describe
from workshop import Workshop

Feeds = Mapping[str, Any]


TWO_STAGES = "g (float[2,4] x, float[4] w) => (float[2,4] y, float[2,4] e) { e = Exp(x) y = Mul(e, w) }"


@pytest.fixture(scope="module", params=["openvino", "native"])
def two_stages(request: pytest.FixtureRequest, shared_workshop: Workshop) -> Executable:
    return shared_workshop.executable(TWO_STAGES, engine=request.param)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        pytest.param({"x": floats(2, 4)}, r"'w' is missing.*x float32\[2, 4\], w float32\[4\]", id="missing"),
        pytest.param(
            {"x": floats(2, 4), "w": floats(4), "v": floats(4)},
            r"no input 'v'\. The model takes x float32",
            id="unknown",
        ),
        pytest.param(
            {"x": floats(2, 4).astype(np.float64), "w": floats(4)},
            r"'x' must be float32\[2, 4\], but is float64\[2, 4\]",
            id="dtype",
        ),
        pytest.param(
            {"x": floats(2, 4).astype(">f4"), "w": floats(4)},
            r"'x' must be float32\[2, 4\], but is >f4",
            id="byte-order",
        ),
        pytest.param(
            {"x": floats(2, 4), "w": floats(1, 4)}, r"'w' must be float32\[4\], but is float32\[1, 4\]", id="rank"
        ),
        pytest.param(
            {"x": floats(2, 5), "w": floats(4)}, r"'x' must be float32\[2, 4\], but is float32\[2, 5\]", id="dimension"
        ),
        pytest.param(
            {"x": floats(2, 4), "w": floats(1)}, r"'w' must be float32\[4\], but is float32\[1\]", id="not-broadcast"
        ),
        pytest.param({"x": "abc", "w": floats(4)}, r"'x' must be float32\[2, 4\], but is <U3\[\]", id="text"),
        pytest.param({"x": None, "w": floats(4)}, r"'x' must be float32\[2, 4\], but is object\[\]", id="none"),
        pytest.param({"x": [[1.0], [2.0, 3.0]], "w": floats(4)}, r"'x' must be float32\[2, 4\], but", id="ragged"),
    ],
)
def test_input_that_does_not_fit_is_named(feeds: Feeds, message: str, two_stages: Executable) -> None:
    with pytest.raises(InvalidInputError, match=message):
        two_stages.run(feeds)

    assert two_stages.run({"x": floats(2, 4), "w": floats(4)})["y"].shape == (2, 4)


def test_unknown_output_is_named(two_stages: Executable) -> None:
    with pytest.raises(InvalidInputError, match=r"There is no output 'q'\. The model gives e, y\."):
        two_stages.run({"x": floats(2, 4), "w": floats(4)}, ["y", "q"])


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param(None, ["y", "e"], id="all"),
        pytest.param(["e"], ["e"], id="one"),
        pytest.param(["e", "y"], ["y", "e"], id="in-the-order-of-the-model"),
        pytest.param(["e", "e"], ["e"], id="twice"),
        pytest.param([], [], id="none"),
    ],
)
def test_only_wanted_outputs_are_given(wanted: list[str] | None, expected: list[str], two_stages: Executable) -> None:
    answers = two_stages.run({"x": floats(2, 4), "w": floats(4)}, wanted)

    assert list(answers) == expected


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(floats(4, 8)[::2, ::2], id="strided"),
        pytest.param(np.asfortranarray(floats(2, 4)), id="fortran-order"),
        pytest.param(floats(2, 4)[::-1], id="reversed"),
        pytest.param(np.broadcast_to(floats(1, 4), (2, 4)), id="broadcast"),
        pytest.param([[np.float32(1)] * 4] * 2, id="list-of-numpy-scalars"),
    ],
)
def test_input_may_lie_in_memory_in_any_way(value: Any, two_stages: Executable) -> None:
    for _ in range(5):
        answers = two_stages.run({"x": value, "w": np.ones(4, np.float32)})

        np.testing.assert_allclose(answers["y"], np.exp(np.asarray(value)), rtol=1e-5)


@pytest.mark.parametrize("native", [False, True], ids=["engines", "native"])
def test_small_floats_may_lie_in_memory_in_any_way(native: bool, workshop: Workshop) -> None:
    path = workshop.compile_file(
        workshop.write("g (bfloat16[N,8] h) => (float[N,8] y) { f = Cast<to = 1>(h) y = Neg(f) }")
    )
    executable = open_model(path, use_engines=not native)
    values = floats(600, 16).astype(ml_dtypes.bfloat16)

    for _ in range(20):
        answers = executable.run({"h": values[::2, ::2]})

        assert np.array_equal(answers["y"], -values[::2, ::2].astype(np.float32))


def test_read_only_input_is_only_read(two_stages: Executable) -> None:
    x = floats(2, 4)
    x.flags.writeable = False

    answers = two_stages.run({"x": x, "w": floats(4)})

    assert np.array_equal(x, floats(2, 4))
    answers["y"][:] = 0


@pytest.fixture(scope="module", params=["openvino", "native"])
def text_model(request: pytest.FixtureRequest, shared_workshop: Workshop) -> Executable:
    graph = "g (string[N] s, float[N] x) => (string[N] t, float[N] y) { y = Exp(x) t = Identity(s) }"
    return shared_workshop.executable(graph, engine=request.param)


@pytest.mark.parametrize(
    ("strings", "message"),
    [
        pytest.param(np.array([b"a", b"b"]), r"'s' must be string\[N\], but is \|S1\[2\]", id="bytes"),
        pytest.param(np.array([1, 2]), r"'s' must be string\[N\], but is int64\[2\]", id="numbers"),
        pytest.param(np.array([["a"]]), r"'s' must be string\[N\], but is <U1\[1, 1\]", id="rank"),
    ],
)
def test_strings_must_be_text(strings: np.ndarray, message: str, text_model: Executable) -> None:
    with pytest.raises(InvalidInputError, match=message):
        text_model.run({"s": strings, "x": floats(2)})


def spec(dtype: ir.DataType | None, shape: tuple[int | str | None, ...] | None, **more: Any) -> TensorSpec:
    return TensorSpec(name="x", dtype=dtype, shape=shape, **more)


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (spec(ir.DataType.FLOAT, ("N", 3, None)), "float32[N, 3, ?]"),
        (spec(ir.DataType.FLOAT, ()), "float32[]"),
        (spec(ir.DataType.INT64, None), "int64 of any shape"),
        (spec(ir.DataType.STRING, (2,)), "string[2]"),
        (spec(ir.DataType.BFLOAT16, (2,)), "bfloat16[2]"),
        (spec(None, None), "any type of any shape"),
    ],
)
def test_types_are_written_as_people_write_them(tensor: TensorSpec, expected: str) -> None:
    assert describe(tensor) == expected


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        pytest.param(spec(ir.DataType.FLOAT, (2, 3)), floats(2, 3), id="fixed"),
        pytest.param(spec(ir.DataType.FLOAT, ("N", 3)), floats(7, 3), id="dynamic"),
        pytest.param(spec(ir.DataType.FLOAT, ("N", 3)), floats(0, 3), id="no-elements"),
        pytest.param(spec(ir.DataType.FLOAT, None), floats(1, 2, 3), id="any-rank"),
        pytest.param(spec(ir.DataType.FLOAT, ()), floats(5), id="scalar-takes-any-shape"),
        pytest.param(spec(ir.DataType.BFLOAT16, (2,)), floats(2).astype(ml_dtypes.bfloat16), id="bfloat16"),
        pytest.param(spec(ir.DataType.STRING, (2,)), np.array(["a", "b"]), id="text"),
        pytest.param(spec(ir.DataType.STRING, (2,)), np.array(["a", "b"], dtype=object), id="objects"),
        pytest.param(spec(None, None), [1, 2], id="untyped-is-passed-on"),
    ],
)
def test_input_that_fits_is_taken_as_it_is(tensor: TensorSpec, value: Any) -> None:
    signature = Signature((tensor,), (tensor,))

    assert signature.check({"x": value}, None)["x"] is value
    assert signature.check({"x": value}, ["x"])["x"] is value


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_])
def test_numbers_and_lists_become_arrays(dtype: Any) -> None:
    signature = Signature((spec(ir.DataType.from_numpy(np.dtype(dtype)), ("N",)),), ())

    checked = signature.check({"x": [dtype(1), dtype(0)]}, None)

    assert isinstance(checked["x"], np.ndarray)
    assert checked["x"].dtype == dtype


def test_feeds_of_the_caller_stay_as_they_are() -> None:
    feeds = {"x": [np.float32(1)]}

    Signature((spec(ir.DataType.FLOAT, (1,)),), ()).check(feeds, None)

    assert feeds == {"x": [np.float32(1)]}


def test_default_and_untyped_inputs_may_be_left_out() -> None:
    signature = Signature(
        (spec(ir.DataType.FLOAT, (1,), optional=True), TensorSpec(name="s", dtype=None, shape=None)), ()
    )

    assert signature.check({}, None) == {}


def test_model_without_inputs_says_so() -> None:
    with pytest.raises(InvalidInputError, match=r"no input 'x'\. The model takes no inputs"):
        Signature((), ()).check({"x": 1}, None)


def test_what_was_right_once_says_nothing_about_other_shapes_and_types() -> None:
    signature = Signature((spec(ir.DataType.FLOAT, ("N", 2)),), ())
    name = signature.inputs[0].name
    right = {name: np.zeros((3, 2), np.float32)}
    for _ in range(2):
        assert signature.check(right, None) is right

    for wrong in (np.zeros((3, 3), np.float32), np.zeros((3, 2), np.float64)):
        with pytest.raises(InvalidInputError, match="must be float"):
            signature.check({name: wrong}, None)
    with pytest.raises(InvalidInputError, match="is missing"):
        signature.check({}, None)
    with pytest.raises(InvalidInputError, match="no input 'other'"):
        signature.check({**right, "other": right[name]}, None)
    assert signature.check(right, None) is right
