"""A served model whose engine takes elements of a tensor where a request says."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Running, Starter

MODEL = """<ir_version: 10, opset_import: ["": 20]>
g (float[1,3,8,8] image, int64[k,3] points) => (float[k,8] features) {
    halves = AveragePool<kernel_shape = [1, 1]>(image)
    warm = Relu(halves)
    features = GatherND(warm, points)
}"""


def features(running: Running, *point: int) -> np.ndarray:
    image, points = triton.InferInput("image", [1, 3, 8, 8], "FP32"), triton.InferInput("points", [1, 3], "INT64")
    image.set_data_from_numpy(np.arange(192, dtype=np.float32).reshape(1, 3, 8, 8))
    points.set_data_from_numpy(np.array([point]))
    return running.client.infer("m", [image, points]).as_numpy("features")


@pytest.mark.parametrize("point", [(0, 3, 0), (0, 400, 0), (0, 0, -9), (0, 2**31, 0), (-(2**62), 0, 0)])
def test_an_index_outside_is_refused_as_natively_and_the_server_goes_on(
    start: Starter, tmp_path: pathlib.Path, point: tuple[int, ...]
) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    running = start("- {name: m, path: m.onnx, engine: openvino, all_engines: true}")
    assert features(running, 0, 2, 7).tolist() == [list(range(184, 192))]

    with pytest.raises(InferenceServerException, match="GatherND"):
        features(running, *point)

    assert features(running, 0, 0, -8).tolist() == [list(range(8))]
