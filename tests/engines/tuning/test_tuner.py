"""Engines stay only where they make the model faster; figures are injected, except where a test says so."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Sequence

import pytest

from clock import FEEDS, Clock, Tune, table
from comparison import AssertSame, RunPlainly
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.prepare import load_executable, prepare_model
from trtnode.engines.runtime.options import RunOptions
from trtnode.engines.tuning.candidates import Candidate, SegmentTimes, choose, list_candidates
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.segments import cut
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import load_model
from workshop import Workshop

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("brief_tuning")]


def not_faster(compiled: CompiledModel) -> dict[str, str]:
    return {n.node: n.detail for n in compiled.report.native if n.code == ReasonCode.NOT_FASTER}


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        pytest.param({"none": [10, 10, 10, 10], "one": [9, 9, 9, 9], "all": [8, 8, 8, 8]}, "all", id="fastest"),
        pytest.param({"none": [10, 10, 10, 10], "one": [11, 11, 11, 11], "all": [12, 12, 12, 12]}, "none", id="native"),
        pytest.param({"none": [100] * 4, "one": [98] * 4, "all": [99] * 4}, "none", id="too-little-is-nothing"),
        pytest.param({"none": [100] * 4, "one": [90] * 4, "all": [89] * 4}, "one", id="fewer-unless-clearly-slower"),
        pytest.param({"none": [100] * 4, "all": [95] * 4}, "none", id="few-turns-must-gain-more"),
        pytest.param({"none": [100] * 8, "all": [95] * 8}, "all", id="many-turns-may-gain-less"),
        pytest.param({"none": [100] * 4, "all": [60, 60, 120, 120]}, "none", id="not-in-most-turns"),
        pytest.param({"none": [100, 200, 100, 200], "all": [90, 180, 90, 180]}, "all", id="same-turn-is-compared"),
        pytest.param({"none": [50, 200, 200, 200], "all": [90] * 4}, "none", id="not-only-while-others-disturb"),
        pytest.param({"one": [100] * 4}, "one", id="only-those-measured"),
    ],
)
def test_more_engines_must_be_clearly_faster(turns: dict[str, Sequence[float]], expected: str) -> None:
    candidates = [
        Candidate(name="all", segments=("a", "b", "c")),
        Candidate(name="one", segments=("b",)),
        Candidate(name="none", segments=()),
    ]

    assert choose(candidates, turns).name == expected


def test_candidates_are_none_the_best_the_gaining_and_all(source: pathlib.Path) -> None:
    graph = Graph.of(load_model(source))
    segments = cut(graph, [n.op_type != "Erf" for n in graph.nodes])
    gains = {"segment_0": 0.005, "segment_1": 0.5, "segment_2": 0.1}
    times = {name: SegmentTimes(engine_ms=1 - gain, native_ms=1) for name, gain in gains.items()}

    candidates = list_candidates(segments, times)

    assert [(c.name, c.segments) for c in candidates] == [
        ("all native", ()),
        ("one engine", ("segment_1",)),
        ("faster engines", ("segment_1", "segment_2")),
        ("minimum cut", ("segment_0", "segment_1", "segment_2")),
    ]


def test_model_that_is_faster_natively_stays_native(
    tune: Tune,
    in_process: InProcessWorker,
    workshop: Workshop,
    source: pathlib.Path,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    clock = Clock(in_process, dict.fromkeys(("segment_0", "segment_1", "segment_2"), 3.0), lambda s: 1 + len(s))

    compiled = tune(clock)

    assert compiled.engine == "native"
    assert compiled.report.tuning["chosen"] == "all native"
    assert set(not_faster(compiled).values()) == {"The segment takes 3 ms in an engine, 1 ms natively."}
    assert len(not_faster(compiled)) == 6
    same(plain(workshop.write(compiled.model), FEEDS), plain(source, FEEDS))


@pytest.mark.parametrize(("shares_cores", "slow_to_wake"), [(False, False), (True, True)])
def test_native_is_measured_as_it_will_run(
    shares_cores: bool,
    slow_to_wake: bool,
    in_process: InProcessWorker,
    source: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(in_process, dict.fromkeys(("segment_0", "segment_1", "segment_2"), 3.0), lambda s: 1 + len(s))
    monkeypatch.setattr("trtnode.engines.build.context.SubprocessWorker", lambda: contextlib.nullcontext(clock))
    options = CompileOptions(engine="openvino", tune=True, partition=PartitionOptions(native_ops=("Erf",)))

    prepare_model(source, options, run=RunOptions(shares_cores=shares_cores))

    assert clock.sharing == [slow_to_wake]


def test_only_engines_that_pay_off_stay(
    tune: Tune,
    in_process: InProcessWorker,
    workshop: Workshop,
    source: pathlib.Path,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    engines = {"segment_0": 3.0, "segment_1": 0.25, "segment_2": 0.5}
    clock = Clock(in_process, engines, table({"": 5.0, "1": 4.0, "12": 3.0, "012": 6.0}))

    compiled = tune(clock)

    assert [[n.op_type for n in s.nodes] for s in compiled.report.segments] == [["Abs", "Sqrt"], ["Tanh", "Neg"]]
    assert not_faster(compiled) == dict.fromkeys(
        ("Relu:a", "Neg:b"), "The segment takes 3 ms in an engine, 1 ms natively."
    )
    assert len(clock.asked) == 1  # the cut of the others is what was measured
    path = workshop.write(compiled.model)
    same(load_executable(path).run(FEEDS), plain(source, FEEDS))
    same(plain(path, FEEDS), plain(source, FEEDS))


def test_engines_that_are_fast_alone_but_not_in_the_model_go(tune: Tune, in_process: InProcessWorker) -> None:
    engines = {"segment_0": 0.5, "segment_1": 0.25, "segment_2": 0.5}
    clock = Clock(in_process, engines, table({"": 5.0, "1": 6.0, "012": 7.5}))

    compiled = tune(clock)

    assert compiled.report.segments == ()
    assert not_faster(compiled)["Relu:a"] == (
        "The segment takes 0.5 ms in an engine, 1 ms natively; "
        "the model: 7.5 ms with all engines, 5 ms with all native."
    )


def test_close_candidates_are_measured_again(tune: Tune, in_process: InProcessWorker) -> None:
    engines = {"segment_0": 3.0, "segment_1": 0.25, "segment_2": 0.5}
    clock = Clock(in_process, engines, table({"": 5.0, "1": 4.0, "12": 3.9, "012": 4.1}))

    compiled = tune(clock)

    assert [set(asked) for asked in clock.asked] == [
        {"all native", "one engine", "faster engines", "minimum cut"},
        {"one engine", "faster engines", "minimum cut"},
    ]
    assert compiled.report.tuning["chosen"] == "one engine"
