"""Engines stay only where they make the model faster; figures are injected, except where a test says so."""

from __future__ import annotations

import contextlib
import json
import logging
import pathlib
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from engines import CompileOptions, EngineCache, load_executable, partition_model, prepare_model
from engines.errors import InvalidInputError, WorkerError
from engines.measuring import time_in_turn
from engines.tuning import Candidate, SegmentTimes, Tuner, choose, list_candidates
from partitioner import Graph, PartitionOptions, ReasonCode, cut_segments, load_model

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("brief_tuning", "one_builder")]

GRAPH = """g (float[2,8] x) => (float[2,8] y) {
    a = Relu(x) b = Neg(a) c = Erf(b) d = Abs(c) e = Sqrt(d) f = Erf(e) h = Tanh(f) y = Neg(h)
}"""
FEEDS = {"x": np.linspace(-2, 2, 16, dtype=np.float32).reshape(2, 8)}
LARGE = 2**30


class Clock:
    """A worker that tells given times instead of measuring.

    Attributes:
        engines: What each segment's engine takes in ms, by name; natively, each takes 1 ms.
        model: What the model takes in ms with engines for these segments.
        asked: The candidates of each measurement.
        sharing: Whether each measurement was one beside other models.
    """

    def __init__(
        self, inner: Any, engines: Mapping[str, float], model: Callable[[frozenset[str]], float], fails: bool = False
    ) -> None:
        self.inner = inner
        self.engines = engines
        self.model = model
        self.fails = fails
        self.asked: list[dict[str, tuple[str, ...]]] = []
        self.sharing: list[bool] = []

    def call(self, function: Any, timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        if function.__name__ == "measure_segments":
            return {name: {"engine": [ms] * 3, "native": [1.0] * 3} for name, ms in self.engines.items()}
        if function.__name__ == "measure_candidates":
            if self.fails:
                raise WorkerError("The process that ran measure_candidates crashed (exit code -11).")
            self.asked.append({name: tuple(segments) for name, segments in args[1].items()})
            self.sharing.append(args[0].shares_cores)
            return {name: [self.model(frozenset(segments))] * 3 for name, segments in args[1].items()}
        return self.inner.call(function, timeout_s, *args, **kwargs)


def table(times: Mapping[str, float]) -> Callable[[frozenset[str]], float]:
    """Times by the numbers of the segments, such as ``"02"``; all engines where they are not listed."""

    def model(segments: frozenset[str]) -> float:
        return times["".join(sorted(name.removeprefix("segment_") for name in segments))]

    return model


@pytest.fixture
def source(workshop: Any) -> pathlib.Path:
    return workshop.write(GRAPH)


@pytest.fixture
def tune(workshop: Any, source: pathlib.Path) -> Callable[..., Any]:
    def compile_it(clock: Any, **changes: Any) -> Any:
        options = {"engine": "reference", "native_ops": ("Erf",), "worker": clock, "tune": True, **changes}
        return workshop.compile(options.pop("source", source), **options)

    return compile_it


def not_faster(compiled: Any) -> dict[str, str]:
    return {n.node: n.detail for n in compiled.report.native if n.code == ReasonCode.NOT_FASTER}


# The rule


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        pytest.param({"none": [10, 10, 10, 10], "one": [9, 9, 9, 9], "all": [8, 8, 8, 8]}, "all", id="fastest"),
        pytest.param({"none": [10, 10, 10, 10], "one": [11, 11, 11, 11], "all": [12, 12, 12, 12]}, "none", id="native"),
        pytest.param({"none": [100] * 4, "one": [98] * 4, "all": [99] * 4}, "none", id="too-little-is-nothing"),
        pytest.param({"none": [100] * 4, "one": [90] * 4, "all": [89] * 4}, "one", id="fewer-unless-clearly-slower"),
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
    segments = cut_segments(graph, {n.name: n.op_type != "Erf" for n in graph.nodes})
    gains = {"segment_0": 0.005, "segment_1": 0.5, "segment_2": 0.1}
    times = {name: SegmentTimes(engine_ms=1 - gain, native_ms=1) for name, gain in gains.items()}

    candidates = list_candidates(segments, times)

    assert [(c.name, c.segments) for c in candidates] == [
        ("all native", ()),
        ("one engine", ("segment_1",)),
        ("faster engines", ("segment_1", "segment_2")),
        ("minimum cut", ("segment_0", "segment_1", "segment_2")),
    ]


@pytest.mark.parametrize("seconds", [0.0, 0.01])
def test_calls_take_turns(seconds: float) -> None:
    order: list[str] = []

    turns = time_in_turn({n: lambda n=n: order.append(n) for n in "ab"}, seconds=seconds, rounds=6)  # type: ignore[misc]

    assert len(turns["a"]) == len(turns["b"]) in (5, 6)
    changes = "".join(n for n, before in zip(order, ["", *order], strict=False) if n != before)
    assert changes.startswith("abab")


def test_hopelessly_slow_call_takes_no_turns() -> None:
    order: list[str] = []
    naps = {"a": 0.0, "slow": 0.15}

    turns = time_in_turn(
        {n: lambda n=n: (order.append(n), time.sleep(naps[n])) for n in naps},  # type: ignore[misc]
        seconds=0.1,
        rounds=6,
    )

    assert order.count("slow") == 2
    assert order.count("a") > 6
    assert len(turns["a"]) == len(turns["slow"])
    assert min(turns["slow"]) > 100 > max(turns["a"])


def test_turn_begins_when_threads_of_the_one_before_no_longer_spin() -> None:
    spinning: list[bool] = []
    helpers: list[threading.Thread] = []

    def spin() -> None:
        deadline = time.monotonic() + 0.03
        while time.monotonic() < deadline:
            pass

    def leaves_a_thread_spinning() -> None:
        helpers.append(threading.Thread(target=spin))
        helpers[-1].start()

    calls = {"spins": leaves_a_thread_spinning, "other": lambda: spinning.append(any(h.is_alive() for h in helpers))}
    time_in_turn(calls, seconds=0.0, rounds=5)

    assert helpers
    assert not any(spinning)


# A compilation


def test_model_that_is_faster_natively_stays_native(
    tune: Any, in_process: Any, workshop: Any, source: pathlib.Path, plain: Any, same: Any
) -> None:
    clock = Clock(in_process, dict.fromkeys(("segment_0", "segment_1", "segment_2"), 3.0), lambda s: 1 + len(s))

    compiled = tune(clock)

    assert compiled.engine == "native"
    assert compiled.report.tuning["chosen"] == "all native"
    assert set(not_faster(compiled).values()) == {"Its segment: engine 3 ms, native 1 ms."}
    assert len(not_faster(compiled)) == 6
    same(plain(workshop.write(compiled.model), FEEDS), plain(source, FEEDS))


@pytest.mark.parametrize(("shares_cores", "slow_to_wake"), [(False, False), (True, True)])
def test_native_is_measured_as_it_will_run(
    shares_cores: bool, slow_to_wake: bool, in_process: Any, source: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(in_process, dict.fromkeys(("segment_0", "segment_1", "segment_2"), 3.0), lambda s: 1 + len(s))
    monkeypatch.setattr("engines.compiler.Worker", lambda: contextlib.nullcontext(clock))
    options = CompileOptions(engine="openvino", tune=True, partition=PartitionOptions(native_ops=("Erf",)))

    prepare_model(source, options, shares_cores=shares_cores)

    assert clock.sharing == [slow_to_wake]


def test_only_engines_that_pay_off_stay(
    tune: Any, in_process: Any, workshop: Any, source: pathlib.Path, plain: Any, same: Any
) -> None:
    engines = {"segment_0": 3.0, "segment_1": 0.25, "segment_2": 0.5}
    clock = Clock(in_process, engines, table({"": 5.0, "1": 4.0, "12": 3.0, "012": 6.0}))

    compiled = tune(clock)

    assert [[n.op_type for n in s.nodes] for s in compiled.report.segments] == [["Abs", "Sqrt"], ["Tanh", "Neg"]]
    assert not_faster(compiled) == dict.fromkeys(("Relu:a", "Neg:b"), "Its segment: engine 3 ms, native 1 ms.")
    assert len(clock.asked) == 1  # the cut of the others is what was measured
    path = workshop.write(compiled.model)
    same(load_executable(path).run(FEEDS), plain(source, FEEDS))
    same(plain(path, FEEDS), plain(source, FEEDS))


def test_engines_that_are_fast_alone_but_not_in_the_model_go(tune: Any, in_process: Any) -> None:
    engines = {"segment_0": 0.5, "segment_1": 0.25, "segment_2": 0.5}
    clock = Clock(in_process, engines, table({"": 5.0, "1": 6.0, "012": 7.5}))

    compiled = tune(clock)

    assert compiled.report.segments == ()
    assert not_faster(compiled)["Relu:a"] == (
        "Its segment: engine 0.5 ms, native 1 ms; the model: 7.5 ms with all engines, 5 ms with all native."
    )


def test_report_says_what_was_measured(tune: Any, in_process: Any) -> None:
    engines = {"segment_0": 3.0, "segment_1": 0.25, "segment_2": 3.0}

    compiled = tune(Clock(in_process, engines, table({"": 5.0, "1": 4.0, "012": 6.0})))

    tuning = {
        "candidates": [
            {"name": "all native", "p50_ms": 5.0, "segments": []},
            {"name": "one engine", "p50_ms": 4.0, "segments": ["segment_1"]},
            {"name": "faster engines", "p50_ms": 4.0, "segments": ["segment_1"]},
            {"name": "minimum cut", "p50_ms": 6.0, "segments": ["segment_0", "segment_1", "segment_2"]},
        ],
        "chosen": "one engine",
        "segments": [
            {"name": "segment_0", "engine_ms": 3.0, "native_ms": 1.0, "kept": False},
            {"name": "segment_1", "engine_ms": 0.25, "native_ms": 1.0, "kept": True},
            {"name": "segment_2", "engine_ms": 3.0, "native_ms": 1.0, "kept": False},
        ],
    }
    assert compiled.report.as_json()["tuning"] == tuning
    properties = {p.key: p.value for p in compiled.model.metadata_props}
    assert json.loads(properties["trtnode.report"])["tuning"] == tuning


def test_close_candidates_are_measured_again(tune: Any, in_process: Any) -> None:
    engines = {"segment_0": 3.0, "segment_1": 0.25, "segment_2": 0.5}
    clock = Clock(in_process, engines, table({"": 5.0, "1": 4.0, "12": 3.9, "012": 4.1}))

    compiled = tune(clock)

    assert [set(asked) for asked in clock.asked] == [
        {"all native", "one engine", "faster engines", "minimum cut"},
        {"one engine", "faster engines", "minimum cut"},
    ]
    assert compiled.report.tuning["chosen"] == "one engine"


def test_cut_that_changes_is_measured_once_more_and_no_further(
    source: pathlib.Path, in_process: Any, tmp_path: pathlib.Path
) -> None:
    cut_twice, cut_once = (
        partition_model(source, CompileOptions(partition=PartitionOptions(native_ops=ops)))[0]
        for ops in (("Erf",), ("Abs",))
    )
    clock = Clock(in_process, dict.fromkeys(("segment_0", "segment_1", "segment_2"), 0.5), lambda s: 5 - len(s))
    options = CompileOptions(engine="reference", tune=True)
    tuner = Tuner(source, options, engine="reference", cache=None, worker=clock, folder=tmp_path)  # type: ignore[arg-type]
    compiled: Any = types.SimpleNamespace(save=lambda path: None)

    verdicts = [tuner.judge(cut, compiled) for cut in (cut_twice, cut_twice, cut_once, cut_twice)]

    assert verdicts == [{}, {}, {}, {}]
    assert len(clock.asked) == 2


def test_untuned_report_says_nothing_of_tuning(workshop: Any, source: pathlib.Path) -> None:
    assert "tuning" not in workshop.compile(source, native_ops=("Erf",)).report.as_json()


# What is remembered


@pytest.fixture
def cache(tmp_path: pathlib.Path) -> EngineCache:
    return EngineCache(tmp_path / "cache", LARGE)


def fast_middle(in_process: Any) -> Clock:
    engines = {"segment_0": 3.0, "segment_1": 0.25, "segment_2": 3.0}
    return Clock(in_process, engines, table({"": 5.0, "1": 4.0, "012": 6.0}))


def test_second_compilation_neither_builds_nor_measures(tune: Any, in_process: Any, cache: EngineCache) -> None:
    first = tune(fast_middle(in_process), cache=cache)
    clock = fast_middle(in_process)
    in_process.calls.clear()

    second = tune(clock, cache=cache)

    assert clock.asked == []
    assert "build" not in in_process.calls
    assert (second.engines_built, second.engines_cached) == (0, 1)
    assert second.report.native == first.report.native
    assert second.report.tuning == first.report.tuning


def test_second_compilation_of_what_stays_native_builds_nothing(tune: Any, in_process: Any, cache: EngineCache) -> None:
    engines = dict.fromkeys(("segment_0", "segment_1", "segment_2"), 3.0)
    tune(Clock(in_process, engines, lambda s: 1 + len(s)), cache=cache)
    clock = Clock(in_process, engines, lambda s: 1 + len(s))

    second = tune(clock, cache=cache)

    assert (clock.asked, second.engines_built, second.engine) == ([], 0, "native")


def test_refused_nodes_are_remembered_with_the_outcome(
    tune: Any, in_process: Any, unreliable: Any, cache: EngineCache
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
    what: str, tune: Any, in_process: Any, cache: EngineCache, workshop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(fast_middle(in_process), cache=cache)
    clock = fast_middle(in_process)
    changes: dict[str, Any] = {}
    if what == "model":
        changes["source"] = workshop.write(GRAPH.replace("Tanh", "Exp"))
    elif what == "options":
        changes["native_ops"] = ("Erf", "Det")
    elif what == "cores":
        monkeypatch.setattr("os.cpu_count", lambda: 1000)
    else:
        np.savez(workshop.folder / "samples.npz", **FEEDS)
        changes["samples"] = workshop.folder / "samples.npz"

    tune(clock, cache=cache, **changes)

    assert clock.asked


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut"),
        pytest.param(b"[1, 2]", id="list"),
        pytest.param(b'{"demoted": 3, "tuning": {}}', id="number"),
        pytest.param(b'{"demoted": {"Relu:a": ["SLOW", "x"]}, "tuning": {}}', id="unknown-code"),
        pytest.param(b'{"demoted": {"gone": ["NOT_FASTER", "x"]}, "tuning": {}}', id="unknown-node"),
        pytest.param(b'{"demoted": {}}', id="without-figures"),
    ],
)
def test_damaged_verdict_is_a_miss(
    content: bytes, tune: Any, in_process: Any, cache: EngineCache, tmp_path: pathlib.Path
) -> None:
    tune(fast_middle(in_process), cache=cache)
    (verdict,) = [p for p in (tmp_path / "cache").glob("*.json") if b'"tuning"' in p.read_bytes()]
    verdict.write_bytes(content)
    clock = fast_middle(in_process)

    compiled = tune(clock, cache=cache)

    assert clock.asked
    assert compiled.report.tuning["chosen"] == "one engine"


# What can't be measured


def test_crash_while_measuring_keeps_all_engines(
    tune: Any, in_process: Any, cache: EngineCache, caplog: pytest.LogCaptureFixture
) -> None:
    clock = fast_middle(in_process)
    clock.fails = True

    with caplog.at_level(logging.WARNING):
        compiled = tune(clock, cache=cache)

    assert len(compiled.report.segments) == 3
    assert compiled.report.tuning is None
    assert "is not tuned, so all its engines stay: The process that ran measure_candidates crashed" in caplog.text
    clock.fails = False
    assert tune(clock, cache=cache).report.tuning is not None


def test_model_that_no_generated_input_fits_keeps_its_engines(
    workshop: Any, cache: EngineCache, in_process: Any, caplog: pytest.LogCaptureFixture
) -> None:
    text = "g (float[N] x) => (float[7,11] y) <int64[2] s = {7, 11}> { e = Exp(x) y = Reshape(e, s) }"
    source = workshop.write(text)
    np.savez(workshop.folder / "samples.npz", x=np.zeros(77, np.float32))
    options = {"engine": "reference", "cache": cache, "worker": in_process}
    workshop.compile(source, samples=workshop.folder / "samples.npz", **options)

    with caplog.at_level(logging.WARNING):
        compiled = workshop.compile(source, tune=True, **options)

    assert len(compiled.report.segments) == 1
    assert "it runs on no generated input. Give inputs that it runs on." in caplog.text


# Measured for real


@pytest.mark.parametrize(
    ("graph", "feeds"),
    [
        pytest.param(GRAPH, FEEDS, id="fixed-shapes"),
        pytest.param(GRAPH.replace("[2,8]", "[N,8]"), FEEDS, id="open-shapes"),
        pytest.param(
            "g (float[N,4] x, string[N] s) => (float[N,4] y, string[N] t)"
            " { a = Relu(x) b = Erf(a) y = Neg(b) t = Identity(s) }",
            {"x": FEEDS["x"][:, :4], "s": np.array(["a", "b"], dtype=object)},
            id="strings-beside",
        ),
        pytest.param(
            "g (int64[4] x, bool[4] m) => (int64[4] y, float[4] z)"
            " { n = Not(m) f = Cast<to = 1>(n) z = Erf(f) y = Where(n, x, x) }",
            {"x": np.arange(4), "m": np.array([True, False, True, False])},
            id="integers",
        ),
    ],
)
def test_real_measurement_gives_a_model_that_answers_as_before(
    graph: str, feeds: dict[str, np.ndarray], workshop: Any, plain: Any, same: Any
) -> None:
    source = workshop.write(graph)

    compiled = workshop.compile(source, native_ops=("Erf",), tune=True)

    tuning = compiled.report.tuning
    by_name = {c["name"]: c for c in tuning["candidates"]}
    kept = by_name[tuning["chosen"]]["segments"]
    assert list(by_name) == ["all native", "one engine", "faster engines", "minimum cut"]
    assert all(c["p50_ms"] > 0 for c in tuning["candidates"])
    assert [s["name"] for s in tuning["segments"] if s["kept"]] == kept
    assert len(compiled.report.segments) == len(kept)
    path = workshop.write(compiled.model)
    same(load_executable(path).run(feeds), plain(source, feeds))
    same(plain(path, feeds), plain(source, feeds))


def test_second_start_of_a_server_neither_builds_nor_measures(
    source: pathlib.Path, cache: EngineCache, plain: Any, same: Any, caplog: pytest.LogCaptureFixture
) -> None:
    options = CompileOptions(tune=True, partition=PartitionOptions(native_ops=("Erf",)))
    prepare_model(source, options, cache, threads=1)

    with caplog.at_level(logging.INFO):
        executable = prepare_model(source, options, cache, threads=1)

    assert executable.description["engines_built"] == 0
    assert "Tuning chose" not in caplog.text
    same(executable.run(FEEDS), plain(source, FEEDS))


def test_given_inputs_that_do_not_fit_are_an_error_even_where_engines_are_cached(
    tune: Any, in_process: Any, workshop: Any, cache: EngineCache
) -> None:
    tune(in_process, cache=cache, tune=False)
    np.savez(workshop.folder / "samples.npz", x=np.zeros(3, np.float32))

    with pytest.raises(InvalidInputError, match=r"samples\.npz: Input 'x' must be"):
        tune(in_process, cache=cache, samples=workshop.folder / "samples.npz")
