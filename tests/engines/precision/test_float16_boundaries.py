"""Tensors that engines hand on to engines are float16 where both compute in it, and whoever else sees them doesn't."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comparison import AssertSame, RunPlainly
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.backends.protocols import PrecisionSupport
from trtnode.engines.backends.reference import ReferenceBackend
from trtnode.engines.compile.prepare import load_executable
from trtnode.engines.diagnostics.alignment import align
from trtnode.engines.openvino.backend import OpenVinoBackend
from trtnode.engines.precision.options import PrecisionOptions, PrecisionRule
from trtnode.engines.runtime import contexts
from trtnode.engines.runtime.executor import open_executable
from trtnode.partitioner.model.loading import load_model
from workshop import Workshop

SKIP = """g (float[4,64] x) => (float[4,64] y) {
    [first] u = Relu(x)
    [to_native] t = Neg(u)
    [between] n = Softsign(t)
    [second] y = Add(n, u)
}"""
"""``u`` goes from one engine past a native node to another engine; ``t`` and ``n`` are seen by that node."""

FEEDS = {"x": np.random.default_rng(1).normal(size=(4, 64)).astype(np.float32)}
HALF = frozenset({"fp16"})


def compute_in_half(backend: type[Any], monkeypatch: pytest.MonkeyPatch, *, crosses: bool) -> None:
    """Let a backend say that it computes in float16, and whether tensors may cross in it."""
    support = PrecisionSupport(
        effective={"fp32": "fp32", "fp16": "fp16"},
        typed=HALF if backend is ReferenceBackend else frozenset(),
        boundary_precisions=HALF if crosses else frozenset(),
    )
    monkeypatch.setattr(backend, "precision_support", lambda *_: support)


@pytest.fixture
def compile_half(workshop: Workshop, in_process: InProcessWorker) -> Callable[..., pathlib.Path]:
    def compile_it(graph: str = SKIP, *, engine: str = "reference", rules: tuple[str, ...] = ()) -> pathlib.Path:
        precision = PrecisionOptions(precision="fp16", precision_rules=tuple(map(PrecisionRule.parse, rules)))
        path: pathlib.Path = workshop.compile_file(
            workshop.write(graph), engine=engine, native_ops=("Softsign",), worker=in_process, precision=precision
        )
        return path

    return compile_it


@pytest.fixture
def allocated(monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Buffers of the contexts that are opened, by tensor."""
    found: dict[str, np.ndarray] = {}
    allocate = contexts.allocate

    def watch(lifetimes: Mapping[str, Any]) -> dict[str, np.ndarray]:
        buffers = allocate(lifetimes)
        found.update(buffers)
        return buffers

    monkeypatch.setattr(contexts, "allocate", watch)
    return found


def types(path: pathlib.Path) -> dict[str, str]:
    """Return the types in which the engines of a file hold their inputs and outputs."""
    texts = (a.s for node in onnx.load(path).graph.node for a in node.attribute if a.name == "envelope")
    tensors = (t for text in texts for kind in ("inputs", "outputs") for t in json.loads(text)[kind])
    return {t["name"]: t["dtype"] for t in tensors}


def fp16_boundaries(path: pathlib.Path) -> list[dict[str, Any]]:
    properties = {p.key: p.value for p in onnx.load(path).metadata_props}
    found: list[dict[str, Any]] = json.loads(properties["trtnode.report"])["precision"]["carried_in_fp16"]
    return found


def damage(path: pathlib.Path, number: int) -> None:
    """Spoil the engine of a TrtNode, so that its nodes run natively."""
    model = onnx.load(path)
    node = [node for node in model.graph.node if node.op_type == "TrtNode"][number]
    tensor = next(a.t for a in node.attribute if a.name == "engine")
    tensor.raw_data = b"x" + tensor.raw_data[1:]
    onnx.save(model, path)


def test_a_tensor_between_engines_is_float16(
    compile_half: Callable[..., pathlib.Path], allocated: dict[str, np.ndarray], plain: RunPlainly, same: AssertSame
) -> None:
    path = compile_half()

    assert types(path) == {"x": "FLOAT", "u": "FLOAT16", "t": "FLOAT", "n": "FLOAT", "y": "FLOAT"}
    executable = load_executable(path)
    assert {name: str(buffer.dtype) for name, buffer in allocated.items()} == {
        "x": "float32",
        "u": "float16",
        "t": "float32",
        "n": "float32",
        "y": "float32",
    }
    assert allocated["u"].nbytes == 4 * 64 * 2
    same(executable.run(FEEDS), plain(path, FEEDS), 2e-3)


