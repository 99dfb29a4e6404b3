"""Precision on the command line, in what it prints, and in what a server tells."""

from __future__ import annotations

import json
import pathlib
import re

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
