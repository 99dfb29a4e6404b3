"""The first run of a model is one that its engines can answer, in sizes that follow from each other."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Callable
from typing import Any

import onnx
import pytest

from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model

STEP = """<ir_version: 10, opset_import: ["": 21]>
step (float[batch,sequence] x, float[batch,past] cache, float[batch,total] mask) => (float[batch,batch] y) {
    joined = Concat<axis = 1>(cache, x)
    turned = Transpose(mask)
    y = MatMul(joined, turned)
}"""
"""A step of a decoder. Its mask must be as long as the cache and what is new."""


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_is_warmed_up_in_sizes_that_fit_each_other(
    compiled: bool, start: Callable[..., Any], tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "step.onnx"
    onnx.save(onnx.parser.parse_model(STEP), path)
    if compiled:
        found = compile_model(
            path,
            CompileOptions(engine="openvino", all_engines=True),
        )
        assert found.report.sizes["mask"] == ("batch", "sequence + past")
        found.save(path)

    with caplog.at_level(logging.INFO):
        start(f"- {{name: step, path: {path}, engine: openvino}}\n")

    assert "answered natively" not in caplog.text
    assert "warm-up run on zeros failed" not in caplog.text
