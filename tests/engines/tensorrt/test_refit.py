"""Engines without weights, on a simulated TensorRT: they get the weights of the nodes that they replace."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from simulated_tensorrt import Plan
from streams import ANYONE, InProcessWorker, Loaded, Machine, numbers
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.checksum import stamp_checksum
from trtnode.engines.artifact.envelope import Envelope
from trtnode.engines.artifact.sidecars import engine_bytes
from trtnode.engines.backends.build_options import TensorRtOptions
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.prepare import load_executable, prepare_model
from trtnode.engines.errors import EngineError
from trtnode.engines.precision.options import Calibration, PrecisionRule
from trtnode.engines.tensorrt import refit
from trtnode.engines.tensorrt.labelling.parser import make_logger
from trtnode.partitioner.compiled.trtnode import embedded_engine, is_trtnode
from trtnode.partitioner.cut.options import PartitionOptions

STRIPPED = TensorRtOptions(strip_plan=True)
SIZE = 64

Build = Callable[..., pathlib.Path]


@pytest.fixture
def source(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two matrix products, 16 kB of weights each."""
    text = f"g (float[2,{SIZE}] x) => (float[2,{SIZE}] y) {{ a = MatMul(x, v) b = Softsign(a) y = MatMul(b, w) }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    for seed, name in enumerate("vw"):
        model.graph.initializer.append(weights(name, numbers(SIZE, SIZE, seed=seed) / SIZE))
    path = tmp_path / "source.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture
def build(machine: Machine, source: pathlib.Path, tmp_path: pathlib.Path) -> Build:
    """Compiles the model, with engines without weights unless told otherwise."""

    def compiled(cache: EngineCache | None = None, **options: Any) -> pathlib.Path:
        wishes = CompileOptions(**{"engine": "tensorrt", "tensorrt": STRIPPED, **options})
        path = tmp_path / "compiled.onnx"
        compile_model(source, wishes, cache=cache, worker=InProcessWorker()).save(path)  # type: ignore[arg-type]
        return path

    return compiled


def weights(name: str, values: np.ndarray) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(values.astype(np.float32), name)


def engines_of(compiled: pathlib.Path) -> list[tuple[Plan, Envelope]]:
    """Plan and envelope of each engine."""
    found = [embedded_engine(op) for op in ir.load(compiled).graph if is_trtnode(op)]
    engines = [bytes(engine_bytes("s", one, compiled.parent)) for one in found]
    return [(Plan.from_bytes(e), Envelope.from_json(c.envelope, "s")) for e, c in zip(engines, found, strict=True)]


def change(compiled: pathlib.Path, edit: Callable[[onnx.ModelProto], object]) -> None:
    model = onnx.load(compiled)
    edit(model)
    stamp_checksum(model, compiled)
    onnx.save(model, compiled)


def answers(compiled: pathlib.Path, source: pathlib.Path) -> Loaded:
    """The model, after it has answered as ONNX Runtime does."""
    model = Loaded(load_executable(compiled, trust=ANYONE), onnxruntime.InferenceSession(source))
    model.check(x=numbers(2, SIZE))
    return model


def give_weights(machine: Machine, plan: Plan, origin: onnx.ModelProto) -> None:
    trt = machine.tensorrt
    with machine.streams.device:
        refit.refit(trt, trt.Runtime(make_logger(trt)).deserialize_cuda_engine(plan.to_bytes()), origin)


def test_weights_stand_once_in_the_file(build: Build, source: pathlib.Path) -> None:
    compiled = build()

    ((plan, envelope),) = engines_of(compiled)
    assert sorted(plan.stripped) == ["v", "w"]
    assert {"STRIP_PLAN", "REFIT_IDENTICAL"} <= set(plan.flags)
    assert envelope.is_stripped
    assert compiled.stat().st_size < source.stat().st_size + SIZE * SIZE * 4


@pytest.mark.parametrize("limit", [16, 1 << 20], ids=["weights-by-address", "weights-inside-the-model"])
def test_simulated_engine_without_weights_answers_like_the_source(
    limit: int, build: Build, source: pathlib.Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refit, "HANDED_OVER_BYTES", limit)
    compiled = build()
    enqueued = machine.simulation.enqueues

    model = answers(compiled, source)

    assert model.fallbacks == []
    assert machine.simulation.enqueues > enqueued


