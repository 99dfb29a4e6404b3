"""Model-local functions that stay calls, and weights behind symbolic links."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import onnxruntime

from model_texts import parse
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model


def test_a_function_of_another_opset_runs_natively_beside_engines(
    worker: SubprocessWorker, tmp_path: pathlib.Path
) -> None:
    text = """<ir_version: 10, opset_import: ["": 17, "f": 1]> g (float[2, 3] x) => (float[3, 2] y) {
        a = f.old(x)
        y = Relu(a)
    }
    <domain: "f", opset_import: ["": 11]> old (v) => (w) { w = Transpose(v) }"""
    source, compiled = tmp_path / "model.onnx", tmp_path / "compiled.onnx"
    onnx.save(onnx.parser.parse_model(text), source)

    compile_model(source, CompileOptions(engine="openvino"), worker=worker).save(compiled)

    executable = open_model(compiled)
    x = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    assert executable.facts.segments == 1
    np.testing.assert_array_equal(executable.run({"x": x})["y"], np.maximum(x.T, 0))


def test_linked_weights_are_read_for_a_model_that_stays_native(
    worker: SubprocessWorker, tmp_path: pathlib.Path
) -> None:
    store, folder = tmp_path / "store", tmp_path / "model"
    store.mkdir()
    folder.mkdir()
    model = parse(
        """g (float[4] x) => (float[4] y)
        <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) }""",
        opset=17,
    )
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), "w"))
    onnx.save(model, store / "a.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (folder / "a.onnx").symlink_to(store / "a.onnx")
    (folder / "w.bin").symlink_to(store / "w.bin")

    compiled = compile_model(folder / "a.onnx", CompileOptions(engine="native"), worker=worker)
    compiled.save(tmp_path / "out.onnx")

    x = np.ones(4, np.float32)
    (y,) = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": x})
    np.testing.assert_array_equal(y, x + np.arange(4))
