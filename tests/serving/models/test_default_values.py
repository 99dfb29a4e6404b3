"""A served model with an input that has a default, which its engine holds as a constant."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import tritonclient.grpc as triton
from prometheus_client import generate_latest

from tests.serving.conftest import Starter, given

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[4] x, float[4] w) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { a = Relu(x) y = Add(a, w) }"""


def tensor(name: str, *values: float) -> triton.InferInput:
    return given(name, np.array(values, np.float32))


def test_a_request_may_replace_the_default_and_is_counted_as_a_native_answer(
    start: Starter, tmp_path: pathlib.Path
) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    running = start(f"- {{name: m, path: {tmp_path / 'm.onnx'}, engine: openvino}}\n")

    def answer(*inputs: triton.InferInput) -> list[float]:
        values: list[float] = running.client.infer("m", [tensor("x", -1, 0, 1, 2), *inputs]).as_numpy("y").tolist()
        return values

    def native_answers() -> str:
        lines = generate_latest(running.server.metrics.registry).decode().splitlines()
        return " ".join(line for line in lines if line.startswith("trtnode_native_fallback_total"))

    assert answer() == [1, 2, 4, 6]
    assert answer(tensor("w", 1, 2, 3, 4)) == [1, 2, 4, 6]
    assert "replaced_initializer" not in native_answers()
    assert answer(tensor("w", 5, 0, 0, 1)) == [5, 0, 1, 3]
    assert 'trtnode_native_fallback_total{model="m",reason="replaced_initializer",version="1"} 1.0' in native_answers()
