"""Layers with many zeros in their weights, as ``explain`` tells them."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from trtnode.serving.cli.program import main


@pytest.fixture
def pruned(tmp_path: pathlib.Path) -> pathlib.Path:
    """A model with one layer of which three blocks of four are zero, and one dense layer."""
    text = """g (float[2,64] x) => (float[2,64] y) <float[64,64] w, float[64,64] v> {
        [pruned] a = MatMul(x, w) y = MatMul(a, v)
    }"""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    weights = np.ones((64, 64), np.float32)
    weights[np.arange(64) % 4 != 0] = 0
    for name, array in {"w": weights, "v": np.ones((64, 64), np.float32)}.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    path = tmp_path / "pruned.onnx"
    onnx.save(model, path)
    return path


def test_explain_lists_layers_with_many_zeros_and_what_leaving_them_out_could_gain(
    pruned: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(pruned), "--json", "--no-cache"]) == 0
    (layer,) = json.loads(capsys.readouterr().out)["sparse_layers"]

    assert layer["node"] == "pruned"
    assert layer["zeros"] == 0.75
    assert layer["stored"] == {"1": 0.25, "4": 0.25, "8": 0.25}
    assert layer["two_of_four"]
    assert layer["gain"] > 2

    assert main(["explain", str(pruned), "--no-cache"]) == 0
    printed = capsys.readouterr().out
    assert "Zeros in weights" in printed
    assert "75%" in printed


def test_explain_says_in_one_sentence_that_the_kernels_are_missing(
    pruned: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trtnode.engines.sparse.library.LIBRARY", pruned.with_name("kernels.so"))

    assert main(["explain", str(pruned), "--no-cache"]) == 0

    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "Layers with zeros run dense here: engine sparse: its kernels were not compiled when this package was"
        in printed
    )


def test_explain_says_nothing_of_zeros_in_a_dense_model(
    pruned: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = onnx.load(pruned)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((64, 64), np.float32), "w"))
    onnx.save(model, pruned)

    assert main(["explain", str(pruned), "--no-cache"]) == 0
    assert "Zeros" not in capsys.readouterr().out


@pytest.mark.parametrize("command", ["explain", "compile"])
def test_an_engine_can_not_be_asked_for_and_left_out(
    command: str, pruned: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ["-o", str(pruned.with_name("out.onnx"))] if command == "compile" else []

    assert main([command, str(pruned), *output, "--engine", "sparse", "--sparse-weights", "off"]) == 2

    assert "--sparse-weights: off leaves out the engine that is asked for" in capsys.readouterr().err
