"""A served model whose initializers were inputs, and are constants now."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Starter, given

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[4] x, float[4] w) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { a = Relu(x) y = Add(a, w) }"""


def tensor(name: str, *values: float) -> triton.InferInput:
    return given(name, np.array(values, np.float32))


@pytest.mark.parametrize("engine", ["openvino", "native"])
def test_a_request_that_sends_a_constant_is_refused(engine: str, start: Starter, tmp_path: pathlib.Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    options = f"engine: {engine}, partition: {{freeze_initializers: true}}"
    client = start(f"- {{name: m, path: {tmp_path / 'm.onnx'}, {options}}}\n").client

    answer = client.infer("m", [tensor("x", -1, 0, 1, 2)])
    with pytest.raises(InferenceServerException, match="the request has 2 inputs, but model 'm' has 'x'") as caught:
        client.infer("m", [tensor("x", 0, 0, 0, 0), tensor("w", 0, 0, 0, 0)])

    assert answer.as_numpy("y").tolist() == [1, 2, 4, 6]
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert [one.name for one in client.get_model_metadata("m").inputs] == ["x"]
