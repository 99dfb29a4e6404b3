"""Engines of OpenVINO: what they are built from, what they refuse, and what they write where."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import sys
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from comparison import RunPlainly
from model_texts import parse
from trtnode.engines.artifact.envelope import Envelope, current_platform
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.protocols import LoadOptions
from trtnode.engines.backends.registry import get_backend, resolve_engine
from trtnode.engines.errors import BackendMissingError, BuildError, EngineRejectedError, ExecutionError, OutOfRangeError
from trtnode.engines.openvino.backend import OpenVinoBackend
from trtnode.engines.openvino.cpu_plugin import WITHOUT_DOT_PRODUCTS
from trtnode.engines.openvino.engine import OpenVinoEngine
from trtnode.engines.process_memory import resident_bytes
from trtnode.partitioner.graph.view import Graph, TensorSpec
from trtnode.partitioner.model.loading import load_model
from workshop import Workshop

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def backend() -> OpenVinoBackend:
    found = get_backend("openvino")
    assert isinstance(found, OpenVinoBackend)
    return found


def built(backend: OpenVinoBackend, model: pathlib.Path) -> tuple[bytes, Envelope]:
    """Build a file and describe the result."""
    engine = backend.build(model, BuildOptions())
    graph = Graph.of(load_model(model))
    envelope = Envelope(
        backend=backend.name,
        backend_version=backend.version(),
        platform=current_platform(),
        device=backend.device(),
        precision_asked="fp32",
        precision_effective="fp32",
        options=backend.build_properties(BuildOptions()),
        inputs=tuple(TensorSpec.of(v) for v in graph.inputs),
        outputs=tuple(TensorSpec.of(v) for v in graph.outputs),
        engine_sha256=hashlib.sha256(engine).hexdigest(),
        segment_sha256="",
        builder_version="",
    )
    return engine, envelope


@pytest.fixture(scope="module")
def exp(backend: OpenVinoBackend, shared_workshop: Workshop) -> tuple[bytes, Envelope]:
    return built(backend, shared_workshop.write("g (float[N,4] x) => (float[N,4] y) { y = Exp(x) }"))


@pytest.fixture
def engine(backend: OpenVinoBackend, exp: tuple[bytes, Envelope]) -> OpenVinoEngine:
    return backend.load(*exp)


def test_processor_is_what_openvino_compares_at_import(backend: OpenVinoBackend, exp: tuple[bytes, Envelope]) -> None:
    instruction_set = backend.device().features.removesuffix(WITHOUT_DOT_PRODUCTS)

    assert instruction_set != "unknown"
    assert f"isa={instruction_set}".encode() in exp[0][:512]


def test_openvino_does_not_phone_home() -> None:
    assert sys.modules["openvino_telemetry"] is None


def test_threads_are_limited_where_asked(backend: OpenVinoBackend, exp: tuple[bytes, Envelope]) -> None:
    assert backend.load(*exp, LoadOptions(threads=1))._compiled.get_property("INFERENCE_NUM_THREADS") == 1


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="there is one core")
@pytest.mark.parametrize(("threads", "instances", "streams"), [(1, 2, 2), (1, 1, 1), (None, 2, 1), (10**6, 2, 1)])
def test_instances_run_at_the_same_time_where_there_are_cores_for_their_threads(
    backend: OpenVinoBackend, exp: tuple[bytes, Envelope], threads: int | None, instances: int, streams: int
) -> None:
    loaded = backend.load(*exp, LoadOptions(threads=threads, instances=instances))

    assert loaded._compiled.get_property("NUM_STREAMS") == streams


@pytest.mark.parametrize("threads", [1, None])
def test_threads_may_run_on_any_core_that_other_processes_leave(
    backend: OpenVinoBackend, exp: tuple[bytes, Envelope], threads: int | None
) -> None:
    assert not backend.load(*exp, LoadOptions(threads=threads))._compiled.get_property("ENABLE_CPU_PINNING")


def test_bound_input_is_read_at_each_run(engine: OpenVinoEngine) -> None:
    x, y = X.copy(), np.zeros_like(X)
    engine.bind([x], [y])
    engine.run()

    x[:] = 2
    engine.run()

    np.testing.assert_allclose(y, np.exp(2), rtol=1e-5)


def test_engine_keeps_its_bytes_alive(backend: OpenVinoBackend, exp: tuple[bytes, Envelope]) -> None:
    content = bytearray(exp[0])
    engine = backend.load(bytes(content), exp[1])

    content[:] = bytes(len(content))

    engine.bind([X], None)
    np.testing.assert_allclose(engine.run()[0], np.exp(X), rtol=1e-5)


def test_buffer_that_does_not_fit_is_an_error(engine: OpenVinoEngine) -> None:
    with pytest.raises(ExecutionError, match=r"OpenVINO: .*incompatible"):
        engine.bind([np.zeros((3, 5), np.float32)], None)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**63 - 1, -(2**63)])
def test_int64_beyond_32_bits_is_out_of_range(value: int, backend: OpenVinoBackend, workshop: Workshop) -> None:
    engine = backend.load(
        *built(backend, workshop.write("g (int64[2] x) => (int64[2] y) <int64[2] i = {1,0}> { y = Gather(x, i) }"))
    )
    engine.bind([np.array([1, value])], None)

    with pytest.raises(OutOfRangeError, match="does not fit into 32 bits") as caught:
        engine.run()

    assert caught.value.reason == "int64_range"


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        pytest.param(
            "g (float[3,3] x) => (float y) { y = Det(x) }",
            "No conversion rule found for operations: Det",
            id="operator",
        ),
        pytest.param(
            "g (float[4,6] x) => (float[1,2] y) <int64[1,2] i = {1,2}> { y = GatherElements(x, i) }",
            r"Shapes \[4,6\] and \[1,2\] are not consistent",
            id="reason-behind-the-headings",
        ),
    ],
)
def test_model_that_openvino_refuses_is_an_error(
    graph: str, message: str, backend: OpenVinoBackend, workshop: Workshop
) -> None:
    with pytest.raises(BuildError, match=message):
        backend.build(workshop.write(graph), BuildOptions())


def test_file_that_is_no_model_is_an_error(backend: OpenVinoBackend, tmp_path: pathlib.Path) -> None:
    (tmp_path / "no.onnx").write_bytes(b"no model")

    with pytest.raises(BuildError, match=r"."):
        backend.build(tmp_path / "no.onnx", BuildOptions())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: b"garbage" * 100, id="garbage"),
        pytest.param(lambda data: data[: len(data) // 2], id="cut-short"),
        pytest.param(lambda data: data.replace(b"isa=", b"isa=X"), id="other-processor"),
        pytest.param(lambda data: data.replace(b"ov=20", b"ov=19"), id="other-version"),
    ],
)
def test_bytes_that_openvino_can_not_import_are_an_error(
    change: Any, backend: OpenVinoBackend, exp: tuple[bytes, Envelope]
) -> None:
    with pytest.raises(EngineRejectedError, match=r"The engine of OpenVINO can't be used: .+"):
        backend.load(change(exp[0]), exp[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"inputs": ()}, "has 1 inputs, its envelope 0", id="count"),
        pytest.param(
            {"outputs": (TensorSpec(name="y", dtype=ir.DataType.INT32, shape=(1,)),)},
            "output 'y' is float32, not INT32",
            id="type",
        ),
        pytest.param(
            {"inputs": (TensorSpec(name="x", dtype=None, shape=(1,)),)}, "input 'x' is float32, not None", id="no-type"
        ),
        pytest.param({"options": {"NO_SUCH_PROPERTY": "1"}}, "NO_SUCH_PROPERTY", id="unknown-property"),
    ],
)
def test_engine_that_is_not_what_its_envelope_says_is_refused(
    changes: dict[str, Any], message: str, backend: OpenVinoBackend, exp: tuple[bytes, Envelope]
) -> None:
    with pytest.raises(EngineRejectedError, match=message):
        backend.load(exp[0], dataclasses.replace(exp[1], **changes))


def test_input_that_openvino_drops_is_noticed(workshop: Workshop) -> None:
    """CastLike reads only the type of its second input; the compiled model has no such input."""
    compiled = workshop.compile(
        workshop.write("g (float[3] x, float[1] w) => (float[3] y, float[3] z) { y = Exp(x) z = CastLike(y, w) }")
    )
    ops = [op for s in compiled.report.segments for n in s.nodes for op in (n.op_type,)]

    assert ops == ["Exp"]


def test_engines_hold_their_weights(backend: OpenVinoBackend, tmp_path: pathlib.Path, plain: RunPlainly) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    proto = parse("g (float[2,64] x) => (float[2,64] y) { y = MatMul(x, w) }", w=weights)
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)

    content, envelope = built(backend, tmp_path / "m.onnx")
    (tmp_path / "w.bin").unlink()
    engine = backend.load(content, envelope)

    x = np.ones((2, 64), np.float32)
    engine.bind([x], None)
    np.testing.assert_allclose(engine.run()[0], x @ weights, rtol=1e-4, atol=1e-4)


def test_a_release_that_is_too_old_is_left_alone(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trtnode.engines.openvino.backend.installed_release", lambda: "2025.2.0")
    graph = "g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }"
    path = workshop.write(parse(graph))

    assert [resolve_engine("auto") == "openvino" for _ in range(2)] == [False, False]
    assert caplog.text.count("OpenVINO 2025.2.0 is too old: 2026.4 or newer is needed") == 1
    with pytest.raises(BackendMissingError, match=r"OpenVINO 2025\.2\.0 is too old"):
        workshop.compile(path, engine="openvino")


def test_without_the_library_the_reason_says_which_release_is_needed(
    backend: OpenVinoBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trtnode.engines.openvino.backend.installed_release", lambda: None)

    assert str(backend.unavailable_reason()).startswith("OpenVINO is not installed here: 2026.4 or newer is needed")


def test_memory_of_an_engine_does_not_grow_with_every_shape(backend: OpenVinoBackend, tmp_path: pathlib.Path) -> None:
    layers = "".join(f"m{i} = MatMul(s{i}, w{i}) s{i + 1} = Softmax<axis=1>(m{i}) " for i in range(4))
    graph = f"g (float[N,T,64] s0) => (float[N,T,64] y) {{ {layers} y = Relu(s4) }}"
    weights = np.random.default_rng(0).standard_normal((4, 64, 64)).astype(np.float32)
    proto = parse(graph, **{f"w{i}": one for i, one in enumerate(weights)})
    onnx.save(proto, tmp_path / "m.onnx")
    engine = backend.load(*built(backend, tmp_path / "m.onnx"), LoadOptions(threads=1))

    def grown(lengths: range) -> int:
        before = resident_bytes()
        for length in lengths:
            engine.bind([np.zeros((1, length, 64), np.float32)], None)
            engine.run()
        return resident_bytes() - before

    grown(range(1, 512))  # fills what is kept

    assert min(grown(range(first, first + 160)) for first in (512, 672, 832)) < 4 << 20  # other tests left threads