def test_the_report_lists_float16_boundaries_and_what_they_save(compile_half: Callable[..., pathlib.Path]) -> None:
    assert fp16_boundaries(compile_half()) == [
        {"tensor": "u", "from": "segment_0", "to": ["segment_1"], "bytes_saved": 4 * 64 * 2}
    ]


def test_the_file_is_plain_onnx_in_its_own_types(
    compile_half: Callable[..., pathlib.Path], workshop: Workshop, plain: RunPlainly
) -> None:
    path = compile_half()
    model = onnx.load(path)

    onnx.checker.check_model(model, full_check=True)

    assert {v.type.tensor_type.elem_type for v in model.graph.value_info} == {onnx.TensorProto.FLOAT}
    np.testing.assert_array_equal(plain(path, FEEDS)["y"], plain(workshop.write(SKIP), FEEDS)["y"])


@pytest.mark.parametrize("number", [0, 1])
def test_either_side_may_run_natively(
    number: int, compile_half: Callable[..., pathlib.Path], plain: RunPlainly, same: AssertSame
) -> None:
    path = compile_half()
    damage(path, number)
    executable = load_executable(path)

    assert executable.description["segments"] == 1
    same(executable.run(FEEDS), plain(path, FEEDS), 2e-3)


@pytest.mark.parametrize("kept", ["segment_0", "segment_1"])
def test_a_candidate_of_tuning_with_one_of_the_engines_answers(
    kept: str, compile_half: Callable[..., pathlib.Path], plain: RunPlainly, same: AssertSame
) -> None:
    path = compile_half()
    executable = open_executable(load_model(path), path, folder=path.parent, only=[kept])

    same(executable.run(FEEDS), plain(path, FEEDS), 2e-3)


def test_a_tensor_that_somebody_looks_at_is_cast(
    compile_half: Callable[..., pathlib.Path], plain: RunPlainly, same: AssertSame
) -> None:
    path = compile_half()
    model = load_model(path)
    model.graph.outputs.append(next(v for node in model.graph for v in node.outputs if v.name == "u"))

    results = open_executable(model, path, folder=path.parent).run(FEEDS)

    same({"u": results["u"]}, {"u": np.maximum(FEEDS["x"], 0)}, 2e-3)


def test_align_sees_through_float16_between_engines(
    compile_half: Callable[..., pathlib.Path], workshop: Workshop
) -> None:
    found = align(compile_half(), workshop.write(SKIP), FEEDS)

    assert {value.name for value in found.values} == {"u", "t", "n", "y"}
    assert found.first is None


@pytest.mark.parametrize(
    ("graph", "rules"),
    [
        pytest.param(SKIP.replace("(float[4,64] y)", "(float[4,64] y, float[4,64] u)"), (), id="graph-output"),
        pytest.param(SKIP.replace("y = Add(n, u)", "m = Softsign(u) y = Sum(n, u, m)"), (), id="native-reader"),
        pytest.param(SKIP, ("node=first:fp32", "node=to_native:fp16"), id="producer-in-float32"),
        pytest.param(SKIP, ("node=second:fp32",), id="reader-in-float32"),
        pytest.param(SKIP.replace("Relu", "Sigmoid").replace("Add(n, u)", "Pow(u, n)"), (), id="exact-reader"),
    ],
)
def test_what_others_see_or_compute_exactly_stays_float32(
    graph: str, rules: tuple[str, ...], compile_half: Callable[..., pathlib.Path], plain: RunPlainly, same: AssertSame
) -> None:
    path = compile_half(graph, rules=rules)

    assert types(path)["u"] == "FLOAT"
    assert fp16_boundaries(path) == []
    same(load_executable(path).run(FEEDS), plain(path, FEEDS), 2e-3)


