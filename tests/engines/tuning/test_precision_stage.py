"""The precision stage refuses what can't be met, reports its outcome, and remembers it."""

from __future__ import annotations

import dataclasses
import importlib
import logging
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from precision import SAMPLES, envelope, precision_options
from stand_in_workers import AnyWorker, InProcessWorker
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.errors import CalibrationTableError, MetricError, PrecisionError
from trtnode.engines.precision.options import Calibration, PrecisionOptions
from trtnode.engines.tuning.accuracy_jobs import calibrate_to
from trtnode.engines.tuning.timing import Timed
from workshop import Workshop, prepare_and_open


def test_the_report_has_what_was_asked_found_and_tried(int8: CompiledModel) -> None:
    found = int8.report.as_json()["precision"]

    assert (found["asked"], found["effective"], found["rules"]) == ("int8", "int8", [])
    assert found["budget"] == {"min_top1_agreement": 0.975}
    assert found["figures"]["samples"] == 40  # one in five of 200
    assert found["figures"]["top1_agreement"] >= 0.975
    assert found["calibration"]["samples"] == 160
    assert found["segments"] == [{"name": "segment_0", "effective": "int8", "nodes_asked": {"int8": 10}}]
    assert found["tried"][-1]["precision"] == "int8"


def test_what_was_compiled_for_serving_tells_its_precision(
    pair: pathlib.Path, vectors: Calibration, tmp_path: pathlib.Path
) -> None:
    executable = prepare_and_open(
        pair, CompileOptions(**vars(precision_options("int8", calibration=vectors, min_cosine=0.9)))
    )

    assert (executable.facts.precision_asked, executable.facts.precision) == ("int8", "int8")


def test_a_metric_of_the_users_own_is_asked_again_each_time(
    workshop: Workshop,
    pair: pathlib.Path,
    vectors: Calibration,
    in_process: InProcessWorker,
    write_module: Callable[[str, str], None],
    cache: EngineCache,
) -> None:
    write_module("strict_measure", "limit = 0\ndef decide(expected, actual):\n    return limit == 0\n")
    asked = precision_options("int8", calibration=vectors, metric="strict_measure:decide")

    before = workshop.compile(pair, precision=asked, worker=in_process, cache=cache)
    importlib.import_module("strict_measure").limit = 1
    after = workshop.compile(pair, precision=asked, worker=in_process, cache=cache)

    assert (before.precision_effective, after.precision_effective) == ("int8", "fp32")


