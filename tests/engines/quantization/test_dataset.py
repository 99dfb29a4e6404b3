"""Samples for calibration: where they come from, and what is refused."""

from __future__ import annotations

import pathlib
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from trtnode.engines.errors import CalibrationDataError
from trtnode.engines.quantization.dataset import CalibrationDataset
from trtnode.partitioner.graph.view import TensorSpec

IMAGE = TensorSpec(name="image", dtype=ir.DataType.FLOAT, shape=("N", 2))
FIXED = TensorSpec(name="image", dtype=ir.DataType.FLOAT, shape=(2, 2))
MASK = TensorSpec(name="mask", dtype=ir.DataType.INT64, shape=("N",))
RATE = TensorSpec(name="rate", dtype=ir.DataType.INT64, shape=())
ROWS = np.arange(8, dtype=np.float32).reshape(4, 2)


@pytest.fixture
def save(tmp_path: pathlib.Path) -> Callable[..., CalibrationDataset]:
    def write(**arrays: Any) -> CalibrationDataset:
        np.savez_compressed(tmp_path / "data.npz", **arrays)
        return CalibrationDataset(tmp_path / "data.npz")

    return write


def offer(monkeypatch: pytest.MonkeyPatch, function: Callable[[], Any]) -> CalibrationDataset:
    module = types.ModuleType("module_of_samples")
    module.__dict__["samples"] = function
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return CalibrationDataset("module_of_samples:samples")


def read(dataset: CalibrationDataset, *inputs: TensorSpec, limit: int | None = None) -> list[dict[str, Any]]:
    return [{name: value.tolist() for name, value in feeds.items()} for feeds in dataset.feeds(inputs, limit=limit)]


@pytest.mark.parametrize(
    ("array", "inputs", "expected"),
    [
        pytest.param(ROWS, IMAGE, [[[0, 1]], [[2, 3]], [[4, 5]], [[6, 7]]], id="the-batch-axis-counts-samples"),
        pytest.param(ROWS, FIXED, [[[0, 1], [2, 3]], [[4, 5], [6, 7]]], id="a-fixed-batch-takes-several-rows"),
        pytest.param(ROWS.reshape(2, 2, 2), FIXED, [[[0, 1], [2, 3]], [[4, 5], [6, 7]]], id="an-axis-of-samples"),
    ],
)
def test_a_leading_axis_counts_samples(
    save: Callable[..., CalibrationDataset],
    array: np.ndarray,
    inputs: Sequence[TensorSpec],
    expected: list[list[list[int]]],
) -> None:
    dataset = save(image=array)

    assert [feeds["image"] for feeds in read(dataset, inputs)] == expected
    assert dataset.count([inputs]) == len(expected)


def test_a_scalar_input_takes_one_number_a_sample(save: Callable[..., CalibrationDataset]) -> None:
    dataset = save(image=ROWS[:2], rate=np.int64([8000, 16000]))

    assert [feeds["rate"] for feeds in read(dataset, IMAGE, RATE)] == [8000, 16000]


@pytest.mark.parametrize("rate", [np.int64(8000), np.int64([8000])], ids=["scalar", "one-element"])
def test_one_number_in_a_file_is_that_of_all_its_samples(
    save: Callable[..., CalibrationDataset], rate: np.ndarray
) -> None:
    dataset = save(image=ROWS[:3], rate=rate)

    assert [feeds["rate"] for feeds in read(dataset, IMAGE, RATE)] == [8000] * 3
    assert dataset.count([IMAGE, RATE]) == 3


def test_files_of_one_number_each_give_one_sample_each(tmp_path: pathlib.Path) -> None:
    np.savez(tmp_path / "a.npz", image=ROWS[:1], rate=np.int64(8000))
    np.savez(tmp_path / "b.npz", image=ROWS[1:2], rate=np.int64(16000))
    np.savez(tmp_path / "c.npz", image=ROWS[2:], rate=np.int64([1, 2]))

    assert [feeds["rate"] for feeds in read(CalibrationDataset(tmp_path), IMAGE, RATE)] == [8000, 16000, 1, 2]