def test_tensors_without_a_fixed_shape_are_float16_as_well(
    compile_half: Callable[..., pathlib.Path], plain: RunPlainly, same: AssertSame
) -> None:
    path = compile_half(SKIP.replace("[4,64]", "[N,64]"))
    executable = load_executable(path)

    assert types(path)["u"] == "FLOAT16"
    assert [one["bytes_saved"] for one in fp16_boundaries(path)] == [None]
    for rows in (4, 1, 3):
        feeds = {"x": FEEDS["x"][:rows]}
        same(executable.run(feeds), plain(path, feeds), 2e-3)
    damage(path, 1)
    same(load_executable(path).run(FEEDS), plain(path, FEEDS), 2e-3)


def test_bfloat16_and_float32_cross_as_before(workshop: Workshop, in_process: InProcessWorker) -> None:
    for asked in ("fp32", "bf16"):
        path = workshop.compile_file(
            workshop.write(SKIP), native_ops=("Softsign",), precision=PrecisionOptions(precision=asked)
        )
        assert set(types(path).values()) == {"FLOAT"}


def test_a_second_compilation_finds_engines_with_float16_boundaries(
    workshop: Workshop, in_process: InProcessWorker, cache: EngineCache
) -> None:
    source = workshop.write(SKIP)
    first, second, exact = (
        workshop.compile(
            source,
            engine="reference",
            native_ops=("Softsign",),
            worker=in_process,
            precision=PrecisionOptions(precision=asked),
            cache=cache,
        )
        for asked in ("fp16", "fp16", "fp32")
    )

    assert (first.engines_built, second.engines_built, exact.engines_built) == (4, 0, 0)
    assert second.report.as_json()["precision"] == first.report.as_json()["precision"]
    assert first.model.graph.node == second.model.graph.node


def test_an_engine_of_another_type_than_its_node_is_refused(compile_half: Callable[..., pathlib.Path]) -> None:
    path = compile_half()
    model = onnx.load(path)
    (value,) = (v for v in model.graph.value_info if v.name == "u")
    value.type.tensor_type.elem_type = onnx.TensorProto.INT32
    onnx.save(model, path)

    executable = open_executable(load_model(path), compile_half(), folder=path.parent)

    assert "it has 'u' as float16[4, 64], its node has int32[4, 64]." in executable.description["rejected"][0]


# OpenVINO


def test_openvino_passes_float16_only_where_it_computes_in_it() -> None:
    support = OpenVinoBackend().precision_support()

    assert support.boundary_precisions == (HALF if support.effective["fp16"] == "fp16" else frozenset())


def test_openvino_takes_and_gives_float16(
    compile_half: Callable[..., pathlib.Path],
    allocated: dict[str, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    compute_in_half(OpenVinoBackend, monkeypatch, crosses=True)
    path = compile_half(engine="openvino")

    assert {name for name, kind in types(path).items() if kind == "FLOAT16"} == {"u"}
    executable = load_executable(path)
    assert allocated["u"].dtype == np.float16
    for _ in range(2):
        same(executable.run(FEEDS), plain(path, FEEDS), 2e-3)
    damage(path, 0)
    same(load_executable(path).run(FEEDS), plain(path, FEEDS), 2e-3)


# Any network


@st.composite
def networks(draw: st.DrawFn) -> str:
    """Layers of engine and native nodes, each of which reads up to two of all that was computed before."""
    lines, names = [], ["x"]
    for index in range(draw(st.integers(3, 9))):
        op = draw(st.sampled_from(["Relu", "Neg", "Softsign", "Tanh", "Add", "Mul", "Softmax"]))
        arity = 2 if op in ("Add", "Mul") else 1
        inputs = [draw(st.sampled_from(names[-4:])) for _ in range(arity)]
        names.append(f"v{index}")
        lines.append(f"v{index} = {op}({', '.join(inputs)})")
    outputs = ", ".join(f"float[4,64] {name}" for name in {names[-1], draw(st.sampled_from(names[1:]))})
    return f"g (float[4,64] x) => ({outputs}) {{ {' '.join(lines)} }}"


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=networks())
def test_float16_between_engines_changes_no_result(
    graph: str, compile_half: Callable[..., pathlib.Path], workshop: Workshop
) -> None:
    results = []
    for allowed in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            compute_in_half(ReferenceBackend, patch, crosses=allowed)
            path = compile_half(graph)
            results.append(load_executable(path).run(FEEDS))

    with_half, without = results
    assert list(with_half) == list(without)
    for name, value in with_half.items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, without[name])
