"""Native sessions: every model as plain ONNX Runtime runs it, and messages that people can read."""

from __future__ import annotations

import pathlib
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from trtnode.engines.errors import ExecutionError, ModelLoadError
from trtnode.engines.onnxruntime.session import NativeSession, as_array, as_ort_value, clean_message, runs_as_array
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model import mapped_weights
from workshop import Workshop

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def exp(shared_workshop: Workshop) -> NativeSession:
    return NativeSession(
        shared_workshop.write("g (float[N,4] x) => (float[N,4] y, float[N,4] z) { y = Exp(x) z = Neg(x) }")
    )


def test_types_are_what_onnxruntime_infers(workshop: Workshop) -> None:
    session = NativeSession(
        workshop.write(
            "g (float[N,4] x, string[2] s) => (float[N,4] y, string[2] t, seq(float[N,4]) q) {"
            " y = Exp(x) t = Identity(s) q = SequenceConstruct(x) }"
        )
    )

    types = session.value_types()

    assert types["y"] == ("tensor(float)", ["N", 4])
    assert types["t"] == ("tensor(string)", [2])
    assert types["q"][0] == "seq(tensor(float))"


@pytest.mark.parametrize("packs", [True, False])
def test_a_brief_session_finds_weights_that_stay_in_their_file_behind_a_link(
    packs: bool, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_weights, "LARGE_FILE_BYTES", 1)
    monkeypatch.setattr(mapped_weights, "LARGE_TENSOR_BYTES", 64)
    weights = np.linspace(-1, 1, 256, dtype=np.float32).reshape(4, 64)
    w = onnx.numpy_helper.from_array(weights, "w")
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17]> g (float[N,4] x) => (float[N,64] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(w)
    file = workshop.write(model)
    link = workshop.folder / "elsewhere" / "link.onnx"
    link.parent.mkdir()
    link.symlink_to(file)

    (y,) = NativeSession(link, brief=True, packs=packs).run({"x": X})

    np.testing.assert_allclose(y, X @ weights, rtol=1e-5, atol=1e-6)


def test_run_gives_the_wanted_outputs_in_the_wanted_order(exp: NativeSession) -> None:
    z, y = exp.run({"x": X}, ["z", "y"])

    np.testing.assert_allclose(y, np.exp(X), rtol=1e-5)
    assert np.array_equal(z, -X)


def test_tensors_are_handed_on_without_copies(exp: NativeSession) -> None:
    y, z = exp.run_tensors({"x": X})

    (again, _) = exp.run_tensors({"x": z})

    assert not isinstance(y, np.ndarray)
    np.testing.assert_allclose(as_array(again), np.exp(-X), rtol=1e-5)


def test_a_scalar_of_a_type_that_numpy_lacks_stays_a_scalar(workshop: Workshop) -> None:
    session = NativeSession(workshop.write("g (bfloat16 x) => (bfloat16 y) { y = Identity(x) }"))

    (result,) = session.run({"x": np.array(2, ml_dtypes.bfloat16)})

    assert result.shape == ()


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_small_floats_survive_the_way_through(kind: Any, workshop: Workshop) -> None:
    name = {"bfloat16": "bfloat16", "float8_e4m3fn": "float8e4m3fn", "float8_e5m2": "float8e5m2"}[kind.__name__]
    session = NativeSession(workshop.write(f"g ({name}[N,2] x) => ({name}[N,2] y) {{ y = Identity(x) }}"))
    values = np.arange(400).reshape(100, 4).astype(kind)

    for strided in (values[:, :2], values[::2, ::2], values[::-1, 1:3]):
        (result,) = session.run({"x": strided})

        assert result.dtype == values.dtype
        assert np.array_equal(result.astype(np.float32), strided.astype(np.float32))


@pytest.mark.parametrize("shape", [(3, 3), (4,), (0, 2), ()], ids=str)
@pytest.mark.parametrize(("name", "low", "high"), [("int4", -8, 7), ("uint4", 0, 15), ("int2", -2, 1), ("uint2", 0, 3)])
def test_integers_of_less_than_a_byte_are_packed_and_unpacked(
    name: str, low: int, high: int, shape: tuple[int, ...], workshop: Workshop
) -> None:
    number, kind = int(ir.DataType[name.upper()]), getattr(ml_dtypes, name)
    model = (
        f"g ({name}[] x, float[] f) => (float[] up, {name}[] down) {{ up = Cast<to=1>(x) down = Cast<to={number}>(f) }}"
    )
    declared = model.replace("[]", str(list(shape)).replace(" ", ""))
    session = NativeSession(workshop.write(declared, opset=25, ir=13))
    values = np.random.default_rng(0).integers(low, high, shape, endpoint=True)

    up, down = session.run({"x": values.astype(kind), "f": values.astype(np.float32)})

    assert np.array_equal(up, values)
    assert down.dtype == kind
    assert np.array_equal(down.astype(int), values)


def test_small_float_is_wrapped_without_a_copy() -> None:
    values = np.arange(4).astype(ml_dtypes.bfloat16)

    wrapped = as_ort_value(values)
    values[:] = 7

    assert as_array(wrapped).astype(np.float32).tolist() == [7] * 4


def test_bound_session_writes_where_it_is_told(exp: NativeSession) -> None:
    x, y, z = X.copy(), np.zeros_like(X), np.zeros_like(X)
    bound = exp.bind({"x": x, "y": y, "z": z})

    bound.run()
    x[:] = 2
    other = np.zeros_like(X)
    bound.write_to({"y": other})
    bound.run()

    np.testing.assert_allclose(y, np.exp(X), rtol=1e-5)
    np.testing.assert_allclose(other, np.exp(2), rtol=1e-5)
    assert (z == -2).all()
    assert bound.outputs == ["y", "z"]


def test_bound_buffer_of_another_shape_is_an_error(workshop: Workshop) -> None:
    session = NativeSession(
        workshop.write("g (float[N] x) => (float[M,2] y) <int64[2] s = {-1,2}> { y = Reshape(x, s) }")
    )
    bound = session.bind({"x": np.zeros(5, np.float32), "y": np.zeros((2, 2), np.float32)})

    with pytest.raises(ExecutionError, match=r"onnxruntime: .*Reshape"):
        bound.run()


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        pytest.param({}, "x", id="missing"),
        pytest.param({"x": X[0]}, "x", id="rank"),
        pytest.param({"x": X.astype(np.float64)}, "double", id="type"),
    ],
)
def test_failing_run_is_an_error(feeds: dict[str, Any], message: str, exp: NativeSession) -> None:
    with pytest.raises(ExecutionError, match=f"onnxruntime: .*{message}"):
        exp.run(feeds)
    with pytest.raises(ExecutionError, match=r"onnxruntime: ."):
        exp.run_tensors(feeds)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="missing"),
        pytest.param(b"no model", id="no-model"),
        pytest.param(b"", id="empty"),
    ],
)
def test_file_that_onnxruntime_can_not_load_is_an_error(content: bytes | None, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ModelLoadError, match="the model: onnxruntime can't load this model: "):
        NativeSession(path, name="the model")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("[ONNXRuntimeError] : 1 : FAIL : it is broken", "it is broken"),
        ("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : a\n  b \n\nStacktrace:\nframe", "a b"),
        (
            "/onnxruntime_src/core/graph.cc:123 void onnxruntime::Graph::f(int) const Node is bad",
            "Node is bad",
        ),
        ("", "RuntimeError"),
    ],
)
def test_messages_say_what_not_where(raw: str, expected: str) -> None:
    assert clean_message(RuntimeError(raw)) == expected


