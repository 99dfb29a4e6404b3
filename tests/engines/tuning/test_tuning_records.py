"""A second compilation of the same model on the same machine neither builds nor measures."""

from __future__ import annotations

import json
import logging
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from clock import FEEDS, GRAPH, Clock, Tune, fast_middle
from faulty_backends import UnreliableBackend
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.cores import Cores
from trtnode.engines.tuning.compilation_record import MOST_CONDITIONS, with_latest
from trtnode.engines.tuning.tuner import Tuner
from workshop import Workshop

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("brief_tuning", "choosing_engines")]


def test_second_compilation_neither_builds_nor_measures(
    tune: Tune, in_process: InProcessWorker, cache: EngineCache
) -> None:
    first = tune(fast_middle(in_process), cache=cache)
    clock = fast_middle(in_process)
    in_process.calls.clear()

    second = tune(clock, cache=cache)

    assert clock.asked == []
    assert "build" not in in_process.calls
    assert (second.engines_built, second.engines_cached) == (0, 1)
    assert second.report.native == first.report.native
    assert second.report.tuning == first.report.tuning


def test_a_remembered_choice_is_measured_again_where_that_is_asked_for(
    tune: Tune, in_process: InProcessWorker, cache: EngineCache
) -> None:
    tune(fast_middle(in_process), cache=cache)
    slow = dict.fromkeys(("segment_0", "segment_1", "segment_2"), 3.0)
    clock, third = Clock(in_process, slow, lambda segments: 1 + len(segments)), fast_middle(in_process)

    again = tune(clock, cache=cache, measure_again=True)

    assert clock.asked
    assert (again.engine, tune(third, cache=cache).engine, third.asked) == ("native", "native", [])


def test_refused_nodes_are_remembered_with_the_outcome(
    tune: Tune, in_process: InProcessWorker, unreliable: type[UnreliableBackend], cache: EngineCache
) -> None:
    unreliable.refuses = ("Sqrt",)
    first = tune(fast_middle(in_process), cache=cache, engine="unreliable")
    in_process.calls.clear()

    second = tune(fast_middle(in_process), cache=cache, engine="unreliable")

    assert {n.code for n in first.report.native} == {"USER_EXCLUDED", "NOT_FASTER", "BUILD_FAILED"}
    assert "build" not in in_process.calls
    assert second.report.native == first.report.native


@pytest.mark.parametrize("what", ["model", "options", "cores", "samples"])
def test_other_circumstances_are_measured_anew(
    what: str,
    tune: Tune,
    in_process: InProcessWorker,
    cache: EngineCache,
    workshop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tune(fast_middle(in_process), cache=cache)
    clock = fast_middle(in_process)
    changes: dict[str, Any] = {}
    if what == "model":
        changes["source"] = workshop.write(GRAPH.replace("Tanh", "Exp"))
    elif what == "options":
        changes["native_ops"] = ("Erf", "Det")
    elif what == "cores":
        more = Cores(1000, "", is_quota=False)
        monkeypatch.setattr("trtnode.engines.backends.build_environment.usable_cores", lambda: more)
    else:
        np.savez(workshop.folder / "samples.npz", **FEEDS)
        changes["samples"] = workshop.folder / "samples.npz"

    tune(clock, cache=cache, **changes)

    assert clock.asked


def of_unknown_nodes(record: dict[str, Any]) -> None:
    (choice,) = record["choices"].values()
    choice["demoted"] = {"gone": {"code": "NOT_FASTER", "detail": "x"}}


def with_an_unknown_code(record: dict[str, Any]) -> None:
    record["demoted"] = {"Relu:a": {"code": "SLOW", "detail": "x"}}


def without_figures(record: dict[str, Any]) -> None:
    (choice,) = record["choices"].values()
    del choice["figures"]


def as_a_version_before_wrote_it(record: dict[str, Any]) -> None:
    demoted, figures = record["demoted"], record.pop("choices")
    record.clear()
    record.update(demoted={name: [one["code"], one["detail"]] for name, one in demoted.items()}, tuning=figures)


@pytest.mark.parametrize(
    "damage", [of_unknown_nodes, with_an_unknown_code, without_figures, as_a_version_before_wrote_it, dict.clear]
)
def test_a_damaged_record_is_a_miss(
    damage: Callable[[dict[str, Any]], None],
    tune: Tune,
    in_process: InProcessWorker,
    cache: EngineCache,
    tmp_path: pathlib.Path,
) -> None:
    tune(fast_middle(in_process), cache=cache)
    (path,) = [p for p in (tmp_path / "cache").glob("*.json") if b'"choices"' in p.read_bytes()]
    record = json.loads(path.read_text())
    damage(record)
    path.write_text(json.dumps(record))
    clock = fast_middle(in_process)

    compiled = tune(clock, cache=cache)

    assert clock.asked
    assert compiled.report.tuning["chosen"] == "faster engines"


def test_a_choice_that_another_compilation_has_recorded_meanwhile_stays(
    tune: Tune, in_process: InProcessWorker, cache: EngineCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, meanwhile = fast_middle(in_process), fast_middle(in_process)
    find_slow_nodes = Tuner.find_slow_nodes

    def after_another(*arguments: Any) -> Any:
        monkeypatch.setattr(Tuner, "find_slow_nodes", find_slow_nodes)
        tune(meanwhile, cache=cache, threads=2)
        return find_slow_nodes(*arguments)

    monkeypatch.setattr(Tuner, "find_slow_nodes", after_another)
    tune(clock, cache=cache)
    clock.asked.clear()

    tune(clock, cache=cache)
    tune(clock, cache=cache, threads=2)

    assert meanwhile.asked
    assert clock.asked == []


def test_a_record_keeps_the_latest_conditions() -> None:
    known: dict[str, int] = {}

    for name in [*map(str, range(MOST_CONDITIONS + 1)), "1"]:
        known = with_latest(known, name, 7)

    assert list(known) == [*map(str, range(2, MOST_CONDITIONS + 1)), "1"]


def test_crash_while_measuring_leaves_the_choice_to_the_estimate(
    tune: Tune, in_process: InProcessWorker, cache: EngineCache, caplog: pytest.LogCaptureFixture
) -> None:
    clock = fast_middle(in_process)
    clock.fails = True

    with caplog.at_level(logging.WARNING):
        compiled = tune(clock, cache=cache)

    assert compiled.report.segments == ()
    assert compiled.report.tuning is None
    assert "so the estimate chooses its engines: The process that ran measure_candidates crashed" in caplog.text
    clock.fails = False
    assert tune(clock, cache=cache).report.tuning is not None


def test_model_that_no_generated_input_fits_is_estimated(
    workshop: Workshop, cache: EngineCache, in_process: InProcessWorker, caplog: pytest.LogCaptureFixture
) -> None:
    text = "g (float[N] x) => (float[7,11] y) <int64[2] s = {7, 11}> { e = Exp(x) y = Reshape(e, s) }"
    source = workshop.write(text)
    np.savez(workshop.folder / "samples.npz", x=np.zeros(77, np.float32))
    options = {"engine": "reference", "cache": cache, "worker": in_process}
    workshop.compile(source, samples=workshop.folder / "samples.npz", all_engines=True, **options)

    with caplog.at_level(logging.WARNING):
        compiled = workshop.compile(source, **options)

    assert {n.code for n in compiled.report.native} == {"NOT_FASTER"}
    assert "it runs on no generated input. Give inputs that it runs on." in caplog.text