def test_simulated_segments_get_the_weights_of_their_own_nodes(build: Build, source: pathlib.Path) -> None:
    compiled = build(partition=PartitionOptions(native_ops=("Softsign",)))

    assert [sorted(plan.stripped) for plan, _ in engines_of(compiled)] == [["v"], ["w"]]
    assert answers(compiled, source).executable.description["segments"] == 2


@pytest.mark.parametrize("rules", [(), (PrecisionRule(op="Softsign", precision="fp32"),)], ids=["all", "but-one-node"])
def test_simulated_engine_gets_weights_in_the_precision_that_it_was_built_in(
    rules: tuple[PrecisionRule, ...], build: Build, source: pathlib.Path
) -> None:
    compiled = build(precision="fp16", precision_rules=rules)

    ((plan, envelope),) = engines_of(compiled)
    assert sorted(plan.stripped) == ["v__fp16", "w__fp16"]
    assert envelope.precision_effective == "fp16"
    executable = load_executable(compiled, trust=ANYONE)
    assert executable.description["rejected"] == []
    (exact,) = onnxruntime.InferenceSession(source).run(None, {"x": numbers(2, SIZE)})
    np.testing.assert_allclose(executable.run({"x": numbers(2, SIZE)})["y"], exact, atol=1e-2)


def test_simulated_engines_that_hand_a_tensor_on_in_half_get_their_weights(
    build: Build, source: pathlib.Path, machine: Machine
) -> None:
    change(source, lambda model: model.graph.ClearField("node"))
    text = "a = MatMul(x, v) b = Neg(a) c = Softsign(b) d = Add(c, a) y = MatMul(d, w)"
    nodes = onnx.parser.parse_graph(f"g () => () {{ {text} }}").node
    change(source, lambda model: model.graph.node.extend(nodes))

    compiled = build(precision="fp16", partition=PartitionOptions(native_ops=("Softsign",)))

    (_, first), (_, second) = engines_of(compiled)
    half = ir.DataType.FLOAT16
    assert half in {spec.dtype for spec in first.outputs} & {spec.dtype for spec in second.inputs}
    executable = load_executable(compiled, trust=ANYONE)
    assert executable.description["rejected"] == []
    (exact,) = onnxruntime.InferenceSession(source).run(None, {"x": numbers(2, SIZE)})
    np.testing.assert_allclose(executable.run({"x": numbers(2, SIZE)})["y"], exact, atol=1e-2)


