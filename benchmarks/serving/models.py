"""Models that servers are measured with."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
from onnx import numpy_helper

MLP_SIZES = (64, 128, 10)
IMAGE_SHAPE = (3, 224, 224)


def write_mlp(file: pathlib.Path) -> None:
    """Write a small network, ``x`` float32[N, 64] to ``y`` float32[N, 10], so that a server adds most of the time."""
    features, hidden, classes = MLP_SIZES
    text = f"""
        <ir_version: 10, opset_import: ["": 21]>
        mlp (float[N, {features}] x) => (float[N, {classes}] y) {{
            h = Gemm(x, w1, b1)
            r = Relu(h)
            y = Gemm(r, w2, b2)
        }}"""
    rng = np.random.default_rng(0)
    shapes = {"w1": (features, hidden), "b1": (hidden,), "w2": (hidden, classes), "b2": (classes,)}
    weights = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    _write(text, weights, file)


def write_image_model(file: pathlib.Path) -> None:
    """Write a model that adds 1, float32[N, 3, 224, 224] in and out: 602 KB per row each way."""
    size = ", ".join(map(str, IMAGE_SHAPE))
    text = f"""
        <ir_version: 10, opset_import: ["": 21]>
        image (float[N, {size}] x) => (float[N, {size}] y) {{
            y = Add(x, one)
        }}"""
    _write(text, {"one": np.ones((), np.float32)}, file)


def _write(text: str, weights: dict[str, np.ndarray], file: pathlib.Path) -> None:
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.save(model, file)
