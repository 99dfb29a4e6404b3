"""A served model whose native kernel would end the process for a batch of none."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Running, Starter

MODEL = """<ir_version: 10, opset_import: ["": 20]>
g (float[n,b,3] x) => (float[n,1,b,2] y) <int64[3] ws = {1, 8, 3}, int64[3] rs = {1, 8, 2}> {
    w = ConstantOfShape (ws)
    r = ConstantOfShape (rs)
    y = LSTM <hidden_size = 2> (x, w, r)
}"""


def infer(running: Running, *sizes: int) -> np.ndarray:
    tensor = triton.InferInput("x", sizes, "FP32")
    tensor.set_data_from_numpy(np.ones(sizes, np.float32))
    result: np.ndarray = running.client.infer("m", [tensor]).as_numpy("y")
    return result


@pytest.mark.parametrize("sizes", [(3, 0, 3), (0, 2, 3)])
def test_a_batch_of_none_is_refused_and_the_server_goes_on(
    start: Starter, tmp_path: pathlib.Path, sizes: tuple[int, ...]
) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    running = start("- {name: m, path: m.onnx}")

    with pytest.raises(InferenceServerException, match="'x' has no elements"):
        infer(running, *sizes)

    assert infer(running, 3, 2, 3).shape == (3, 1, 2, 2)
