"""Shapes of results that runs on generated inputs show, for operators that nobody has a rule for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from trtnode.engines.errors import ExecutionError
from trtnode.engines.inputs.shape_probe import observe_shapes
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.values import Dimension


class Model:
    """One function of arrays, with the output ``y``."""

    outputs = ("y",)

    def __init__(self, compute: Callable[..., Any]) -> None:
        self.runs: list[dict[str, tuple[int, ...]]] = []
        self._compute = compute

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        self.runs.append({name: value.shape for name, value in feeds.items()})
        try:
            return [self._compute(**feeds)]
        except ValueError as error:
            raise ExecutionError(str(error)) from error


def floats(name: str, *shape: Dimension) -> TensorSpec:
    return TensorSpec(name=name, dtype=ir.DataType.FLOAT, shape=shape)


@pytest.mark.parametrize(
    ("inputs", "compute", "shape"),
    [
        pytest.param([floats("x", "N", 3)], lambda x: x, (None, 3), id="varies-with-the-input"),
        pytest.param([floats("x", 5, 3)], lambda x: x, (5, 3), id="fixed"),
        pytest.param([floats("x", "N", 3)], lambda x: x.sum(), None, id="a-number-is-no-array"),
        pytest.param([floats("x", "N", 3)], lambda x: x.sum(keepdims=True), (1, 1), id="never-varies"),
        pytest.param([floats("x", "N", 3)], lambda x: np.array(x.sum()), (), id="scalar"),
        pytest.param([floats("x", "H", "W")], lambda x: np.zeros(x.shape[0] // x.shape[1] + 1), (None,), id="ratio"),
        pytest.param([floats("x", 4)], lambda x: x[x > 0], (None,), id="follows-from-values"),
        pytest.param([floats("x", 4)], lambda x: x[x > 9], (None,), id="empty-each-time"),
        pytest.param([floats("x", "N")], lambda x: x.reshape([1] * (len(x) % 3) + [-1]), None, id="rank-varies"),
        pytest.param([floats("x", "N")], lambda x: x.reshape(-1, 32), (None, 32), id="takes-multiples-of-32-alone"),
        pytest.param([floats("x", "N")], lambda x: x.reshape(7), None, id="runs-on-no-size"),
    ],
)
def test_a_size_is_known_where_all_runs_agree(
    inputs: list[TensorSpec], compute: Callable[..., Any], shape: tuple[int | None, ...] | None
) -> None:
    found = observe_shapes(Model(compute), inputs)

    assert {name: spec.shape for name, spec in found.items()} == ({} if shape is None else {"y": shape})


def test_element_type_is_that_of_the_result() -> None:
    found = observe_shapes(Model(lambda x: x.astype(str)), [floats("x", 2)])

    assert found["y"] == TensorSpec(name="y", dtype=ir.DataType.STRING, shape=(2,))


def test_each_dimension_that_varies_has_two_sizes_and_equal_symbols_are_equal() -> None:
    model = Model(lambda x, z: x + z)

    observe_shapes(model, [floats("x", "N", "L"), floats("z", "N", "L")])

    shapes = {run["x"] for run in model.runs}
    assert all(run["x"] == run["z"] for run in model.runs)
    assert [len({shape[axis] for shape in shapes}) for axis in (0, 1)] == [2, 2]


def test_shapes_that_the_user_gives_are_tried_first() -> None:
    given = [[floats("x", 7, 3)], [floats("x", 21, 3)]]
    model = Model(lambda x: x.reshape(-1, 7))

    found = observe_shapes(model, [floats("x", "N", 3)], given)

    assert {run["x"] for run in model.runs} == {(7, 3), (21, 3)}
    assert found["y"].shape == (None, 7)


def test_a_model_that_runs_on_equal_sizes_alone_is_run_on_these() -> None:
    def square(x: np.ndarray) -> np.ndarray:
        if x.shape[0] != x.shape[1]:
            raise ValueError("not square")
        return x.reshape(-1)

    assert observe_shapes(Model(square), [floats("x", None, None)])["y"].shape == (None,)
