"""By default a brief measurement chooses the engines; figures are injected, except where a test says so."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import onnx
import pytest

from clock import FEEDS, Clock, Tune, fast_middle, table
from comparison import AssertSame, RunPlainly
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.reference import ReferenceBackend
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SpareWorkers
from trtnode.engines.compile.opening import open_model
from trtnode.engines.tuning.candidates import Candidate, choose
from trtnode.engines.tuning.timing import time_briefly
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.cut.options import PartitionOptions
from workshop import Workshop, prepare_and_open

pytestmark = pytest.mark.usefixtures("choosing_engines")

THREE = {"segment_0": 3.0, "segment_1": 0.25, "segment_2": 3.0}
LARGE = "g (float[1,1000000] x) => (float[1,1000000] y) { a = Relu(x) b = Neg(a) c = Abs(b) d = Neg(c) y = Relu(d) }"


def reasons(compiled: CompiledModel) -> set[str]:
    return {n.detail for n in compiled.report.native if n.code == ReasonCode.NOT_FASTER}


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


def test_engines_that_make_the_model_slower_go(tune: Tune, in_process: InProcessWorker) -> None:
    clock = Clock(in_process, dict.fromkeys(THREE, 3.0), table({"": 6.87, "012": 20.85}))

    compiled = tune(clock)

    assert compiled.engine == "native"
    assert [set(asked) for asked in clock.asked] == [{"all native", "minimum cut"}]
    assert reasons(compiled) == {"The segment takes 3 ms in an engine, 1 ms natively."}


def test_engines_that_make_the_model_faster_stay(tune: Tune, in_process: InProcessWorker) -> None:
    clock = Clock(in_process, dict.fromkeys(THREE, 0.5), table({"": 5.0, "012": 3.0}))

    compiled = tune(clock)

    assert len(compiled.report.segments) == 3
    assert compiled.report.tuning["chosen"] == "minimum cut"


def test_check_and_measurement_share_one_file_and_one_native_load(
    tune: Tune, in_process: InProcessWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[pathlib.Path] = []

    def write(model: onnx.ModelProto, path: pathlib.Path, *, link: bool) -> None:
        written.append(path)
        write_temporary(model, path, link=link)

    monkeypatch.setattr("trtnode.engines.compile.compilation.write_temporary", write)

    compiled = tune(Clock(in_process, dict.fromkeys(THREE, 3.0), table({"": 6.87, "012": 20.85})))

    assert compiled.engine == "native"
    assert [path.name for path in written] == ["compiled.onnx"]
    assert "check_compiled" in in_process.calls
    assert "check_loads" not in in_process.calls


def test_segments_are_not_measured_alone_where_one_takes_all_of_the_time(
    tune: Tune, in_process: InProcessWorker, workshop: Workshop
) -> None:
    graph = """g (float[256,256] x) => (float[1,1] y) {
        a = MatMul(x, x) b = MatMul(a, x) c = ReduceMax(b) d = Erf(c) e = Abs(d) y = Sqrt(e)
    }"""
    clock = Clock(in_process, {"segment_0": 0.5, "segment_1": 3.0}, table({"": 5.0, "01": 3.0}))

    compiled = tune(clock, source=workshop.write(graph))

    assert len(compiled.report.segments) == 2
    assert compiled.report.tuning["segments"] == []
    assert len(clock.asked) == 1


def test_engines_that_are_fast_alone_but_not_in_the_model_go(tune: Tune, in_process: InProcessWorker) -> None:
    compiled = tune(Clock(in_process, dict.fromkeys(THREE, 0.5), table({"": 5.0, "012": 7.5})))

    assert reasons(compiled) == {
        "The segment takes 0.5 ms in an engine, 1 ms natively; "
        "the model: 7.5 ms with all engines, 5 ms with all native."
    }


def test_what_is_left_of_the_engines_answers_as_before(
    tune: Tune,
    in_process: InProcessWorker,
    workshop: Workshop,
    source: pathlib.Path,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    clock = Clock(in_process, {**THREE, "segment_2": 0.5}, table({"": 5.0, "12": 3.0, "012": 6.0}))

    compiled = tune(clock)

    assert [[n.op_type for n in s.nodes] for s in compiled.report.segments] == [["Abs", "Sqrt"], ["Tanh", "Neg"]]
    assert reasons(compiled) == {"The segment takes 3 ms in an engine, 1 ms natively."}
    assert len(clock.asked) == 2  # the cut of the others is what was measured
    path = workshop.write(compiled.model)
    same(open_model(path).run(FEEDS), plain(source, FEEDS))
    same(plain(path, FEEDS), plain(source, FEEDS))


@pytest.mark.parametrize(("shares_cores", "slow_to_wake"), [(False, False), (True, True)])
def test_native_is_measured_as_it_will_run(
    shares_cores: bool,
    slow_to_wake: bool,
    in_process: InProcessWorker,
    source: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(in_process, dict.fromkeys(("segment_0", "segment_1", "segment_2"), 3.0), lambda s: 1 + len(s))
    monkeypatch.setattr("trtnode.engines.build.context.BUILDERS", SpareWorkers(lambda: clock))
    partition = PartitionOptions(native_ops=("Erf",))

    prepare_and_open(source, CompileOptions(engine="openvino", partition=partition, shares_cores=shares_cores))

    assert clock.sharing == [slow_to_wake]


@pytest.mark.parametrize(
    ("times", "kept"),
    [
        pytest.param({"": 5.0, "012": 6.0, "1": 4.0}, 1, id="faster-than-none"),
        pytest.param({"": 5.0, "012": 4.0, "1": 3.5}, 1, id="faster-than-all"),
        pytest.param({"": 5.0, "012": 6.0, "1": 4.9}, 0, id="too-little-is-nothing"),
        pytest.param({"": 5.0, "012": 3.0, "1": 4.0}, 3, id="all-are-faster"),
    ],
)
def test_engines_that_gain_alone_are_measured_together(
    times: dict[str, float], kept: int, tune: Tune, in_process: InProcessWorker
) -> None:
    clock = Clock(in_process, THREE, table(times))

    compiled = tune(clock)

    assert len(compiled.report.segments) == kept
    assert [c["name"] for c in compiled.report.tuning["candidates"]] == ["all native", "faster engines", "minimum cut"]


def test_one_engine_is_measured_in_the_model_alone(
    workshop: Workshop, in_process: InProcessWorker, caplog: pytest.LogCaptureFixture
) -> None:
    source = workshop.write("g (float[4] x) => (float[4] y) { a = Relu(x) y = Neg(a) }")
    clock = Clock(in_process, {}, table({"": 1.0, "0": 2.0}))

    with caplog.at_level(logging.INFO):
        compiled = workshop.compile(source, engine="reference", worker=clock)

    assert reasons(compiled) == {"The model: 2 ms with all engines, 1 ms with all native."}
    assert compiled.report.tuning["segments"] == []
    assert "measured all native 1 ms, minimum cut 2 ms; all native is kept, with 0 of 1 engines" in caplog.text


def test_failure_after_the_whole_model_was_measured_keeps_that_choice(tune: Tune, in_process: InProcessWorker) -> None:
    clock = Clock(in_process, THREE, table({"": 5.0, "012": 3.0}))
    clock.fails_after = 1

    compiled = tune(clock)

    assert len(compiled.report.segments) == 3


@pytest.mark.parametrize(
    ("graph", "engines"), [pytest.param(LARGE, 1, id="large"), pytest.param(LARGE.replace("000000", ""), 0, id="small")]
)
def test_without_measuring_the_estimate_chooses(
    graph: str, engines: int, workshop: Workshop, in_process: InProcessWorker
) -> None:
    compiled = workshop.compile(workshop.write(graph), engine="reference", worker=in_process, measure=False)

    assert len(compiled.report.segments) == engines
    assert all(text.startswith("By estimate, the segment takes 0.02") for text in reasons(compiled))
    assert "build" in in_process.calls or not engines
    assert not {"measure_candidates", "measure_segments"} & set(in_process.calls)


def test_segment_of_unknown_sizes_has_no_estimate(workshop: Workshop, in_process: InProcessWorker) -> None:
    sources = [workshop.write(LARGE.replace("[1,1000000]", shape)) for shape in ("[N,1]", "[N,M]")]

    built = [workshop.compile(s, engine="reference", worker=in_process, measure=False).report.segments for s in sources]

    assert [len(segments) for segments in built] == [0, 1]


class GpuBackend(ReferenceBackend):
    """The reference, as if a GPU ran it."""

    name = "gpu"
    on_cpu = False
    missing: str | None = None

    def cannot_run_reason(self, options: BuildOptions) -> str | None:
        return self.missing


@pytest.fixture
def gpu(register: Callable[[type[Any]], None]) -> type[GpuBackend]:
    backend = type("Gpu", (GpuBackend,), {})
    register(backend)
    return backend


def test_engines_that_can_not_run_here_stay_unmeasured(
    tune: Tune, gpu: type[GpuBackend], in_process: InProcessWorker
) -> None:
    gpu.missing = "no GPU"

    compiled = tune(in_process, engine="gpu")

    assert len(compiled.report.segments) == 3
    assert "measure_candidates" not in in_process.calls


@pytest.mark.parametrize("choice", [{"measure": False}, {}])
def test_engines_of_a_gpu_have_no_estimate(
    choice: dict[str, bool], tune: Tune, gpu: type[GpuBackend], in_process: InProcessWorker
) -> None:
    clock = fast_middle(in_process)
    clock.fails = True

    compiled = tune(clock, engine="gpu", **choice)

    assert len(compiled.report.segments) == 3


def test_real_brief_measurement_names_its_choice(
    workshop: Workshop,
    source: pathlib.Path,
    brief_tuning: None,
    in_process: InProcessWorker,
) -> None:
    tuning = workshop.compile(source, native_ops=("Erf",), worker=in_process).report.tuning

    assert tuning["chosen"] in [c["name"] for c in tuning["candidates"]]
    assert all(c["p50_ms"] > 0 for c in tuning["candidates"])


class FakeTime:
    """Stands for ``time``: calls compute as long as they say, with some share of a core."""

    def __init__(self, share: float = 1.0) -> None:
        self.share = share
        self.now = self.burnt = 0.0

    def compute(self, seconds: float) -> None:
        self.now += seconds
        self.burnt += seconds * self.share

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.burnt

    def perf_counter_ns(self) -> int:
        return round(self.now * 1e9)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("seconds_a", "seconds_b", "turns", "most_s"),
    [
        pytest.param(0.001, 0.0021, 3, 0.8, id="far"),
        pytest.param(0.001, 0.0015, 7, 1.5, id="clear"),
        pytest.param(0.001, 0.00105, 7, 1.5, id="nearly-equal"),
        pytest.param(0.15, 0.17, 7, 6.0, id="slow"),
        pytest.param(0.5, 0.55, 5, 8.0, id="few-turns"),
        pytest.param(3.0, 4.0, 1, 7.1, id="each-runs-once"),
        pytest.param(0.2, 5.0, 1, 7.0, id="hopeless"),
    ],
)
def test_brief_turns_end_when_they_are_clear_or_time_is_up(
    seconds_a: float, seconds_b: float, turns: int, most_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeTime()
    monkeypatch.setattr("trtnode.engines.tuning.timing.time", clock)
    calls = {"a": lambda: clock.compute(seconds_a), "b": lambda: clock.compute(seconds_b)}

    measured = time_briefly(calls, 4.0).turns

    assert (len(measured["a"]), len(measured["b"])) == (turns, turns)
    assert measured["a"][0] == pytest.approx(1e3 * seconds_a)
    assert clock.now < most_s


@pytest.mark.parametrize(("share", "disturbed"), [(0.1, True), (0.9, False)])
def test_a_measurement_knows_whether_it_had_the_processor(
    share: float, disturbed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeTime(share)
    monkeypatch.setattr("trtnode.engines.tuning.timing.time", clock)

    timed = time_briefly({"a": lambda: clock.compute(3.0), "b": lambda: clock.compute(2.0)}, 4.0)

    assert timed.disturbed is disturbed


@pytest.mark.parametrize(
    ("graph", "engines"), [pytest.param(LARGE, 1, id="large"), pytest.param(LARGE.replace("000000", ""), 0, id="small")]
)
def test_the_estimate_chooses_while_nothing_can_be_learnt(
    graph: str,
    engines: int,
    workshop: Workshop,
    in_process: InProcessWorker,
    cache: EngineCache,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = workshop.write(graph)
    times = {"": 1.0, "0": 2.0} if engines else {"": 2.0, "0": 1.0}
    clock = Clock(in_process, {}, table(times))
    clock.busy = True

    busy = workshop.compile(source, engine="reference", worker=clock, cache=cache)
    clock.busy = False
    later = workshop.compile(source, engine="reference", worker=clock, cache=cache)

    assert len(busy.report.segments) == engines
    assert busy.report.tuning["confidence"] == "unknown"
    assert "noisy measurement (with engines " in caplog.text
    assert all("a noisy measurement, so the estimate decides" in text for text in reasons(busy))
    assert len(later.report.segments) == 1 - engines
    assert later.report.tuning["confidence"] == "clear"
