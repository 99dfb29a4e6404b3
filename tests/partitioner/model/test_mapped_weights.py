"""Large weights stay in their file: models are read and written around them."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trtnode
from trtnode.partitioner.compiled.trtnode import embed_engines
from trtnode.partitioner.errors import ModelFileError
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model import mapped_weights
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.model.mapped_weights import MappedTensor, serialized

DTYPES = (np.float32, np.float16, np.int8, np.int64, bool)


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_weights, "LARGE_FILE_BYTES", 1)
    monkeypatch.setattr(mapped_weights, "LARGE_TENSOR_BYTES", 64)


def dense(rows: int = 64, columns: int = 32) -> onnx.ModelProto:
    """Return a model of ``y = x @ w + b``."""
    weights = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["h"]), onnx.helper.make_node("Add", ["h", "b"], ["y"])]
    inputs = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", rows])]
    outputs = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", columns])]
    held = [onnx.numpy_helper.from_array(weights, "w"), onnx.numpy_helper.from_array(weights[0], "b")]
    graph = onnx.helper.make_graph(nodes, "dense", inputs, outputs, held)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


arrays = st.builds(
    lambda dtype, shape, seed: np.random.default_rng(seed).integers(0, 2, shape).astype(dtype),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    st.integers(0, 9),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(weights=st.lists(arrays, max_size=6))
def test_a_file_read_around_its_weights_has_the_same_weights(weights: list[np.ndarray], tmp_path: pathlib.Path) -> None:
    model = dense()
    model.graph.initializer.extend(onnx.numpy_helper.from_array(w, f"extra{n}") for n, w in enumerate(weights))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)

    held = load_model(path).graph.initializers

    assert list(held) == [tensor.name for tensor in model.graph.initializer]
    for tensor in model.graph.initializer:
        expected, value = onnx.numpy_helper.to_array(tensor), held[tensor.name].const_value
        assert value is not None
        np.testing.assert_array_equal(value.numpy(), expected)
        assert value.tobytes() == expected.tobytes()
        assert isinstance(value, MappedTensor) == (expected.nbytes >= 64)


@pytest.mark.parametrize("outside", [False, True])
def test_a_compiled_file_has_its_weights_and_engines_in_it(tmp_path: pathlib.Path, outside: bool) -> None:
    source, target = tmp_path / "model.onnx", tmp_path / "compiled.onnx"
    onnx.save(dense(), source, save_as_external_data=outside, size_threshold=64)
    x = np.ones((2, 64), np.float32)
    (expected,) = onnxruntime.InferenceSession(source).run(None, {"x": x})

    trtnode.compile(source, target, all_engines=True)
    for file in (source, *tmp_path.glob("*.data")):
        file.unlink(missing_ok=True)

    np.testing.assert_allclose(onnxruntime.InferenceSession(target).run(None, {"x": x})[0], expected, rtol=1e-4)
    np.testing.assert_allclose(trtnode.load(target).run({"x": x})["y"], expected, rtol=1e-4)


def test_a_file_of_many_tensors_takes_one_descriptor(tmp_path: pathlib.Path) -> None:
    model, path = dense(), tmp_path / "model.onnx"
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.ones(32, np.float32), f"w{n}") for n in range(300))
    onnx.save(model, path)
    held = Graph.of(load_model(path))
    before = len(list(pathlib.Path("/proc/self/fd").iterdir()))

    pieces = serialized(embed_engines(held, (), {}, outside=True))

    assert len(list(pathlib.Path("/proc/self/fd").iterdir())) <= before
    written = onnx.ModelProto.FromString(b"".join(pieces))
    assert [t.raw_data for t in written.graph.initializer] == [t.raw_data for t in model.graph.initializer]


def test_a_file_that_is_cut_short_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(dense().SerializeToString()[:-100])

    with pytest.raises(ModelFileError, match="not an ONNX file, or cut short"):
        load_model(path)


def test_weights_of_another_size_than_declared_are_refused(tmp_path: pathlib.Path) -> None:
    model, path = dense(), tmp_path / "model.onnx"
    model.graph.initializer[0].dims[0] = 65
    onnx.save(model, path)

    with pytest.raises(ModelFileError, match="initializer 'w' declares the shape"):
        load_model(path)


def test_a_model_is_explained_without_a_copy_of_its_weights(tmp_path: pathlib.Path) -> None:
    path, limit = tmp_path / "model.onnx", 300 << 20
    onnx.save(dense(8192, 8192), path)  # 256 MiB
    limited = f"import resource, runpy; resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit})); "
    program = f"{limited} runpy.run_module('trtnode', run_name='__main__')"

    ended = subprocess.run(
        [sys.executable, "-c", program, "explain", str(path), "--no-cache"], capture_output=True, text=True
    )

    assert ended.returncode == 0, ended.stderr
    assert "2 run in 1 segment" in ended.stdout
