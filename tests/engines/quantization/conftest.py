"""Networks with calibration tables."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest

from quantized_networks import Example, Prepare, dims
from trtnode.engines.quantization.calibrator import calibrate
from trtnode.engines.quantization.dataset import CalibrationDataset
from trtnode.engines.quantization.table import CalibrationTable


@pytest.fixture
def prepare(tmp_path: pathlib.Path) -> Prepare:
    def calibrated(model: onnx.ModelProto, **shapes: tuple[int, ...]) -> Example:
        rng = np.random.default_rng(6)
        shapes = shapes or {v.name: (2, *dims(v)[1:]) for v in model.graph.input}
        samples = {name: rng.standard_normal((8, *shape[1:])).astype(np.float32) for name, shape in shapes.items()}
        np.savez(tmp_path / "samples.npz", **samples)
        onnx.save(model, tmp_path / "model.onnx")
        table = calibrate(tmp_path / "model.onnx", CalibrationDataset(tmp_path / "samples.npz"))
        return Example(model, table, {name: values[: shapes[name][0]] for name, values in samples.items()})

    return calibrated


@pytest.fixture(scope="module")
def digits_table() -> CalibrationTable:
    folder = pathlib.Path(__file__).parents[3] / "examples" / "digits"
    return calibrate(folder / "digits.onnx", CalibrationDataset(folder / "calibration.npz"))
