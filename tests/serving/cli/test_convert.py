"""trtnode convert, as a user types it; and TensorRT for RTX, which builds what it writes."""

from __future__ import annotations

import json
import pathlib

import onnx
import pytest

from trtnode.serving.cli.program import main

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "digits"
DIGITS = EXAMPLES / "digits.onnx"
SAMPLES = ("--calibration", EXAMPLES / "calibration.npz")
SHAPES = ("--shapes", "image:1x1x8x8,8x1x8x8,64x1x8x8")


def convert(*arguments: object) -> int:
    return main(["convert", *map(str, arguments)])


@pytest.mark.parametrize("precision", ["fp16", "int8", "fp8", "int4"])
def test_tensorrt_for_rtx_builds_what_it_writes(
    precision: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")
    typed, built = tmp_path / "typed.onnx", tmp_path / "built.onnx"
    assert convert(DIGITS, "-o", typed, "--precision", precision, *SAMPLES) == 0
    capsys.readouterr()

    to = ["--engine", "tensorrt-rtx", "--targets", "sm89,sm120", "--no-cache", "--json", *SHAPES]
    code = main(["compile", str(typed), "-o", str(built), *to])

    facts = json.loads(capsys.readouterr().out)
    assert (code, facts["segments"], facts["report"]["native"]) == (0, 1, [])


def test_convert_prints_one_json_object(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "typed.onnx"

    convert(DIGITS, "-o", output, "--precision", "fp16", "--json")

    facts = json.loads(capsys.readouterr().out)
    assert (facts["output"], facts["file_bytes"]) == (str(output), output.stat().st_size)
    assert (facts["precision"]["effective"], facts["precision"]["moved_back"]) == ("fp16", [])
    assert onnx.load(output).graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["--precision", "int8"], "int8 needs calibration", id="no-samples"),
        pytest.param(["--precision", "fp16", "--max-abs", "1e-9"], "breaks the accuracy budget", id="budget"),
        pytest.param(["--precision", "fp16", "-o", "nowhere/typed.onnx"], "there is no such folder", id="no-folder"),
        pytest.param(["--precision", "fp16", "--precision-rules", "conv"], "should be node=GLOB", id="rule"),
        pytest.param(["--precision", "int8", "--calibration", "no.npz"], "no.npz", id="no-file"),
    ],
)
def test_convert_says_in_one_sentence_what_is_wrong(
    arguments: list[str], problem: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "typed.onnx"

    assert convert(DIGITS, "-o", output, *arguments) in (1, 2)

    told = capsys.readouterr().err.strip().splitlines()
    assert problem in told[-1]
    assert not output.exists()
