"""Precision on the command line, in what it prints, and in what a server tells."""

from __future__ import annotations

import json
import pathlib
import re

import numpy as np
import pytest

from trtnode.serving.cli.program import main

EXAMPLE = pathlib.Path(__file__).parents[3] / "examples" / "digits"
DIGITS = EXAMPLE / "digits.onnx"
DATA = str(EXAMPLE / "calibration.npz")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("cache")


def compile_digits(output: pathlib.Path, cache: pathlib.Path, *options: str) -> int:
    return main(["compile", str(DIGITS), "-o", str(output), "--cache", str(cache), *options])


def test_int8_within_a_budget(cache: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--precision", "int8", "--calibration", DATA, "--min-top1-agreement", "0.97"]

    code = compile_digits(tmp_path / "q.onnx", cache, *asked, "--json")

    facts = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (facts["precision"]["asked"], facts["precision"]["effective"]) == ("int8", "int8")
    assert facts["precision"]["budget"] == {"min_top1_agreement": 0.97}
    assert facts["precision"]["figures"]["top1_agreement"] >= 0.97
    assert facts["report"]["precision"] == facts["precision"]


def test_people_read_what_was_asked_and_tried(
    cache: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = ["--precision-rules", "op=Softmax:fp32", "--precision-rules", "node=conv1:fp32"]

    code = compile_digits(tmp_path / "q.onnx", cache, "--precision", "int8", "--calibration", DATA, *rules)

    printed = capsys.readouterr().out
    assert code == 0
    assert "Precision: int8 asked for, int8 in effect; budget: min_cosine 0.995." in printed
    assert "Rules, the first that fits counts: op=Softmax:fp32, node=conv1:fp32" in printed
    assert "inside the budget" in printed


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        pytest.param(["--precision", "int8"], 2, "int8 needs calibration: give samples", id="no-calibration"),
        pytest.param(["--precision", "int8", "--calibration", "gone.npz"], 1, "gone.npz: ", id="no-data"),
        pytest.param(
            ["--precision", "int8", "--calibration", "gone.json"], 1, "gone.json: can't be read", id="no-ranges"
        ),
        pytest.param(["--precision", "fp16", "--engine", "native"], 2, "Native execution computes in the", id="native"),
        pytest.param(["--precision-rules", "Softmax"], 2, "should be node=GLOB:PRECISION or op=TYPE:", id="rule-form"),
        pytest.param(["--precision-rules", "op=Sofmax:bf16"], 2, "'Sofmax' matches nothing in", id="rule-operator"),
        pytest.param(["--precision", "bf16", "--metric", "f"], 1, "it should be MODULE:FUNCTION", id="metric-form"),
        pytest.param(
            ["--precision", "int8", "--calibration", DATA, "--calibration-method", "x"],
            2,
            "invalid choice: 'x'",
            id="method",
        ),
    ],
)
def test_a_precision_that_can_not_be_had_is_one_sentence(
    options: list[str],
    code: int,
    message: str,
    cache: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    actual = compile_digits(tmp_path / "q.onnx", cache, *options)

    printed = capsys.readouterr()
    assert (actual, printed.out) == (code, "")
    assert message in printed.err
    assert "Traceback" not in printed.err
    assert not (tmp_path / "q.onnx").exists()


def test_a_budget_that_no_precision_meets_is_told_and_leaves_float32(
    cache: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--precision", "int8", "--calibration", DATA, "--max-abs", "0"]

    assert compile_digits(tmp_path / "q.onnx", cache, *asked) == 0
    told = capsys.readouterr().out.splitlines()[0]
    code = compile_digits(tmp_path / "q.onnx", cache, *asked, "--json")

    facts = json.loads(capsys.readouterr().out)
    assert re.fullmatch(r"int8 asked for, fp32 in effect: an element differs by .*, more than 0\.", told)
    assert (code, facts["engine"]) == (0, "openvino")
    assert facts["precision"]["effective"] == "fp32"
    assert {trial["code"] for trial in facts["precision"]["tried"]} == {"INACCURATE"}


@pytest.mark.usefixtures("choosing_engines")
def test_a_precision_without_engines_is_the_first_thing_told(
    cache: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing_taken = ["--native-ops", "Conv,Gemm,Relu,Add,BatchNormalization,MaxPool,Softmax,Flatten,GlobalAveragePool"]

    compile_digits(tmp_path / "q.onnx", cache, "--precision", "bf16", *nothing_taken)

    told = capsys.readouterr().out.splitlines()[0]
    assert told == "bf16 asked for, fp32 in effect: no node runs in an engine."


def test_a_compiled_model_runs_in_its_precision(cache: pathlib.Path, tmp_path: pathlib.Path) -> None:
    compile_digits(tmp_path / "q.onnx", cache, "--precision", "int8", "--calibration", DATA)

    inputs, outputs = EXAMPLE / "test.npz", tmp_path / "out.npz"
    code = main(["run", str(tmp_path / "q.onnx"), "--inputs", str(inputs), "--outputs", str(outputs)])

    assert code == 0
    assert (np.load(outputs)["probabilities"].argmax(1) == np.load(inputs)["label"]).mean() >= 0.985