def test_engine_whose_weights_follow_from_ranges_holds_them_and_the_log_says_so(
    build: Build, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    np.savez(tmp_path / "samples.npz", x=np.stack([numbers(2, SIZE, seed=seed) for seed in range(5)]))
    calibration = Calibration(data=str(tmp_path / "samples.npz"), allow_few_samples=True)

    compiled = build(precision="int8", calibration=calibration)

    ((plan, envelope),) = engines_of(compiled)
    assert (envelope.precision_effective, envelope.is_stripped, plan.stripped) == ("int8", False, {})
    assert "The engine of segment_0 holds its weights: they follow from ranges" in caplog.text
    assert load_executable(compiled, trust=ANYONE).description["rejected"] == []


def test_simulated_engine_from_the_cache_is_given_its_weights(
    build: Build, source: pathlib.Path, machine: Machine, cache: EngineCache
) -> None:
    build(cache)
    built = machine.simulation.builds

    compiled = build(cache)

    assert (built, machine.simulation.builds) == (1, 1)
    assert answers(compiled, source).fallbacks == []


def test_engine_with_weights_is_another_one_in_the_cache(build: Build, machine: Machine, cache: EngineCache) -> None:
    build(cache)

    compiled = build(cache, tensorrt=TensorRtOptions())

    ((plan, envelope),) = engines_of(compiled)
    assert (machine.simulation.builds, envelope.is_stripped, plan.stripped) == (2, False, {})


def test_edited_weights_never_reach_an_engine(build: Build) -> None:
    compiled = build()
    change(compiled, lambda model: model.graph.initializer[0].CopyFrom(weights("v", np.zeros((SIZE, SIZE)))))

    executable = load_executable(compiled, trust=ANYONE)

    assert "were changed since it was built" in executable.description["rejected"][0]
    np.testing.assert_array_equal(executable.run({"x": numbers(2, SIZE)})["y"], np.zeros((2, SIZE)))


def test_simulated_refit_that_fails_leaves_the_nodes_native_and_says_why(
    build: Build, source: pathlib.Path, machine: Machine
) -> None:
    compiled = build()
    machine.simulation.faults.refit_fails = True

    description = answers(compiled, source).executable.description

    assert description["segments"] == 0
    assert "it can't be given its weights: Refitting failed: out of memory." in description["rejected"][0]


def test_simulated_refit_that_fails_while_compiling_makes_the_nodes_native(build: Build, machine: Machine) -> None:
    machine.simulation.faults.refit_fails = True

    compiled = build()

    assert engines_of(compiled) == []
    (report,) = (p.value for p in onnx.load(compiled).metadata_props if p.key == "trtnode.report")
    assert "it can't be given its weights" in report


def test_server_builds_anew_what_can_not_be_given_its_weights(
    build: Build, machine: Machine, cache: EngineCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = build(cache)
    machine.simulation.faults.refit_fails = True
    monkeypatch.setattr("trtnode.engines.build.context.SubprocessWorker", lambda: Inside())

    executable = prepare_model(compiled, CompileOptions(engine="tensorrt"), cache=cache)

    assert "it can't be given its weights" in executable.description["rejected"][0]
    assert (executable.description["segments"], executable.description["engines_built"]) == (1, 1)


class Inside(InProcessWorker):
    """A worker that is none."""

    def __enter__(self) -> Inside:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        pytest.param(lambda model: model.graph.initializer.pop(), r"The model lacks weights: \['w'\]", id="missing"),
        pytest.param(
            lambda model: model.graph.initializer[0].CopyFrom(weights("v", numbers(3))),
            "Failed to set the weights of v",
            id="of-another-shape",
        ),
        pytest.param(
            lambda model: model.graph.initializer[0].CopyFrom(weights("v", numbers(SIZE, SIZE, seed=9))),
            r"Weights are not those that the engine was built with: \['v'\]",
            id="others",
        ),
    ],
)
def test_simulated_engine_takes_no_other_weights(
    edit: Callable[[onnx.ModelProto], object], said: str, build: Build, source: pathlib.Path, machine: Machine
) -> None:
    ((plan, _),) = engines_of(build())
    origin = onnx.load(source)
    edit(origin)

    with pytest.raises(EngineError, match=said):
        give_weights(machine, plan, origin)


def test_simulated_engine_that_was_built_with_weights_takes_none(
    build: Build, source: pathlib.Path, machine: Machine
) -> None:
    ((plan, _),) = engines_of(build(tensorrt=TensorRtOptions()))

    with pytest.raises(EngineError, match="was not built to be refitted"):
        give_weights(machine, plan, onnx.load(source))


def test_weights_that_were_left_out_of_the_file_are_missed(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    compiled = build()
    change(compiled, lambda model: model.functions.pop())

    with pytest.raises(EngineError):
        load_executable(compiled, trust=ANYONE)

    assert "it holds no weights, and the nodes that have them were left out of the file" in caplog.text


def test_fallback_that_engines_take_their_weights_from_can_not_be_left_out(
    machine: Machine, source: pathlib.Path
) -> None:
    wishes = CompileOptions(engine="tensorrt", tensorrt=STRIPPED)
    compiled = compile_model(source, wishes, worker=InProcessWorker())  # type: ignore[arg-type]

    assert compiled.engines_stripped == 1
    with pytest.raises(EngineError, match="Engines without weights need those of the model"):
        compiled.without_fallback()


def test_signature_covers_that_an_engine_has_no_weights(build: Build) -> None:
    ((_, envelope),) = engines_of(build())

    options = {name: value for name, value in envelope.options.items() if name != "STRIP_PLAN"}

    assert envelope.signed_bytes() != dataclasses.replace(envelope, options=options).signed_bytes()