class TuningClock:
    """A worker by which the first of two engines makes the model faster, and the second one slower."""

    def __init__(self, inner: AnyWorker) -> None:
        self._inner = inner

    def call(self, function: Any, timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        if function.__name__ == "measure_segments":
            fast, slow = {"engine": [0.1] * 3, "native": [1.0] * 3}, {"engine": [2.0] * 3, "native": [1.0] * 3}
            return {"segment_0": fast, "segment_1": slow}
        if function.__name__ == "measure_candidates":
            times = {(): 2.0, ("segment_0",): 1.1, ("segment_0", "segment_1"): 2.1}
            return Timed(turns={name: [times[tuple(segments)]] * 3 for name, segments in args[1].items()})
        return self._inner.call(function, timeout_s, *args, **kwargs)


@pytest.mark.usefixtures("choosing_engines")
def test_what_tuning_leaves_keeps_its_precision(workshop: Workshop, pair: pathlib.Path, vectors: Calibration) -> None:
    compiled = workshop.compile(
        pair,
        worker=TuningClock(workshop.worker),
        native_ops=["Relu"],
        precision=precision_options("int8", calibration=vectors, min_cosine=0.9),
    )

    assert [(n.node, n.code) for n in compiled.report.native] == [("middle", "USER_EXCLUDED"), ("second", "NOT_FASTER")]
    assert envelope(compiled)["node_precisions"] == {"first": "int8"}
    assert compiled.precision_effective == "int8"


def test_a_second_compilation_neither_searches_nor_builds(
    workshop: Workshop, pair: pathlib.Path, vectors: Calibration, in_process: InProcessWorker, cache: EngineCache
) -> None:
    asked = precision_options("int8", calibration=vectors, min_cosine=0.9)
    first = workshop.compile(pair, cache=cache, precision=asked)

    second = workshop.compile(pair, cache=cache, precision=asked, worker=in_process)

    assert (first.engines_built, second.engines_built) == (2, 0)
    assert not {"build", "calibrate_to", "measure_accuracy"} & set(in_process.calls)
    assert second.report.as_json()["precision"] == first.report.as_json()["precision"]
    assert envelope(second) == envelope(first)


@pytest.mark.parametrize(
    ("engine", "asked", "message"),
    [
        (
            "reference",
            precision_options("int8"),
            "The engine reference has no int8; it has fp16, fp32. Ask for one of these.",
        ),
        ("reference", precision_options("fp32", "op=Relu:bf16"), "The engine reference has no bf16"),
        ("native", precision_options("fp16"), "Native execution computes in the model's own types, not in fp16"),
        ("openvino", precision_options("int8", calibration=Calibration()), "int8 needs calibration: give samples"),
        ("openvino", precision_options("fp32", "op=Relu:int8", calibration=Calibration()), "int8 needs calibration"),
    ],
)
def test_a_precision_that_can_not_be_had_is_an_error(
    workshop: Workshop, pair: pathlib.Path, engine: str, asked: PrecisionOptions, message: str
) -> None:
    with pytest.raises(PrecisionError, match=message) as caught:
        workshop.compile(pair, engine=engine, precision=asked)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("rules", [(), ("op=Relu:int8",)], ids=["asked", "by-a-rule"])
def test_int8_from_fewer_than_eight_samples_is_refused_unless_allowed(
    workshop: Workshop, digits: pathlib.Path, tmp_path: pathlib.Path, rules: tuple[str, ...]
) -> None:
    with np.load(SAMPLES) as arrays:
        np.savez(tmp_path / "few.npz", image=arrays["image"][:7])
    few = Calibration(data=str(tmp_path / "few.npz"))
    asked = "fp32" if rules else "int8"

    with pytest.raises(PrecisionError, match=r"few\.npz: int8 needs at least 8 samples, and there are 7.*allow-few"):
        workshop.compile(digits, precision=precision_options(asked, *rules, calibration=few))

    allowed = dataclasses.replace(few, allow_few_samples=True)
    compiled = workshop.compile(digits, precision=precision_options(asked, *rules, calibration=allowed))
    assert compiled.report.as_json()["precision"]["calibration"]["samples"] == 6  # the fifth is held out


@pytest.mark.parametrize(
    ("flags", "asked", "sentence"),
    [
        ({"fpu", "sse2"}, "int8", "no 8-bit dot products (VNNI or AMX)"),
        ({"fpu", "sse2"}, "bf16", "no bfloat16 instructions"),
        ({"fpu", "sse2", "avx512_vnni", "avx512_bf16"}, "int8", ""),
        ({"fpu", "sse2", "avx512_vnni", "avx512_bf16"}, "bf16", ""),
    ],
)
def test_a_precision_without_use_on_this_processor_is_told(
    workshop: Workshop,
    pair: pathlib.Path,
    vectors: Calibration,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    flags: set[str],
    asked: str,
    sentence: str,
) -> None:
    monkeypatch.setattr("trtnode.engines.tuning.precision_stage.usable_flags", lambda: frozenset(flags))

    with caplog.at_level(logging.WARNING):
        workshop.compile(pair, precision=precision_options(asked, calibration=vectors, min_cosine=0.9))

    told = [record.message for record in caplog.records if record.name == "trtnode.engines.tuning.precision_stage"]
    assert [sentence in message for message in told] == ([True] if sentence else [])


def test_a_metric_that_there_is_not_is_told_before_anything_is_built(
    workshop: Workshop, pair: pathlib.Path, in_process: InProcessWorker
) -> None:
    with pytest.raises(MetricError, match="'no_such_module:f' can't be used: it can't be imported"):
        workshop.compile(pair, precision=precision_options("bf16", metric="no_such_module:f"), worker=in_process)
    assert "build" not in in_process.calls


def test_ranges_of_another_model_are_refused(
    workshop: Workshop, pair: pathlib.Path, digits: pathlib.Path, vectors: Calibration, tmp_path: pathlib.Path
) -> None:
    from_elsewhere = tmp_path / "ranges.json"
    workshop.worker.call(calibrate_to, 60.0, pair, vectors, from_elsewhere)

    with pytest.raises(CalibrationTableError, match="was made from another model"):
        workshop.compile(digits, precision=precision_options("int8", calibration=Calibration(ranges=from_elsewhere)))