def test_a_model_of_flags_alone_takes_a_file_of_them(save: Callable[..., CalibrationDataset]) -> None:
    assert read(save(rate=np.int64(3)), RATE) == [{"rate": 3}]


def test_an_array_in_fortran_order_is_read_like_others(save: Callable[..., CalibrationDataset]) -> None:
    assert read(save(image=np.asfortranarray(ROWS)), IMAGE) == read(save(image=ROWS), IMAGE)


def test_arrays_that_are_no_input_are_left_out(save: Callable[..., CalibrationDataset]) -> None:
    assert read(save(image=ROWS[:1], label=np.int64([3])), IMAGE) == [{"image": [[0, 1]]}]


def test_no_more_samples_than_the_limit_are_given(save: Callable[..., CalibrationDataset]) -> None:
    assert len(read(save(image=ROWS), IMAGE, limit=3)) == 3


def test_a_folder_gives_the_samples_of_its_files_in_order(tmp_path: pathlib.Path) -> None:
    np.savez(tmp_path / "a.npz", image=ROWS[:1])
    np.save(tmp_path / "c.npy", ROWS[3:])
    np.save(tmp_path / "b.npy", ROWS[1:3])
    dataset = CalibrationDataset(tmp_path)

    assert [feeds["image"] for feeds in read(dataset, IMAGE)] == [[[0, 1]], [[2, 3]], [[4, 5]], [[6, 7]]]
    assert dataset.count([IMAGE]) == 4


def test_a_folder_may_hold_one_npy_an_input(tmp_path: pathlib.Path) -> None:
    np.save(tmp_path / "image.npy", ROWS[:2])
    np.save(tmp_path / "mask.npy", np.int64([7, 8]))

    assert read(CalibrationDataset(tmp_path), IMAGE, MASK) == [
        {"image": [[0, 1]], "mask": [7]},
        {"image": [[2, 3]], "mask": [8]},
    ]


def test_a_function_yields_samples_as_the_model_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = offer(monkeypatch, lambda: iter([{"image": ROWS}, {"image": ROWS[:1]}]))

    assert [len(feeds["image"]) for feeds in read(dataset, IMAGE)] == [4, 1]
    assert dataset.count([IMAGE]) is None


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        pytest.param({"img": ROWS}, r"no array 'image' \(float32\[N, 2\]\), only 'img'\. Name each array", id="name"),
        pytest.param({"image": ROWS.astype(float)}, r"sample 1: Input 'image' must be float32.*float64", id="dtype"),
        pytest.param({"image": ROWS[:, :1]}, r"sample 1: Input 'image' must be .*\[1, 1\]", id="shape"),
        pytest.param({"image": ROWS[:, 0]}, r"sample 1: Input 'image' must be .*\[1\]", id="rank"),
        pytest.param({"image": np.where(ROWS == 5, np.nan, ROWS)}, "sample 3: input 'image' holds NaN or", id="nan"),
        pytest.param({"image": np.where(ROWS == 0, np.inf, ROWS)}, "sample 1: .* NaN or infinity", id="infinity"),
        pytest.param({"image": ROWS[:0]}, "there are no samples. Give at least one", id="zero-samples"),
        pytest.param({"image": np.float32(1)}, r"sample 1: Input 'image' must be .*float32\[\]", id="no-axis"),
        pytest.param({"image": np.array([{}], dtype=object)}, "not an .npz or .npy file of arrays", id="objects"),
    ],
)
def test_samples_that_do_not_fit_are_refused(
    save: Callable[..., CalibrationDataset], arrays: dict[str, Any], told: str
) -> None:
    with pytest.raises(CalibrationDataError, match=rf"data\.npz: .*{told}"):
        read(save(**arrays), IMAGE)


