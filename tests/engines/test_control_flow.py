"""If, Loop and Scan as ONNX defines them, on bodies that are Python functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import pytest

from engines import ExecutionError
from engines.control_flow import run_flow
from engines.pipeline import Flow, FlowBody, Pipeline
from partitioner import TensorSpec

Values = Mapping[str, np.ndarray]


def spec(name: str, *shape: int | str, dtype: ir.DataType = ir.DataType.FLOAT) -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


def body(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], *, formal: int) -> FlowBody:
    pipeline = Pipeline(stages=(), engines={}, sessions={}, inputs=tuple(inputs), outputs=tuple(outputs), constants={})
    return FlowBody(pipeline=pipeline, formal=formal)


def loop(*, trips: str = "n", condition: str = "", shape: tuple[int | str, ...] = (2,), number: tuple = ()) -> Flow:
    inputs = [spec("i", *number, dtype=ir.DataType.INT64), spec("c", dtype=ir.DataType.BOOL), spec("v", *shape)]
    outputs = [spec("c2", dtype=ir.DataType.BOOL), spec("v2", *shape), spec("o", *shape)]
    return Flow(
        name="loop",
        op_type="Loop",
        inputs=(trips, condition, "x"),
        outputs=("y", "all"),
        constants={},
        bodies={"body": body([*inputs, spec("w", 2)], outputs, formal=3)},
    )


def adding(last: int = 100, seen: list | None = None) -> Callable[[Values], list[np.ndarray]]:
    """A body that adds a captured value, and stops after the iteration of some number."""

    def run(feeds: Values) -> list[np.ndarray]:
        if seen is not None:
            seen.append(feeds["i"])
        result = feeds["v"] + feeds["w"]
        return [np.array(feeds["i"].item() < last), result, result * 10]

    return run


def values(**others: np.ndarray) -> Values:
    return {"x": np.zeros(2, np.float32), "w": np.ones(2, np.float32), **others}


@pytest.mark.parametrize(
    ("trips", "last", "expected"),
    [
        pytest.param(0, 100, 0, id="none"),
        pytest.param(-1, 100, 0, id="fewer-than-none"),
        pytest.param(1, 100, 1, id="one"),
        pytest.param(4, 100, 4, id="four"),
        pytest.param(4, 1, 2, id="stopped-by-its-body"),
    ],
)
def test_loop_carries_values_and_joins_what_it_scans(trips: int, last: int, expected: int) -> None:
    results = run_flow(loop(), {"body": adding(last)}, values(n=np.array(trips)))

    assert results["y"].tolist() == [expected] * 2
    assert results["all"].tolist() == [[10.0 * (i + 1)] * 2 for i in range(expected)]
    assert (results["all"].shape, results["all"].dtype) == ((expected, 2), np.float32)


@pytest.mark.parametrize(("go", "expected"), [(True, 3), (False, 0)])
def test_loop_without_trip_count_runs_while_its_condition_holds(go: bool, expected: int) -> None:
    results = run_flow(loop(trips="", condition="go"), {"body": adding(2)}, values(go=np.array([go])))

    assert results["y"].tolist() == [expected] * 2


def test_loop_that_does_not_run_gives_copies_of_what_it_was_given() -> None:
    given = values(n=np.array(0))

    results = run_flow(loop(), {"body": adding()}, given)

    assert not np.shares_memory(results["y"], given["x"])


def test_unknown_dimensions_of_what_was_never_scanned_are_zero() -> None:
    results = run_flow(loop(shape=("N",)), {"body": adding()}, values(n=np.array(0)))

    assert results["all"].shape == (0, 0)


@pytest.mark.parametrize("number", [(), (1,)], ids=["scalar", "vector"])
def test_number_of_the_iteration_has_the_shape_that_the_body_declares(number: tuple) -> None:
    seen: list[np.ndarray] = []

    run_flow(loop(number=number), {"body": adding(seen=seen)}, values(n=np.array(2)))

    assert [one.shape for one in seen] == [number] * 2
    assert [one.item() for one in seen] == [0, 1]
    assert seen[0].dtype == np.int64


def test_scans_of_different_shapes_are_an_error() -> None:
    def growing(feeds: Values) -> list[np.ndarray]:
        longer = np.concatenate([feeds["v"], feeds["w"]])
        return [np.array(True), longer, longer]

    with pytest.raises(ExecutionError, match="Loop 'loop': all input arrays must have the same shape"):
        run_flow(loop(shape=("N",)), {"body": growing}, values(n=np.array(2)))


def branches() -> Flow:
    outputs = [spec("a", 2), spec("b", 2)]
    both = {name: body([spec("x", 2)], outputs, formal=0) for name in ("then_branch", "else_branch")}
    return Flow(name="if", op_type="If", inputs=("c",), outputs=("y", ""), constants={"c": np.array(True)}, bodies=both)


@pytest.mark.parametrize(("given", "expected"), [({"c": np.array([False])}, -1), ({}, 1)], ids=["else", "constant"])
def test_if_runs_one_branch_and_gives_what_is_wanted(given: Values, expected: int) -> None:
    runs = {
        "then_branch": lambda feeds: [feeds["x"] + 1, feeds["x"]],
        "else_branch": lambda feeds: [feeds["x"] - 1, feeds["x"]],
    }

    results = run_flow(branches(), runs, {"x": np.zeros(2), **given})

    assert {name: value.tolist() for name, value in results.items()} == {"y": [expected] * 2}


def test_condition_of_two_elements_is_an_error() -> None:
    with pytest.raises(ExecutionError, match="If 'if'"):
        run_flow(branches(), {}, {"x": np.zeros(2), "c": np.array([True, False])})


def scan() -> Flow:
    inputs = [spec("v", 2), spec("a", 2), spec("b"), spec("w", 2)]
    return Flow(
        name="scan",
        op_type="Scan",
        inputs=("x", "as", "bs"),
        outputs=("y", "all"),
        constants={},
        bodies={"body": body(inputs, [spec("v2", 2), spec("o")], formal=3)},
        scanned=2,
    )


def scanning(feeds: Values) -> list[np.ndarray]:
    return [feeds["v"] + feeds["a"] + feeds["w"], np.asarray(feeds["b"] * 2)]


def test_scan_takes_sequences_apart_and_carries_values() -> None:
    given = values(**{"as": np.array([[1, 2], [3, 4], [5, 6]], np.float32), "bs": np.array([1, 2, 3], np.float32)})

    results = run_flow(scan(), {"body": scanning}, given)

    assert results["y"].tolist() == [12, 15]
    assert results["all"].tolist() == [2, 4, 6]
    assert results["all"].dtype == np.float32


@pytest.mark.parametrize("lengths", [(0, 0), (2, 1)], ids=["nothing", "different-lengths"])
def test_scan_of_impossible_lengths_is_an_error(lengths: tuple[int, int]) -> None:
    given = values(**{"as": np.ones((lengths[0], 2), np.float32), "bs": np.ones(lengths[1], np.float32)})

    with pytest.raises(ExecutionError, match="Scan 'scan'"):
        run_flow(scan(), {"body": scanning}, given)
