"""Small requests run natively where engines answer only larger ones faster."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clock import Tune
from comparison import AssertSame, RunPlainly
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.engines.compile.opening import open_model
from trtnode.engines.tuning import timing
from trtnode.engines.tuning.candidates import border_between
from trtnode.engines.tuning.timing_inputs import elements_of
from trtnode.serving.cli.terminal.report import measured
from workshop import Workshop

ROWS = "g (float[N,4] x) => (float[N,4] y) { a = Relu(x) b = Exp(a) y = Neg(b) }"
TOKENS = "g (float[N,L,4] x) => (float[N,L,4] y) { a = Relu(x) b = Exp(a) y = Neg(b) }"
NATIVE_MS, FASTER_MS, SLOWER_MS = 2.0, 1.0, 3.0

TellTimes = Callable[[float, float], list[dict[str, tuple[int, ...]]]]
"""Gives the ms that engines take at the usual and at a small size; returns the shapes that were measured, as found."""


def rows(number: int) -> dict[str, np.ndarray]:
    return {"x": np.linspace(-1, 1, 4 * number, dtype=np.float32).reshape(number, 4)}


@pytest.fixture
def tell_times(monkeypatch: pytest.MonkeyPatch) -> TellTimes:
    def tell(usual_ms: float, small_ms: float) -> list[dict[str, tuple[int, ...]]]:
        shapes: list[dict[str, tuple[int, ...]]] = []
        times = iter([usual_ms, small_ms])

        def time_briefly(calls: Mapping[str, Callable[[], object]], seconds: float) -> timing.Timed:
            native, engines = calls
            return timing.Timed(turns={native: [NATIVE_MS] * 9, engines: [next(times)] * 9})

        def elements(feeds: Mapping[str, np.ndarray]) -> int:
            shapes.append({name: array.shape for name, array in feeds.items()})
            return elements_of(feeds)

        monkeypatch.setattr(timing, "time_briefly", time_briefly)
        monkeypatch.setattr(timing, "elements_of", elements)
        return shapes

    return tell


def compile_rows(tune: Tune, workshop: Workshop, worker: InProcessWorker, **changes: Any) -> CompiledModel:
    shapes = ({"x": ShapeRange(min=(1, 4), opt=(16, 4), max=(16, 4))},)
    return tune(worker, **{"source": workshop.write(ROWS), "native_ops": (), "shapes": shapes, **changes})


@given(few=st.integers(1, 100), many=st.integers(101, 10**6), loss=st.floats(0.05, 0.95), gain=st.floats(1.06, 20))
def test_border_lies_between_the_two_requests(few: int, many: int, loss: float, gain: float) -> None:
    found = border_between({"x": np.empty(few)}, {"x": np.empty(many)}, loss, gain)

    assert found is not None
    assert few < found.elements <= many


def test_border_is_in_the_middle_of_equal_loss_and_gain() -> None:
    found = border_between({"x": np.empty(4)}, {"x": np.empty(64)}, 1 / 1.5, 1.5)

    assert found is not None
    assert found.elements == 16


@pytest.mark.parametrize(("loss", "gain"), [(0.97, 2.0), (0.5, 1.04), (1.5, 2.0)])
def test_no_border_without_clear_differences_on_both_sides(loss: float, gain: float) -> None:
    assert border_between({"x": np.empty(4)}, {"x": np.empty(64)}, loss, gain) is None


def test_requests_below_the_border_are_answered_natively(
    tune: Tune,
    workshop: Workshop,
    in_process: InProcessWorker,
    tell_times: TellTimes,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    tell_times(FASTER_MS, SLOWER_MS)

    path = workshop.write(compile_rows(tune, workshop, in_process).model)

    small, fallbacks = [], []
    executable = open_model(path)
    executable.on_small = lambda: small.append(True)
    executable.on_fallback = fallbacks.append
    for number, is_small in ((1, True), (2, True), (4, False), (16, False)):
        small.clear()
        same(executable.run(rows(number)), plain(path, rows(number)))
        assert bool(small) == is_small, number
    assert executable.facts.segments == 1
    assert not fallbacks


@pytest.mark.parametrize(
    ("usual_ms", "small_ms"),
    [
        pytest.param(FASTER_MS, FASTER_MS, id="engines-gain-at-both"),
        pytest.param(FASTER_MS, NATIVE_MS, id="no-difference-at-the-small-one"),
        pytest.param(SLOWER_MS, FASTER_MS, id="engines-lose-at-the-usual-one"),
    ],
)
def test_without_two_better_forms_there_is_no_border(
    usual_ms: float, small_ms: float, tune: Tune, workshop: Workshop, in_process: InProcessWorker, tell_times: TellTimes
) -> None:
    tell_times(usual_ms, small_ms)

    assert "border" not in compile_rows(tune, workshop, in_process).report.tuning


@pytest.mark.parametrize(
    ("graph", "shapes", "expected"),
    [
        pytest.param(ROWS, ShapeRange(min=(2, 4), opt=(16, 4), max=(64, 4)), (2, 4), id="least-rows-of-the-profile"),
        pytest.param(TOKENS, ShapeRange(min=(1, 1, 4), opt=(2, 32, 4), max=(8, 64, 4)), (1, 8, 4), id="profile"),
        pytest.param(TOKENS, None, (1, 8, 4), id="free"),
    ],
)
def test_small_request_has_one_row_of_eight_tokens(
    graph: str,
    shapes: ShapeRange | None,
    expected: tuple[int, ...],
    tune: Tune,
    workshop: Workshop,
    in_process: InProcessWorker,
    tell_times: TellTimes,
) -> None:
    seen = tell_times(FASTER_MS, SLOWER_MS)

    compile_rows(tune, workshop, in_process, source=workshop.write(graph), shapes=({"x": shapes},) if shapes else ())

    assert seen[0] == {"x": expected}


@pytest.mark.parametrize("reason", ["own-inputs", "one-size", "large"])
def test_only_the_usual_size_is_measured_where_there_is_no_other(
    reason: str,
    tune: Tune,
    workshop: Workshop,
    in_process: InProcessWorker,
    tell_times: TellTimes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tell_times(FASTER_MS, SLOWER_MS)
    changes: dict[str, Any] = {}
    if reason == "own-inputs":
        np.savez(workshop.folder / "samples.npz", **rows(16))
        changes["samples"] = workshop.folder / "samples.npz"
    elif reason == "one-size":
        changes["shapes"] = ({"x": ShapeRange(min=(16, 4), opt=(16, 4), max=(16, 4))},)
    else:
        monkeypatch.setattr("trtnode.engines.tuning.tuner.MOST_WEIGHT_BYTES", -1)

    assert "border" not in compile_rows(tune, workshop, in_process, **changes).report.tuning


def test_a_border_is_remembered_and_told(
    tune: Tune, workshop: Workshop, in_process: InProcessWorker, cache: EngineCache, tell_times: TellTimes
) -> None:
    tell_times(FASTER_MS, SLOWER_MS)
    first = compile_rows(tune, workshop, in_process, cache=cache)

    again = compile_rows(tune, workshop, in_process, cache=cache)

    assert again.report.tuning["border"] == first.report.tuning["border"]
    assert [line for line in measured(again.report) if line.startswith("By size")] == [
        "By size: requests of fewer than 12 input elements run natively, which takes 0.67 of the time with engines "
        "at x 1x4."
    ]


def test_asked_engines_answer_small_requests_as_well(
    tune: Tune, workshop: Workshop, in_process: InProcessWorker, cache: EngineCache, tell_times: TellTimes
) -> None:
    tell_times(FASTER_MS, SLOWER_MS)
    compile_rows(tune, workshop, in_process, cache=cache)

    asked = compile_rows(tune, workshop, in_process, cache=cache, all_engines=True)

    assert asked.report.tuning["chosen"] == "minimum cut"
    assert "border" not in asked.report.tuning


def test_without_its_native_nodes_a_file_has_no_border(
    tune: Tune, workshop: Workshop, in_process: InProcessWorker, tell_times: TellTimes, tmp_path: pathlib.Path
) -> None:
    tell_times(FASTER_MS, SLOWER_MS)
    path = tmp_path / "stripped.onnx"
    compile_rows(tune, workshop, in_process).without_fallback().save(path)

    executable = open_model(path)

    assert executable.facts.border == 0
    assert executable.run(rows(1))["y"].shape == (1, 4)