def test_arrays_of_different_length_are_refused(save: Callable[..., CalibrationDataset]) -> None:
    with pytest.raises(CalibrationDataError, match="different numbers of samples: 4 of 'image', 1 of 'mask'"):
        read(save(image=ROWS, mask=np.int64([1])), IMAGE, MASK)


def test_rows_that_fill_no_whole_sample_are_refused(save: Callable[..., CalibrationDataset]) -> None:
    with pytest.raises(CalibrationDataError, match="'image' has 3 rows, but the model takes 2 at a time"):
        read(save(image=ROWS[:3]), FIXED)


def test_a_missing_file_and_a_cut_one_are_refused(
    save: Callable[..., CalibrationDataset], tmp_path: pathlib.Path
) -> None:
    np.save(tmp_path / "cut.npy", ROWS)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:-4])

    with pytest.raises(CalibrationDataError, match=r"none\.npz: there is no such file"):
        read(CalibrationDataset(tmp_path / "none.npz"), IMAGE)
    with pytest.raises(CalibrationDataError, match=r"cut\.npy: can't be read to its end \(the file is cut short\)"):
        read(CalibrationDataset(tmp_path / "cut.npy"), IMAGE)


def test_an_empty_folder_has_no_samples(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CalibrationDataError, match="there are no samples"):
        read(CalibrationDataset(tmp_path), IMAGE)


@pytest.mark.parametrize("source", ["no_such_module:samples", "json:no_such_function"])
def test_a_function_that_does_not_exist_is_refused(source: str) -> None:
    with pytest.raises(CalibrationDataError, match=f"{source}: there is no such function"):
        read(CalibrationDataset(source), IMAGE)


def raising() -> Any:
    yield {"image": ROWS}
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize(
    ("function", "told"),
    [
        pytest.param(raising, "it raises ZeroDivisionError: division by zero", id="raises"),
        pytest.param(lambda: [ROWS], "it yields ndarray. Give the name of a function that yields dict", id="no-dict"),
        pytest.param(lambda: [{"img": ROWS}], "sample 1: Input 'image' is missing", id="wrong-name"),
        pytest.param(list, "there are no samples", id="nothing"),
        pytest.param(lambda: None, "it raises TypeError", id="no-iterable"),
    ],
)
def test_a_function_that_gives_no_samples_is_refused(
    function: Callable[[], object], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = offer(monkeypatch, function)

    with pytest.raises(CalibrationDataError, match=f"module_of_samples:samples: {told}"):
        read(dataset, IMAGE)


NODES = TensorSpec(name="nodes", dtype=ir.DataType.FLOAT, shape=("nodes", 2))
EDGES = TensorSpec(name="edges", dtype=ir.DataType.INT64, shape=("edges", 2))
STATE = TensorSpec(name="state", dtype=ir.DataType.FLOAT, shape=("layers", "batch", 3))


def test_inputs_with_first_axes_of_their_own_are_one_request_a_file(tmp_path: pathlib.Path) -> None:
    for index, edges in enumerate([5, 4, 7]):  # the second one has as many edges as nodes
        np.savez(tmp_path / f"{index}.npz", nodes=ROWS, edges=np.zeros((edges, 2), np.int64))

    samples = read(CalibrationDataset(tmp_path), NODES, EDGES)

    assert [(len(sample["nodes"]), len(sample["edges"])) for sample in samples] == [(4, 5), (4, 4), (4, 7)]
    assert CalibrationDataset(tmp_path).count((NODES, EDGES)) == 3


def test_a_state_that_begins_with_layers_is_one_request(save: Callable[..., CalibrationDataset]) -> None:
    (sample,) = read(save(image=ROWS[:1], state=np.zeros((2, 1, 3), np.float32)), IMAGE, STATE)

    assert np.shape(sample["state"]) == (2, 1, 3)


def test_as_many_of_each_are_samples_whatever_their_axes_are_called(save: Callable[..., CalibrationDataset]) -> None:
    assert len(read(save(nodes=ROWS, edges=np.zeros((4, 2), np.int64)), NODES, EDGES)) == 4
