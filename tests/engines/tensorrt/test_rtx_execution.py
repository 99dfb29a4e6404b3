"""Engines of TensorRT for RTX on a GPU: their first load, and the kernels that are compiled there.

The GPU and the library's runtime are simulated; the parser is the real one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from arrays import floats
from model_texts import parse
from simulated_cuda import SimulatedGpu
from simulated_tensorrt import Plan, Simulation
from stand_in_workers import CrashingWorker, InProcessWorker
from streams import between
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.checksum import stamp_checksum
from trtnode.engines.artifact.envelope import Envelope
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.backends.build_options import BuildOptions, TensorRtOptions
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.runtime.executor import Executable
from trtnode.engines.runtime.options import RunOptions
from trtnode.engines.tensorrt import backend
from trtnode.partitioner.cut.options import PartitionOptions
from workshop import prepare_and_open

pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")

CHAIN = "g (float[2,4] x) => (float[2,4] y) { a = Relu(x) b = Softsign(a) y = Exp(b) }"
ROWS = "g (float[N,4] x) => (float[N,4] y) { a = Relu(x) y = Exp(a) }"
ANYONE = Trust.of((), ("tensorrt-rtx",))
RELEASE = "1.7.1.116"

Build = Callable[..., pathlib.Path]


def simulated_gpu(capability: tuple[int, int] = (8, 9)) -> SimulatedGpu:
    return SimulatedGpu(compute_capability=capability)


@pytest.fixture
def rtx(simulate: Callable[..., Simulation]) -> Simulation:
    """A machine with an RTX 40 GPU and TensorRT for RTX, both simulated."""
    return simulate(version=RELEASE, gpu=simulated_gpu())


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> InProcessWorker:
    """The worker of first comparisons, in this process."""
    worker = InProcessWorker()
    replace_worker(monkeypatch, worker)
    return worker


def replace_worker(monkeypatch: pytest.MonkeyPatch, worker: InProcessWorker | CrashingWorker) -> None:
    monkeypatch.setattr(
        "trtnode.engines.compile.first_comparison.SubprocessWorker", lambda: contextlib.nullcontext(worker)
    )


@pytest.fixture
def build(rtx: Simulation, jobs: InProcessWorker, tmp_path: pathlib.Path) -> Build:
    """Compiles a graph as on a machine without a GPU: nobody runs its engines."""

    def compiled(graph: str, *targets: str, native_ops: tuple[str, ...] = (), **options: Any) -> pathlib.Path:
        source, path = tmp_path / "source.onnx", tmp_path / "compiled.onnx"
        onnx.save(parse(graph), source)
        asked = CompileOptions(
            engine="tensorrt-rtx",
            tensorrt=TensorRtOptions(targets=targets),
            partition=PartitionOptions(native_ops=native_ops),
            **options,
        )
        with without_gpu():
            compile_model(source, asked, worker=InProcessWorker()).save(path)  # type: ignore[arg-type]
        return path

    return compiled


@contextlib.contextmanager
def without_gpu() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "find_gpu", lambda: None)
        yield


def answers(executable: Executable, compiled: pathlib.Path, x: np.ndarray) -> list[str]:
    """Run, compare with ONNX Runtime, and return the reasons of native answers."""
    reasons: list[str] = []
    executable.on_fallback = reasons.append
    (expected,) = onnxruntime.InferenceSession(compiled.with_name("source.onnx")).run(None, {"x": x})
    np.testing.assert_allclose(executable.run({"x": x})["y"], expected, rtol=1e-5)
    return reasons


@pytest.mark.parametrize("targets", [(), ("sm86", "sm89")], ids=["portable", "two-targets"])
@pytest.mark.parametrize("native_ops", [(), ("Softsign",)], ids=["one-engine", "native-between"])
def test_simulated_engine_runs_on_the_streams_that_tensorrt_has(
    targets: tuple[str, ...], native_ops: tuple[str, ...], build: Build, rtx: Simulation
) -> None:
    compiled = build(CHAIN, *targets, native_ops=native_ops)

    executable = open_model(compiled, run=RunOptions(trust=ANYONE))
    rtx.enqueues = 0

    assert answers(executable, compiled, floats(2, 4)) == []
    assert rtx.enqueues == executable.facts.segments == len(native_ops) + 1


def test_simulated_engine_is_compared_at_its_first_load_alone(
    build: Build, jobs: InProcessWorker, cache: EngineCache
) -> None:
    compiled = build(CHAIN)

    loads = [open_model(compiled, run=RunOptions(trust=ANYONE), cache=cache).facts for _ in range(2)]

    assert jobs.calls.count("check_segments") == 1
    assert [(facts.segments, facts.unchecked, facts.rejected) for facts in loads] == [(1, 0, ())] * 2


def test_simulated_engine_that_computes_something_else_is_never_used(
    build: Build, rtx: Simulation, cache: EngineCache, jobs: InProcessWorker, caplog: pytest.LogCaptureFixture
) -> None:
    compiled = build(CHAIN)
    replace_engine(compiled, build_other(CHAIN.replace("Exp", "Tanh"), compiled))

    executables = [open_model(compiled, run=RunOptions(trust=ANYONE), cache=cache) for _ in range(2)]

    for executable in executables:
        (rejected,) = executable.facts.rejected
        assert "its results are not trusted: 'y' is not what native execution gives: 8 of 8 elements differ" in rejected
    assert jobs.calls.count("check_segments") == 1
    assert caplog.text.count("Its nodes run natively; compile the model again on this machine.") == 2
    x = floats(2, 4)
    (expected,) = onnxruntime.InferenceSession(compiled.with_name("source.onnx")).run(None, {"x": x})
    assert np.array_equal(executables[1].run({"x": x})["y"], expected)


def build_other(graph: str, compiled: pathlib.Path) -> bytes:
    """The engine of another graph."""
    source = compiled.with_name("other.onnx")
    onnx.save(parse(graph), source)
    return get_backend("tensorrt-rtx").build(source, BuildOptions())


def replace_engine(compiled: pathlib.Path, engine: bytes) -> None:
    """Put other engine bytes into a file, with an envelope for them."""
    proto = onnx.load(compiled)
    attributes = {a.name: a for a in proto.graph.node[0].attribute}
    envelope = Envelope.from_json(attributes["envelope"].s.decode(), "s")
    envelope = dataclasses.replace(envelope, engine_sha256=hashlib.sha256(engine).hexdigest())
    attributes["envelope"].s = envelope.to_json().encode()
    attributes["engine"].t.raw_data = engine
    attributes["engine"].t.dims[:] = [len(engine)]
    stamp_checksum(proto, compiled)
    onnx.save(proto, compiled)


def test_comparison_that_crashes_costs_the_engine_alone_and_is_tried_again(
    build: Build, cache: EngineCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = build(CHAIN)
    worker = CrashingWorker(InProcessWorker(), "check_segments")
    replace_worker(monkeypatch, worker)

    crashed = open_model(compiled, run=RunOptions(trust=ANYONE), cache=cache)
    worker.functions.clear()
    recovered = open_model(compiled, run=RunOptions(trust=ANYONE), cache=cache)

    assert "The process that ran check_segments crashed" in crashed.facts.rejected[0]
    assert (crashed.facts.segments, recovered.facts.segments) == (0, 1)


def test_simulated_engine_of_varying_shape_is_compared_on_a_shape_that_it_was_built_for(build: Build) -> None:
    compiled = build(ROWS, shapes=({"x": between((50, 4), (60, 4))},))

    executable = open_model(compiled, run=RunOptions(trust=ANYONE))

    assert (executable.facts.segments, executable.facts.rejected) == (1, ())
    assert answers(executable, compiled, floats(55, 4)) == []


def test_simulated_engines_of_less_precision_are_compared_in_direction(build: Build) -> None:
    carried = "a = Exp(x) b = Neg(a) c = Softsign(b) y = Add(c, a)"
    graph = f"g (float[2,4] x) => (float[2,4] y) {{ {carried} }}"

    compiled = build(graph, native_ops=("Softsign",), precision="fp16")
    facts = open_model(compiled, run=RunOptions(trust=ANYONE)).facts

    assert (facts.precision, facts.segments) == ("fp16", 2)
    assert (facts.unchecked, facts.rejected) == (0, ())


def test_engine_without_nodes_to_compare_with_is_used_and_called_unchecked(
    build: Build, jobs: InProcessWorker, tmp_path: pathlib.Path
) -> None:
    build(CHAIN)
    with without_gpu():
        asked = CompileOptions(engine="tensorrt-rtx")
        whole = compile_model(tmp_path / "source.onnx", asked, worker=InProcessWorker())  # type: ignore[arg-type]
    whole.without_fallback().save(tmp_path / "alone.onnx")

    facts = open_model(tmp_path / "alone.onnx", run=RunOptions(trust=ANYONE)).facts

    assert (facts.segments, facts.unchecked, jobs.calls) == (1, 1, [])


def test_report_says_no_longer_that_an_engine_is_unchecked_once_it_was_compared(
    build: Build, tmp_path: pathlib.Path
) -> None:
    compiled = build(CHAIN)
    cache = EngineCache(tmp_path / "cache", 10**9, trust=ANYONE)

    executable = prepare_and_open(compiled, CompileOptions(engine="tensorrt-rtx"), cache)

    (stored,) = (json.loads(p.value) for p in onnx.load(compiled).metadata_props if p.key == "trtnode.report")
    assert stored["checked"] is False
    assert "checked" not in executable.facts.report


def test_kernels_are_compiled_once_a_machine(
    build: Build, rtx: Simulation, cache: EngineCache, simulate: Callable[..., Simulation]
) -> None:
    compiled = build(CHAIN)
    first = open_model(compiled, run=RunOptions(trust=ANYONE), cache=cache)
    first.keep_kernels()
    compiled_at_first = rtx.compiled_kernels

    again = simulate(version=RELEASE, gpu=simulated_gpu())
    executable = open_model(compiled, run=RunOptions(trust=ANYONE), cache=cache)

    assert compiled_at_first > 0
    assert again.compiled_kernels == 0
    assert answers(executable, compiled, floats(2, 4)) == []


def test_damaged_kernels_are_ignored_with_one_line(
    build: Build, rtx: Simulation, cache: EngineCache, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    compiled = build(CHAIN)
    open_model(compiled, run=RunOptions(trust=ANYONE), cache=cache).keep_kernels()
    (kernels,) = (tmp_path / "cache").glob("*.engine")
    kernels.write_bytes(b"damaged")
    rtx.compiled_kernels = 0
    caplog.clear()

    executable = open_model(compiled, run=RunOptions(trust=ANYONE), cache=cache)

    (line,) = caplog.messages
    assert line.endswith("ignoring a damaged cache entry (its sha256 differs)")
    assert rtx.compiled_kernels > 0
    assert answers(executable, compiled, floats(2, 4)) == []


def test_kernels_count_towards_the_size_of_the_cache(build: Build, tmp_path: pathlib.Path) -> None:
    small = EngineCache(tmp_path / "cache", 10)

    open_model(build(CHAIN), run=RunOptions(trust=ANYONE), cache=small).keep_kernels()

    assert [*(tmp_path / "cache").glob("*.engine")] == []


def test_simulated_library_says_why_it_takes_no_engine(build: Build) -> None:
    compiled = build(CHAIN)
    plan = Plan.from_bytes(
        next(a.t.raw_data for a in onnx.load(compiled).graph.node[0].attribute if a.name == "engine")
    )
    plan.settings = {**plan.settings, "targets": ["sm120"]}
    replace_engine(compiled, plan.to_bytes())

    (rejected,) = open_model(compiled, run=RunOptions(trust=ANYONE)).facts.rejected

    assert rejected.endswith("(UNSUPPORTED_CC)")


@pytest.mark.parametrize(
    ("machine", "remedy"),
    [
        pytest.param(
            {"version": "1.8.0.1"},
            "install release 1.7.1.116+simulated of tensorrt-rtx, or compile the model again with release 1.8.0.1",
            id="release",
        ),
        pytest.param({"gpu": simulated_gpu((12, 0))}, "compile the model again with --targets sm120.", id="target"),
        pytest.param(
            {"gpu": simulated_gpu((9, 0))}, "with --engine tensorrt, as there is no target sm90.", id="no-target"
        ),
    ],
)
def test_warning_about_an_engine_for_other_machines_says_what_to_do(
    machine: dict[str, Any],
    remedy: str,
    build: Build,
    simulate: Callable[..., Simulation],
    caplog: pytest.LogCaptureFixture,
) -> None:
    compiled = build(CHAIN, "sm86", "sm89", native_ops=("Softsign",))
    simulate(**{"version": RELEASE, "gpu": simulated_gpu(), **machine})

    executable = open_model(compiled, run=RunOptions(trust=ANYONE))

    (warning,) = (r.message for r in caplog.records if r.levelname == "WARNING")
    assert remedy in warning
    assert executable.run({"x": floats(2, 4)})["y"].shape == (2, 4)
