"""trtnode prune, as a user types it."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from trtnode.serving.cli.program import main

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "digits"
DIGITS = EXAMPLES / "digits.onnx"
TEST = EXAMPLES / "test.npz"


def prune(*arguments: object) -> int:
    return main(["prune", *map(str, arguments)])


def zeros_of(path: pathlib.Path) -> dict[str, float]:
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
    return {name: float((array == 0).mean()) for name, array in tensors.items() if name.endswith("weight")}


def test_prune_tells_the_accuracy_lost_and_that_training_wins_it_back(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "pruned.onnx"

    assert prune(DIGITS, "-o", output, "--sparsity", 0.9, "--data", TEST) == 0

    told = capsys.readouterr().out
    assert told.startswith("The answers are not inside the accuracy budget: the cosine of an output is ")
    assert "on 200 samples: cosine 0." in told
    assert "90.0% of the weights of 2 layers are zero, in blocks of 4; 62.0% of all weights." in told
    assert "Pruning without training costs accuracy." in told
    assert zeros_of(output) == pytest.approx(
        {"conv1.weight": 0, "conv2.weight": 0.9, "conv3.weight": 0.9, "gemm.weight": 0}, abs=1e-3
    )


def test_prune_prints_one_json_object(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    prune(DIGITS, "-o", tmp_path / "pruned.onnx", "--sparsity", 0.5, "--block", 8, "--data", TEST, "--json")

    facts = json.loads(capsys.readouterr().out)
    assert (facts["layers"], facts["zeros"]) == (["conv2", "conv3"], pytest.approx(0.5))
    assert facts["figures"]["samples"] == 200


def test_layers_can_be_named_to_stay_dense_and_the_ends_to_be_pruned(tmp_path: pathlib.Path) -> None:
    output = tmp_path / "pruned.onnx"

    prune(DIGITS, "-o", output, "--sparsity", 0.5, "--block", 1, "--all-layers", "--dense", "conv[12]")

    assert {name for name, zeros in zeros_of(output).items() if zeros} == {"conv3.weight", "gemm.weight"}


def test_weights_in_a_file_of_their_own_are_pruned_as_those_inside(tmp_path: pathlib.Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> dense (float[N, 300] x) => (float[N, 300] y) '
        "{ a = MatMul(x, u_weight) b = MatMul(a, v_weight) y = MatMul(b, w_weight) }"
    )
    values = np.random.default_rng(0).standard_normal((3, 300, 300)).astype(np.float32)
    tensors = [numpy_helper.from_array(one, f"{name}_weight") for one, name in zip(values, "uvw", strict=True)]
    model.graph.initializer.extend(tensors)
    onnx.save(model, tmp_path / "inside.onnx")
    onnx.save(model, tmp_path / "outside.onnx", save_as_external_data=True, location="weights", size_threshold=0)

    for place in ("inside", "outside"):
        assert prune(tmp_path / f"{place}.onnx", "-o", tmp_path / f"{place}_pruned.onnx", "--sparsity", 0.5) == 0

    inside, outside = (onnx.load(tmp_path / f"{place}_pruned.onnx") for place in ("inside", "outside"))
    assert zeros_of(tmp_path / "outside_pruned.onnx") == {"u_weight": 0, "v_weight": 0.5, "w_weight": 0}
    assert [t.raw_data for t in outside.graph.initializer] == [t.raw_data for t in inside.graph.initializer]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["--sparsity", "0"], "0 is not above 0 and below 1", id="no-zeros"),
        pytest.param(["--sparsity", "1"], "1 is not above 0 and below 1", id="nothing-but-zeros"),
        pytest.param(["--sparsity", "90"], "90 is no number from 0 up to 1", id="percent"),
        pytest.param(["--sparsity", "0.5", "--block", "3"], "invalid choice: 3", id="unknown-block"),
    ],
)
def test_wrong_arguments_are_refused_in_one_sentence(
    arguments: list[str], sentence: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prune(DIGITS, "-o", tmp_path / "pruned.onnx", *arguments) == 2

    assert sentence in capsys.readouterr().err


def test_a_model_with_nothing_to_prune_is_refused(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "pruned.onnx"

    assert prune(DIGITS, "-o", output, "--sparsity", 0.5, "--dense", "*") == 1

    error = capsys.readouterr().err
    assert error.startswith("trtnode: There is nothing to prune: each of its 4 layers is the first or the last, ")
    assert not output.exists()


def test_a_pattern_that_names_no_layer_is_refused(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "pruned.onnx"

    assert prune(DIGITS, "-o", output, "--sparsity", 0.5, "--dense", "head*") == 1

    assert "--dense 'head*' names no layer that could be pruned. Those are " in capsys.readouterr().err
    assert not output.exists()


def test_the_model_itself_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    assert prune(DIGITS, "-o", DIGITS, "--sparsity", 0.5) == 2

    assert "nothing is written in its place" in capsys.readouterr().err


def test_training_on_holds_the_zeros_and_wins_accuracy_back(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pruned, retrained = tmp_path / "pruned.onnx", tmp_path / "retrained.onnx"
    prune(DIGITS, "-o", pruned, "--sparsity", 0.8)

    command = [sys.executable, EXAMPLES / "retrain.py", pruned, "-o", retrained, "--epochs", "1"]
    told = subprocess.run(command, check=False, capture_output=True, text=True).stderr

    right = {name: int(count) for name, count in re.findall(r"(\w+) +(\d+) of 360", told)}
    assert zeros_of(retrained) == zeros_of(pruned)
    assert right["pruned"] < right["retrained"] <= right["dense"]
