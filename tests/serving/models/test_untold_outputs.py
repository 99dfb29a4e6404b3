"""Inputs and outputs that the protocol has no form for."""

from __future__ import annotations

import pathlib

import onnx
import pytest

from tests.serving.conftest import Starter


def test_an_output_that_is_no_tensor_is_left_out_of_metadata_and_told_in_the_log(
    start: Starter, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "g (float[n] x) => (float[n] y, seq(float[n]) parts) { y = Identity(x) parts = SequenceConstruct(x, x) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'), tmp_path / "m.onnx")

    running = start(f"- {{name: m, path: {tmp_path}/m.onnx, engine: native}}")

    assert [output.name for output in running.client.get_model_metadata("m").outputs] == ["y"]
    assert (
        "Model 'm': the protocol has no form for its outputs 'parts', so metadata doesn't list them and requests can't "
        "name them"
    ) in caplog.text
