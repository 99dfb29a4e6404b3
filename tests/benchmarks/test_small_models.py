"""The thirty small models of a server are of three kinds, and run."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx

from benchmarks.small_models import write_models
from trtnode.engines.onnxruntime.session import NativeSession


def test_thirty_models_are_of_three_kinds(tmp_path: pathlib.Path) -> None:
    models = [onnx.load(path) for path in write_models(30, tmp_path)]

    nodes = [len(model.graph.node) for model in models]
    widths = [model.graph.input[0].type.tensor_type.shape.dim[1].dim_value for model in models]
    assert nodes.count(1) == 12
    assert sorted(width for width, count in zip(widths, nodes, strict=True) if count > 1) == [
        *range(32, 77, 4),
        *range(256, 577, 64),
    ]


def test_each_runs(tmp_path: pathlib.Path) -> None:
    for path in write_models(5, tmp_path):
        width = onnx.load(path).graph.input[0].type.tensor_type.shape.dim[1].dim_value

        (result,) = NativeSession(path).run({"x": np.ones((2, width), np.float32)})

        assert result.shape == (2, width)
