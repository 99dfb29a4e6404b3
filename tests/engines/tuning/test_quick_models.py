"""A model whose native run takes hardly longer than the call of an engine is native at once: nothing is built."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.tuning import timing
from trtnode.engines.tuning.quick_models import CALL_MS
from trtnode.partitioner.cut.labels import ReasonCode
from workshop import Workshop

pytestmark = pytest.mark.usefixtures("choosing_engines", "brief_tuning")

QUICK, SLOW = CALL_MS / 2, CALL_MS * 2
ASKING = {"read_model", "check_support", "build", "measure_candidates"}


class Stopwatch:
    """Stands for the native run of a model: it takes as long as this says."""

    def __init__(self, time_ms: float) -> None:
        self.time_ms = time_ms
        self.asked = 0

    def measure_native(self, subject: timing.Subject) -> float:
        self.asked += 1
        return self.time_ms


@pytest.fixture
def stopwatch(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    found = Stopwatch(QUICK)
    monkeypatch.setattr(timing, "measure_native", found.measure_native)
    return found


@pytest.fixture
def source(workshop: Workshop) -> pathlib.Path:
    return workshop.write("g (float[N,4] x) => (float[N,4] y) { e = Exp(x) y = Neg(e) }")


def compile_(workshop: Workshop, source: pathlib.Path, worker: InProcessWorker, **options: Any) -> CompiledModel:
    return workshop.compile(source, **{"engine": "auto", **options}, worker=worker)


def test_nothing_is_built_for_it(
    stopwatch: Stopwatch, source: pathlib.Path, workshop: Workshop, in_process: InProcessWorker
) -> None:
    compiled = compile_(workshop, source, in_process)

    assert ASKING.isdisjoint(in_process.calls)
    assert compiled.engine == "native"
    assert {(n.code, n.detail) for n in compiled.report.native} == {
        (ReasonCode.TOO_FAST, "The model takes 10 us natively; a call of an engine takes about 20 us.")
    }


@pytest.mark.parametrize(
    ("time_ms", "options"),
    [
        pytest.param(SLOW, {}, id="it-takes-longer"),
        pytest.param(QUICK, {"engine": "openvino"}, id="engine-asked-for"),
        pytest.param(QUICK, {"all_engines": True}, id="all-engines"),
    ],
)
def test_engines_are_built_where(
    time_ms: float,
    options: dict[str, Any],
    stopwatch: Stopwatch,
    source: pathlib.Path,
    workshop: Workshop,
    in_process: InProcessWorker,
) -> None:
    stopwatch.time_ms = time_ms

    compile_(workshop, source, in_process, **options)

    assert "build" in in_process.calls


def test_a_model_that_would_take_long_is_not_run_to_find_out(
    stopwatch: Stopwatch, workshop: Workshop, in_process: InProcessWorker
) -> None:
    compile_(workshop, workshop.write("g (float[4000000] x) => (float[4000000] y) { y = Exp(x) }"), in_process)

    assert stopwatch.asked == 0


def test_the_time_is_measured_once_and_explained_later(
    stopwatch: Stopwatch, source: pathlib.Path, workshop: Workshop, in_process: InProcessWorker, cache: EngineCache
) -> None:
    for again in (False, False, True):
        compile_(workshop, source, in_process, cache=cache, measure_again=again)

    explained = partition_model(source, CompileOptions(), cache=cache)[1]

    assert stopwatch.asked == 2
    assert {n.code for n in explained.native} == {ReasonCode.TOO_FAST}


def test_a_model_that_does_not_run_on_generated_inputs_has_no_time(
    workshop: Workshop, in_process: InProcessWorker
) -> None:
    graph = "g (float[N] x) => (float[7,11] y) <int64[2] s = {7, 11}> { e = Exp(x) y = Reshape(e, s) }"

    compiled = compile_(workshop, workshop.write(graph), in_process)

    assert {n.code for n in compiled.report.native} == {ReasonCode.UNCHECKED}


def test_a_native_run_is_timed(source: pathlib.Path, workshop: Workshop, in_process: InProcessWorker) -> None:
    compile_(workshop, source, in_process)

    assert "measure_native" in in_process.calls