def test_messages_have_an_end() -> None:
    assert len(clean_message(RuntimeError("x" * 100_000))) == 500


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (ir.DataType.FLOAT, True),
        (ir.DataType.BOOL, True),
        (ir.DataType.BFLOAT16, False),
        (ir.DataType.STRING, False),
        (None, False),
    ],
)
def test_shared_memory_is_for_types_that_numpy_knows(dtype: ir.DataType | None, expected: bool) -> None:
    assert runs_as_array(TensorSpec(name="x", dtype=dtype, shape=(1,))) == expected


@pytest.mark.parametrize("path", [True, False])
def test_weights_whose_scales_have_no_zero_points_run(path: bool, workshop: Workshop) -> None:
    """On some processors, the option that keeps 8-bit sums exact would give them a zero point of another rank."""
    numbers = np.arange(1024).reshape(32, 32) % 100
    scales = np.linspace(0.5, 1, 32, dtype=np.float32)
    source = workshop.write(f"""g (float[N,32] x) => (float[N,32] y) <
        int8[32,32] w = {{{", ".join(map(str, numbers.ravel()))}}}, float[32] s = {{{", ".join(map(str, scales))}}}> {{
        v = DequantizeLinear<axis = 1>(w, s) y = Add(x, v) }}""")

    session = NativeSession(source if path else onnx.load(source))

    x = np.ones((32, 32), np.float32)
    np.testing.assert_allclose(session.run({"x": x})[0], x + numbers * scales)
