"""Sparse engines: whole models, and the choice of ``auto``."""

from __future__ import annotations

import hashlib
import pathlib
import weakref
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from comparison import RunPlainly
from edited_models import attribute, edited, with_field
from model_texts import parse
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.envelope import Envelope
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.compile import sparse_choice
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import BackendMissingError, EngineRejectedError
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.runtime.options import RunOptions
from trtnode.engines.sparse import library
from trtnode.engines.sparse.library import missing_reason
from trtnode.engines.sparse.survey import survey
from trtnode.engines.tuning.compilation_record import SparseChoice
from trtnode.partitioner.compiled.stripping import make_engines_whole
from trtnode.partitioner.graph.view import Graph
from workshop import Workshop

compiled_kernels = pytest.mark.skipif(missing_reason() is not None, reason=missing_reason() or "")


def network(zeros: float) -> onnx.ModelProto:
    """Two convolutions in blocks of four, an addition around one of them, and a product."""
    rng = np.random.default_rng(0)

    def blocks(rows: int, columns: int) -> np.ndarray:
        kept = np.repeat(rng.random((rows // 4, columns)) >= zeros, 4, axis=0)
        return (rng.standard_normal((rows, columns)) * kept / np.sqrt(columns)).astype(np.float32)

    weights = {
        "w": blocks(64, 27).reshape(64, 3, 3, 3),
        "v": blocks(64, 64).reshape(64, 64, 1, 1),
        "u": np.ascontiguousarray(blocks(12, 64).T),
    }
    text = """g (float[N,3,8,8] x) => (float[N,12] y) <float[64,3,3,3] w, float[64,64,1,1] v, float[64,12] u> {
        a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) c = Conv(b, v) d = Add(b, c) e = GlobalAveragePool(d)
        f = Flatten(e) y = MatMul(f, u)
    }"""
    return parse(text, **weights)


@compiled_kernels
def test_a_pruned_model_is_one_engine_with_the_answers_of_native_execution(
    workshop: Workshop, plain: RunPlainly
) -> None:
    source = workshop.write(network(0.9))
    compiled = workshop.compile(source, engine="sparse")
    path = workshop.folder / "sparse.onnx"
    compiled.save(path)

    assert len(compiled.report.segments) == 1
    assert not compiled.report.native
    executable = open_model(path)
    for rows in (1, 3, 1):
        feeds = {"x": np.random.default_rng(rows).standard_normal((rows, 3, 8, 8)).astype(np.float32)}
        np.testing.assert_allclose(executable.run(feeds)["y"], plain(source, feeds)["y"], rtol=1e-4, atol=1e-5)


@compiled_kernels
@pytest.mark.parametrize("side", [8, 160], ids=["small", "large"])
def test_a_request_may_lie_anywhere_and_is_not_kept(workshop: Workshop, plain: RunPlainly, side: int) -> None:
    model = network(0.9)
    shape = model.graph.input[0].type.tensor_type.shape
    for dimension, size in zip(shape.dim, (1, 3, side, side), strict=True):
        dimension.dim_value = size
    source = workshop.write(model)
    executable = open_model(workshop.compile_file(source, engine="sparse"))
    image = np.random.default_rng(0).standard_normal((1, 3, side, side)).astype(np.float32)
    swapped = np.ascontiguousarray(image.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    in_message = np.frombuffer(b"\0" + image.tobytes(), np.uint8)[1:].view(np.float32).reshape(image.shape)

    answers = [executable.run({"x": x})["y"] for x in (image, swapped, in_message, image)]

    expected = plain(source, {"x": image})["y"]
    for answer in answers:
        np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-5)
    request = weakref.ref(swapped)
    del swapped
    assert request() is None


@compiled_kernels
def test_only_values_that_are_not_zero_are_in_the_engine(workshop: Workshop) -> None:
    sizes = {
        zeros: workshop.compile(workshop.write(network(zeros)), engine="sparse").engine_bytes for zeros in (0.0, 0.9)
    }

    assert sizes[0.9] < sizes[0.0] / 2


@compiled_kernels
def test_a_file_for_this_machine_still_runs_in_plain_onnxruntime(workshop: Workshop, plain: RunPlainly) -> None:
    source = workshop.write(network(0.9))
    path = workshop.compile_file(source, engine="sparse")
    feeds = {"x": np.ones((2, 3, 8, 8), np.float32)}

    np.testing.assert_allclose(plain(path, feeds)["y"], plain(source, feeds)["y"], rtol=1e-4, atol=1e-5)


@compiled_kernels
def test_an_engine_that_would_answer_with_a_file_is_left_out_loudly(
    workshop: Workshop,
    plain: RunPlainly,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever sends a compiled file can hash it anew; no signature is asked of engines of ``sparse``."""
    (tmp_path / "token").write_bytes(bytes(64 * 4))
    monkeypatch.chdir(tmp_path)

    def with_data_outside(proto: onnx.ModelProto) -> None:
        make_engines_whole(proto)
        trtnode = proto.graph.node[0]
        tensor = attribute(trtnode, "engine").t
        engine = onnx.ModelProto.FromString(tensor.raw_data)
        weight = engine.graph.initializer[0]
        onnx.external_data_helper.set_external_data(weight, "token")
        weight.ClearField("raw_data")
        tensor.raw_data = engine.SerializeToString()
        tensor.dims[:] = [len(tensor.raw_data)]
        with_field(engine_sha256=hashlib.sha256(tensor.raw_data).hexdigest())(proto)

    source = workshop.write(network(0.9))
    crafted = edited(workshop.compile_file(source, engine="sparse"), with_data_outside)
    feeds = {"x": np.ones((1, 3, 8, 8), np.float32)}

    answer = open_model(crafted).run(feeds)["y"]

    np.testing.assert_allclose(answer, plain(source, feeds)["y"], rtol=1e-4, atol=1e-5)
    assert "has its data in file 'token', and an engine holds all of its own. Compile the model again." in caplog.text


@compiled_kernels
@pytest.mark.parametrize(
    ("native_ops", "shares_cores", "leaves_cores"),
    [
        pytest.param([], False, False, id="the-only-stage-of-the-only-model"),
        pytest.param(["Flatten"], False, True, id="beside-a-native-stage"),
        pytest.param([], True, True, id="beside-other-models"),
    ],
)
def test_threads_wait_busily_only_where_nothing_else_computes(
    workshop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
    native_ops: list[str],
    shares_cores: bool,
    leaves_cores: bool,
) -> None:
    path = workshop.compile_file(workshop.write(network(0.9)), engine="sparse", native_ops=native_ops)
    opened: list[bool] = []

    def open_session(model: onnx.ModelProto, **options: Any) -> NativeSession:
        opened.append(options["shares_cores"])
        return NativeSession(model, **options)

    monkeypatch.setattr("trtnode.engines.sparse.backend.NativeSession", open_session)
    open_model(path, run=RunOptions(shares_cores=shares_cores))

    assert set(opened) == {leaves_cores}


@compiled_kernels
@pytest.mark.parametrize(("gains", "engine"), [(True, "sparse"), (False, "openvino")])
def test_auto_takes_the_faster_of_sparse_and_dense_and_remembers_it(
    workshop: Workshop,
    choosing_engines: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    gains: bool,
    engine: str,
) -> None:
    source, cache, measured = workshop.write(network(0.9)), EngineCache(tmp_path / "cache", 1 << 30), []
    monkeypatch.setattr("trtnode.engines.tuning.tuner.Tuner.find_slow_nodes", lambda *_: {})
    monkeypatch.setattr("trtnode.engines.tuning.quick_models.CALL_MS", 0.0)
    choice = SparseChoice(gains=gains, figures=None)
    monkeypatch.setattr(sparse_choice, "_measured", lambda *_: measured.append(1) or choice)

    chosen = [workshop.compile(source, engine="auto", cache=cache).engine for _ in range(2)]

    assert chosen == [engine, engine]
    assert measured == [1]


@compiled_kernels
def test_auto_leaves_dense_weights_and_a_user_who_says_no_alone(
    workshop: Workshop, choosing_engines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trtnode.engines.tuning.tuner.Tuner.find_slow_nodes", lambda *_: {})
    monkeypatch.setattr(sparse_choice, "_measured", lambda *_: pytest.fail("nothing was to be measured"))

    assert workshop.compile(workshop.write(network(0.2)), engine="auto").engine != "sparse"
    assert workshop.compile(workshop.write(network(0.9)), engine="auto", sparse_weights=False).engine != "sparse"


def test_without_kernels_the_engine_says_how_to_get_them(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "kernels.so")

    with pytest.raises(BackendMissingError, match="kernels were not compiled when this package was installed"):
        workshop.compile(workshop.write(network(0.9)), engine="sparse")


@compiled_kernels
def test_kernels_compiled_from_other_sources_are_refused(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "VERSION", "of tomorrow")

    with pytest.raises(
        BackendMissingError, match=r"has kernels of version \d+, .* needs version of tomorrow\. Install"
    ):
        workshop.compile(workshop.write(network(0.9)), engine="sparse")


def test_a_library_that_tells_no_version_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    damaged = tmp_path / "kernels.so"
    damaged.write_text("no library")

    for other in (pathlib.Path(np.random.mtrand.__file__), damaged):
        monkeypatch.setattr(library, "LIBRARY", other)

        assert "has kernels of version unknown" in (missing_reason() or "")


@compiled_kernels
def test_damaged_engine_bytes_are_refused_in_a_sentence() -> None:
    backend = get_backend("sparse")
    with pytest.raises(EngineRejectedError, match="the sparse engine"):
        backend.load(b"\x08\x07garbage", Envelope.__new__(Envelope))


def test_the_survey_tells_zeros_blocks_and_what_they_could_gain() -> None:
    graph = Graph.of(ir.from_proto(network(0.9)))
    told = {layer.weights: layer for layer in survey(graph)}

    square = told[(64, 64, 1, 1)]
    assert square.zeros == pytest.approx(0.9, abs=0.03)
    assert square.stored[4] == pytest.approx(1 - square.zeros)
    assert square.stored[8] > square.stored[4]
    assert square.gain > 4


def test_the_survey_finds_two_of_four_and_leaves_dense_layers_out() -> None:
    weights = np.ones((32, 64), np.float32)
    assert survey(Graph.of(ir.from_proto(product(weights)))) == []
    weights[:, ::2] = 0
    (layer,) = survey(Graph.of(ir.from_proto(product(weights))))
    assert layer.two_of_four
    assert layer.zeros == 0.5


def lstm(zeros: float) -> onnx.ModelProto:
    """An LSTM of 32 units, with zeros in blocks of four among the weights of its state alone."""
    rng = np.random.default_rng(0)
    kept = np.repeat(rng.random((32, 32)) >= zeros, 4, axis=0)
    weights = {"w": rng.standard_normal((1, 128, 16)), "r": (rng.standard_normal((128, 32)) * kept / 6)[None]}
    text = """g (float[T,N,16] x) => (float[T,1,N,32] y) { y = LSTM<hidden_size=32>(x, w, r) }"""
    return parse(text, **{name: array.astype(np.float32) for name, array in weights.items()})


def test_the_survey_tells_the_zeros_of_recurrent_layers() -> None:
    (layer,) = survey(Graph.of(ir.from_proto(lstm(0.9))))

    assert layer.op_type == "LSTM"
    assert layer.weights == (1, 128, 32)
    assert layer.gain > 4


@compiled_kernels
def test_a_pruned_lstm_answers_as_native_execution_on_sequences_of_every_length(
    workshop: Workshop, plain: RunPlainly
) -> None:
    source = workshop.write(lstm(0.9))
    compiled = workshop.compile(source, engine="sparse")
    path = workshop.folder / "sparse.onnx"
    compiled.save(path)

    assert len(compiled.report.segments) == 1
    executable = open_model(path)
    for steps, rows in ((7, 1), (1, 1), (4, 3)):
        feeds = {"x": np.random.default_rng(steps).standard_normal((steps, rows, 16)).astype(np.float32)}
        np.testing.assert_allclose(executable.run(feeds)["y"], plain(source, feeds)["y"], rtol=1e-4, atol=1e-5)


def product(weights: np.ndarray) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, weights.shape[1]])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, weights.shape[0]])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
