"""The search keeps answers inside the accuracy budget, and chooses the fastest precision."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from precision import SAMPLES, envelope, precision_options
from stand_in_workers import AnyWorker, InProcessWorker
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.precision.accuracy_budget import Figures
from trtnode.engines.precision.options import Calibration
from trtnode.engines.quantization.dataset import CalibrationDataset
from trtnode.engines.tuning.accuracy_jobs import CalibrationShare
from trtnode.partitioner.graph.view import Graph, specs
from trtnode.partitioner.model.loading import load_model
from workshop import Workshop


def test_the_noisiest_nodes_move_back_until_the_budget_holds(
    workshop: Workshop, digits: pathlib.Path, int8: CompiledModel
) -> None:
    limit = 0.95 * int8.report.as_json()["precision"]["figures"]["max_abs"]

    compiled = workshop.compile(digits, precision=precision_options("int8", max_abs=limit))

    found = compiled.report.as_json()["precision"]
    failed, accepted = found["tried"][0], [one for one in found["tried"] if "problem" not in one][-1]
    assert (failed["moved_back"], failed["code"]) == (0, "INACCURATE")
    assert "an element differs by" in failed["problem"]
    assert accepted["max_abs"] <= limit
    assert accepted["moved_back"] == len(found["moved_back"]) > 0
    assert {envelope(compiled)["node_precisions"][name] for name in found["moved_back"]} == {found["moved_back_to"]}
    assert found["moved_back_to"] in {"bf16", "fp16", "fp32"}  # as the processor has it
    assert compiled.precision_effective == "int8"


def test_a_budget_that_no_precision_meets_leaves_float32_engines(
    workshop: Workshop, pair: pathlib.Path, vectors: Calibration, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        compiled = workshop.compile(pair, precision=precision_options("int8", calibration=vectors, min_cosine=1.0))

    found = compiled.report.as_json()["precision"]
    assert (compiled.engine, compiled.precision_effective) == ("openvino", "fp32")
    assert (found["effective"], found["figures"]) == ("fp32", None)
    assert {trial["code"] for trial in found["tried"]} == {"INACCURATE"}
    assert "No precision below fp32 stays inside the accuracy budget" in caplog.text


def test_without_samples_accuracy_is_measured_on_generated_inputs(workshop: Workshop, pair: pathlib.Path) -> None:
    compiled = workshop.compile(pair, precision=precision_options("bf16", calibration=Calibration()))

    assert compiled.report.as_json()["precision"]["figures"]["samples"] == 2


@pytest.mark.parametrize(("there", "evaluated"), [(3, 3), (9, 9), (10, 2), (40, 8)])
def test_few_samples_are_all_evaluated(
    there: int,
    evaluated: int,
    workshop: Workshop,
    pair: pathlib.Path,
    vectors: Calibration,
    in_process: InProcessWorker,
) -> None:
    np.savez(str(vectors.data), x=np.random.default_rng(9).normal(size=(there, 1, 4)).astype(np.float32))

    compiled = workshop.compile(
        pair, engine="reference", worker=in_process, precision=precision_options("fp16", calibration=vectors)
    )

    assert compiled.report.precision["figures"]["samples"] == evaluated


def test_samples_for_the_evaluation_are_not_calibrated_with(digits: pathlib.Path) -> None:
    inputs = specs(Graph.of(load_model(digits)).inputs)
    every = [feeds["image"] for feeds in CalibrationDataset(SAMPLES).feeds(inputs)]

    share = [feeds["image"] for feeds in CalibrationShare(SAMPLES).feeds(inputs)]

    assert CalibrationShare(SAMPLES).count(inputs) == len(share) == 160
    np.testing.assert_array_equal(np.stack(share), np.stack([a for i, a in enumerate(every) if i % 5 != 4]))


def test_a_metric_of_the_users_own_can_refuse(
    workshop: Workshop,
    pair: pathlib.Path,
    vectors: Calibration,
    in_process: InProcessWorker,
    write_module: Callable[[str, str], None],
) -> None:
    write_module("own_measure", "def never(expected, actual):\n    return False\n")

    asked = precision_options("int8", calibration=vectors, metric="own_measure:never")
    compiled = workshop.compile(pair, precision=asked, worker=in_process)

    assert compiled.precision_effective == "fp32"
    assert "own_measure:never gives -1" in compiled.report.as_json()["precision"]["tried"][0]["problem"]


class Clock:
    """A worker that gives times and figures in place of measuring."""

    def __init__(self, inner: AnyWorker, times: Mapping[str, float], max_abs: float = 0.0, cosines: Any = ()) -> None:
        self._inner = inner
        self._times = times
        self._max_abs = max_abs
        self._cosines = iter(cosines)

    def call(self, function: Any, timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        if function.__name__ == "measure_engines":
            return {s: {name: [self._times[name]] * 3 for name in engines} for s, engines in args[3].items()}
        if function.__name__ == "measure_accuracy":
            return Figures(cosine=next(self._cosines, 1.0), top1_agreement=1.0, max_abs=self._max_abs, samples=1)
        return self._inner.call(function, timeout_s, *args, **kwargs)


@pytest.mark.parametrize(("ms", "expected"), [(1.0, "int8"), (1.99, "fp32"), (3.0, "fp32")])
def test_auto_takes_what_is_clearly_faster(
    workshop: Workshop, pair: pathlib.Path, vectors: Calibration, ms: float, expected: str
) -> None:
    clock = Clock(workshop.worker, {"fp32": 2.0, "int8": ms, "bf16": 9.0, "fp16": 9.0})

    compiled = workshop.compile(pair, worker=clock, precision=precision_options("auto", calibration=vectors))

    assert compiled.precision_effective == expected
    assert envelope(compiled)["precision_asked"] == "auto"
    measured = [
        trial["measured_ms"] for trial in compiled.report.as_json()["precision"]["tried"] if "measured_ms" in trial
    ]
    assert (measured[0]["fp32"], measured[0]["int8"]) == (2.0, ms)


@pytest.mark.parametrize(
    ("bf16_ms", "expected"),
    [pytest.param(1.06, "bf16", id="as-fast"), pytest.param(1.2, "int8", id="slower")],
)
def test_auto_takes_the_more_accurate_of_equals(
    workshop: Workshop, pair: pathlib.Path, vectors: Calibration, bf16_ms: float, expected: str
) -> None:
    clock = Clock(workshop.worker, {"fp32": 2.0, "int8": 1.0, "bf16": bf16_ms, "fp16": 9.0}, cosines=[0.993, 0.9999])

    compiled = workshop.compile(pair, worker=clock, precision=precision_options("auto", calibration=vectors))

    assert compiled.precision_effective == expected


def test_auto_tries_no_precision_that_can_not_gain_more(
    workshop: Workshop, pair: pathlib.Path, vectors: Calibration
) -> None:
    clock = Clock(workshop.worker, {"fp32": 2.0, "int8": 0.5})

    compiled = workshop.compile(pair, worker=clock, precision=precision_options("auto", calibration=vectors))

    tried = compiled.report.as_json()["precision"]["tried"]
    assert {trial["precision"] for trial in tried if "precision" in trial} == {"int8"}


def test_auto_never_leaves_the_budget(workshop: Workshop, pair: pathlib.Path, vectors: Calibration) -> None:
    clock = Clock(workshop.worker, {"fp32": 2.0, "int8": 0.1}, max_abs=9.0)

    compiled = workshop.compile(
        pair, worker=clock, precision=precision_options("auto", calibration=vectors, max_abs=1.0)
    )

    tried = compiled.report.as_json()["precision"]["tried"]
    assert {trial["moved_back"] for trial in tried if "moved_back" in trial} <= {0, 1}  # of three: half, not two
    assert compiled.precision_effective == "fp32"
