"""Engines that can't be built, or that differ from native execution, are left out, and the others stay."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from chain import FEEDS
from comparison import AssertSame, RunPlainly
from decoders import OPTIMUM, PLAIN, decoder
from faulty_backends import UnreliableBackend
from stand_in_workers import CrashingWorker, InProcessWorker
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.backends.progress import Progress, listening
from trtnode.engines.build import jobs
from trtnode.engines.build.native_runs import SampledModel
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.opening import open_model
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.errors import EngineError, WorkerError
from trtnode.partitioner.cut.labels import ReasonCode
from workshop import Workshop


def test_engine_that_computes_wrong_is_left_out_and_others_stay(
    unreliable: type[UnreliableBackend],
    in_process: InProcessWorker,
    workshop: Workshop,
    source: pathlib.Path,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    unreliable.miscomputes = ("Exp",)

    compiled = workshop.compile(source, engine="unreliable", native_ops=("Relu",), worker=in_process)

    assert [[n.op_type for n in s.nodes] for s in compiled.report.segments] == [["Neg"]]
    (refused,) = [n for n in compiled.report.native if n.op_type == "Exp"]
    assert refused.code == ReasonCode.INACCURATE
    assert "'e' is not what native execution gives: 8 of 8 elements differ, by up to 1" in refused.detail
    path = workshop.write(compiled.model)
    same(open_model(path).run(FEEDS), plain(source, FEEDS))
    same(plain(path, FEEDS), plain(source, FEEDS))


def test_engine_that_is_refused_is_left_out_and_others_stay(
    unreliable: type[UnreliableBackend],
    in_process: InProcessWorker,
    workshop: Workshop,
    source: pathlib.Path,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    unreliable.refuses = ("Neg",)

    compiled = workshop.compile(source, engine="unreliable", native_ops=("Relu",), worker=in_process)

    assert [[n.op_type for n in s.nodes] for s in compiled.report.segments] == [["Exp"]]
    assert [(n.op_type, n.code, n.detail) for n in compiled.report.native if n.op_type == "Neg"] == [
        ("Neg", ReasonCode.BUILD_FAILED, "Neg is too hard.")
    ]
    same(open_model(workshop.write(compiled.model)).run(FEEDS), plain(source, FEEDS))


GROWING = """g (float[N] x) => (float[N] y) <float large = {1e5}, float two = {2}> {
    e = Exp(x) a = Mul(e, large) r = Mod<fmod = 1>(a, two) y = Neg(r) }"""
"""The remainder makes all of a difference that is nothing beside the large numbers."""


def test_an_engine_whose_rounding_grows_behind_it_is_left_out_and_others_stay(
    unreliable: type[UnreliableBackend],
    in_process: InProcessWorker,
    workshop: Workshop,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    unreliable.miscomputes = ("Exp",)
    source = workshop.write(GROWING)

    compiled = workshop.compile(source, engine="unreliable", native_ops=("Mod",), worker=in_process)

    assert [[n.op_type for n in s.nodes] for s in compiled.report.segments] == [["Neg"]]
    refused = {n.op_type: n.detail for n in compiled.report.native if n.code == ReasonCode.INACCURATE}
    assert refused.keys() == {"Exp", "Mul"}
    assert "as a whole fails with this engine: output 'y': " in refused["Exp"]
    feeds = {"x": np.linspace(-1, 1, 8, dtype=np.float32)}
    same(open_model(workshop.write(compiled.model)).run(feeds), plain(source, feeds))


@pytest.mark.parametrize(
    ("function", "code"),
    [
        pytest.param("build", ReasonCode.BUILD_FAILED, id="build"),
        pytest.param("check_segments", ReasonCode.INACCURATE, id="check-of-segments"),
        pytest.param("check_compiled", ReasonCode.INACCURATE, id="check-of-the-whole"),
    ],
)
def test_crash_of_the_child_costs_engines_only_this_once(
    function: str,
    code: ReasonCode,
    workshop: Workshop,
    source: pathlib.Path,
    in_process: InProcessWorker,
    plain: RunPlainly,
    same: AssertSame,
    cache: EngineCache,
) -> None:
    crashing = CrashingWorker(in_process, function)

    compiled = workshop.compile(source, engine="reference", cache=cache, worker=crashing)

    assert {n.code for n in compiled.report.native} == {code}
    assert all("crashed (exit code -11)" in n.detail for n in compiled.report.native)
    same(plain(workshop.write(compiled.model), FEEDS), plain(source, FEEDS))
    assert workshop.compile(source, engine="reference", cache=cache, worker=in_process).report.segments


@pytest.mark.parametrize("check", ["check_segments", "check_compiled"])
def test_check_that_takes_too_long_says_nothing_about_the_engine(
    check: str,
    workshop: Workshop,
    source: pathlib.Path,
    in_process: InProcessWorker,
    plain: RunPlainly,
    same: AssertSame,
    cache: EngineCache,
) -> None:
    late = CrashingWorker(in_process, check, takes_s=60)

    compiled = workshop.compile(source, engine="reference", cache=cache, worker=late)
    explained = partition_model(source, CompileOptions(engine="reference"), cache=cache)[1]
    again = workshop.compile(source, engine="reference", cache=cache, worker=in_process)

    assert {n.code for n in compiled.report.native} == {ReasonCode.CHECK_TIMED_OUT}
    assert all(f"{check} took longer than 60 s" in n.detail for n in compiled.report.native)
    same(plain(workshop.write(compiled.model), FEEDS), plain(source, FEEDS))
    assert explained.native == ()
    assert again.report.native == ()


@pytest.mark.parametrize("engine_s", [0.0, 1e6])
def test_engine_may_take_many_times_what_native_execution_takes(
    engine_s: float, source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    engine, envelope = tmp_path / "damaged.engine", "{}"
    engine.write_bytes(b"")
    segments = [jobs.BuiltSegment(name=name, engine=engine, envelope=envelope, quantized=False) for name in "ab"]
    said: list[Progress] = []

    with listening(said.append):
        jobs.check_segments(SampledModel(path=source, inputs=open_model(source).inputs), segments, engine_s)

    limits = {progress.limit_s for progress in said if progress.done < progress.total}
    assert len(said) == 3
    assert limits == {engine_s} if engine_s else min(limits) > 0


def test_crash_of_the_first_load_is_an_error(
    workshop: Workshop, source: pathlib.Path, in_process: InProcessWorker
) -> None:
    with pytest.raises(WorkerError, match="check_loads crashed"):
        workshop.compile(source, engine="native", worker=CrashingWorker(in_process, "check_loads"))


ODD = "g (float[N] x) => (float[7,11] y) <int64[2] s = {7, 11}> { e = Exp(x) y = Reshape(e, s) }"


def test_model_that_no_generated_input_fits_runs_natively(workshop: Workshop) -> None:
    compiled = workshop.compile(workshop.write(ODD))

    assert {n.code for n in compiled.report.native} == {ReasonCode.UNCHECKED}
    assert "Give inputs that it runs on (--check-inputs IN.npz" in compiled.report.native[0].detail


def test_no_engine_is_built_for_a_model_that_no_generated_input_fits(
    workshop: Workshop, in_process: InProcessWorker, cache: EngineCache, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        workshop.compile(workshop.write(ODD), worker=in_process, cache=cache)

    assert {"build", "check_segments"}.isdisjoint(in_process.calls)
    assert in_process.calls.count("find_sizes") == 1
    assert (
        caplog.text.count("gets no new engine. It could not be compared with native execution: the model runs on no")
        == 2
    )


@pytest.mark.parametrize(
    ("names", "aliases"),
    [
        pytest.param(PLAIN, False, id="symbol"),
        pytest.param(OPTIMUM, False, id="expression"),
        pytest.param(PLAIN, True, id="several-names-of-one-size"),
    ],
)
def test_a_decoder_whose_mask_is_longer_than_its_tokens_gets_engines(
    names: tuple[str, str, str, str], aliases: bool, workshop: Workshop
) -> None:
    compiled = workshop.compile(workshop.write(decoder(names, aliases=aliases)))

    assert compiled.report.segments
    assert ReasonCode.UNCHECKED not in {node.code for node in compiled.report.native}


def test_given_inputs_are_used_even_if_it_was_refused_without_them(workshop: Workshop, cache: EngineCache) -> None:
    source = workshop.write(ODD)
    np.savez(workshop.folder / "samples.npz", x=np.zeros(77, np.float32))
    workshop.compile(source, cache=cache)

    compiled = workshop.compile(source, cache=cache, samples=workshop.folder / "samples.npz")

    assert len(compiled.report.segments) == 1


def test_engines_of_the_cache_are_checked_on_given_inputs_as_well(
    workshop: Workshop, source: pathlib.Path, in_process: InProcessWorker, cache: EngineCache
) -> None:
    np.savez(workshop.folder / "samples.npz", **FEEDS)
    workshop.compile(source, engine="reference", cache=cache, worker=in_process)
    crashing = CrashingWorker(in_process, "check_segments")

    given = workshop.compile(
        source, engine="reference", cache=cache, worker=crashing, samples=workshop.folder / "samples.npz"
    )
    again = workshop.compile(source, engine="reference", cache=cache, worker=crashing)

    assert not given.report.segments
    assert again.report.segments
    assert again.engines_built == 0


def test_missing_file_of_inputs_is_an_error(workshop: Workshop, source: pathlib.Path) -> None:
    with pytest.raises(EngineError, match=r"gone\.npz: there is no such file"):
        workshop.compile(source, samples=workshop.folder / "gone.npz")
