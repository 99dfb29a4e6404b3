"""Models with nodes that only onnx.reference has, behind a real server: allowed, bounded, and counted."""

from __future__ import annotations

import pathlib
import urllib.request
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton
from onnx.reference import ReferenceEvaluator
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Eventually, Running, Starter
from trtnode.serving.cli.program import main

IMPORTS = '<ir_version: 10, opset_import: ["": 22, "ai.onnx.preview": 1]>'

ATTENTION = f"""{IMPORTS} g (float[1,1,L,8] q) => (float[1,1,L,8] y) {{
    a = ai.onnx.preview.FlexAttention (q, q, q) y = Neg (a)
}}"""
"""Its memory grows with the square of L."""

BETWEEN_ENGINES = f"""{IMPORTS} g (float[1,1,4,8] x, float[8,8] w) => (float[1,1,4,8] y) {{
    q = MatMul (x, w) a = ai.onnx.preview.FlexAttention (q, x, x) r = Relu (a) y = Add (r, x)
}}"""

ROIS = f"""{IMPORTS} g (float[1,1,8,8] x, float[1,4] rois, int64[1] batch) => (float[1,1,1,1] y) {{
    y = RoiAlign <output_height=1, output_width=1, sampling_ratio=0> (x, rois, batch)
}}"""
"""Its time grows with the size of the region."""

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    for name, text in (("attention", ATTENTION), ("rois", ROIS)):
        onnx.save(onnx.parser.parse_model(text), tmp_path / f"{name}.onnx")
    return tmp_path


def infer(running: Running, model: str, **arrays: np.ndarray) -> np.ndarray:
    inputs = []
    for name, array in arrays.items():
        inputs.append(triton.InferInput(name, array.shape, "INT64" if array.dtype == np.int64 else "FP32"))
        inputs[-1].set_data_from_numpy(array)
    return running.client.infer(model, inputs).as_numpy("y")


def attend(running: Running, length: int) -> np.ndarray:
    return infer(running, "attention", q=np.resize(X, (1, 1, length, 8)))


def pool(running: Running, size: float) -> np.ndarray:
    rois = np.array([[0, 0, size, size]], np.float32)
    return infer(running, "rois", x=X, rois=rois, batch=np.zeros(1, np.int64))


def test_such_a_model_is_served_where_it_may_and_every_run_is_bounded(folder: pathlib.Path, start: Starter) -> None:
    running = start(
        "- {name: attention, path: attention.onnx, reference: true}\n"
        "- {name: rois, path: rois.onnx, engine: native, reference: true}\n",
        server="limits: {model_memory_mb: 8192, reference_timeout_s: 3}",
    )
    attended, pooled = attend(running, 4), pool(running, 4)

    with pytest.raises(InferenceServerException, match="more memory than models may use") as caught:
        attend(running, 100_000)
    assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
    with pytest.raises(InferenceServerException, match=r"longer than 3 s.*reference_timeout_s") as caught:
        pool(running, 1e9)
    assert caught.value.status() == "StatusCode.INTERNAL"

    assert np.array_equal(attend(running, 4), attended)
    assert np.array_equal(pool(running, 4), pooled)
    expected = ReferenceEvaluator(str(folder / "attention.onnx")).run(None, {"q": np.resize(X, (1, 1, 4, 8))})
    np.testing.assert_allclose(attended, expected[0], rtol=1e-5, atol=1e-6)
    with urllib.request.urlopen(f"{running.http}/metrics") as answer:
        metrics = answer.read().decode()
    assert 'trtnode_model_reference_nodes{model="attention",version="1"} 1.0' in metrics


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("text", [ATTENTION, BETWEEN_ENGINES], ids=["attention", "between-engines"])
def test_such_a_model_is_refused_with_the_key_that_allows_it(
    folder: pathlib.Path, start: Starter, eventually: Eventually, text: str, compiled: bool
) -> None:
    path = folder / "attention.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    if compiled:
        assert main(["compile", str(path), "-o", str(folder / "compiled.onnx"), "--no-cache"]) == 0
        path = folder / "compiled.onnx"
    running = start(f"- {{name: attention, path: {path.name}, required: false}}\n")

    def entry() -> Any:
        return running.client.get_model_repository_index().models[0]

    eventually(lambda: entry().state == "UNAVAILABLE")
    assert "1 node (FlexAttention)" in entry().reason
    assert "`reference: true`" in entry().reason
