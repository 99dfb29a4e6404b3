"""Shapes to build for and options of TensorRT, on the command line and in servable.yaml."""

from __future__ import annotations

import json
import pathlib

import pytest

from trtnode.engines.backends.build_options import TensorRtOptions
from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.serving.cli.program import main
from trtnode.serving.config.load import load_config
from trtnode.serving.errors import ConfigError

DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
MENDING = "TensorRT is not installed here"


def explain(capsys: pytest.CaptureFixture[str], *options: str) -> dict:
    assert main(["explain", str(DIGITS), "--native-ops", "Softmax", "--no-cache", "--json", *options]) == 0
    report: dict = json.loads(capsys.readouterr().out)
    return report


def test_a_model_is_explained_as_if_its_input_had_the_given_shape(capsys: pytest.CaptureFixture[str]) -> None:
    free, fixed = explain(capsys), explain(capsys, "--shapes", "image:32x1x8x8")

    assert fixed["boundary_bytes"] == 32 * free["boundary_bytes"]
    assert fixed["segments"][0]["nodes"] == free["segments"][0]["nodes"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--shapes", "1x1x8x8"], "--shapes: '1x1x8x8' should be NAME:SHAPE or NAME:MIN,OPT,MAX."),
        (["--shapes", "picture:1x1x8x8"], "input 'picture', profile 0: the model has no such input; it has image."),
    ],
)
@pytest.mark.parametrize("command", ["explain", "compile"])
def test_shapes_that_can_not_be_are_told_in_a_sentence(
    command: str, options: list[str], sentence: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ["-o", str(tmp_path / "compiled.onnx")] if command == "compile" else []

    assert main([command, str(DIGITS), "--engine", "openvino", "--no-cache", *output, *options]) == 2

    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "option",
    [["--optimization-level", "6"], ["--workspace-mb", "0"], ["--build-timeout-s", "-1"], ["--workspace-mb", "x"]],
)
def test_options_that_do_not_exist_are_usage_errors(option: list[str], tmp_path: pathlib.Path) -> None:
    assert main(["compile", str(DIGITS), "-o", str(tmp_path / "compiled.onnx"), *option]) == 2


def test_tensorrt_with_all_its_options_is_one_sentence_where_it_is_not_installed(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--workspace-mb 64 --optimization-level 5 --hardware-compatible --version-compatible --sparse"
    shapes = ["--shapes", "image:1x1x8x8,8x1x8x8,64x1x8x8", "--build-timeout-s", "60", "--no-cuda-graphs"]
    output = tmp_path / "compiled.onnx"

    code = main(["compile", str(DIGITS), "-o", str(output), "--engine", "tensorrt", *options.split(), *shapes])

    said = capsys.readouterr().err
    assert (code, said.count("\n"), output.exists()) == (1, 1, False)
    assert MENDING in said


def test_option_of_tensorrt_alone_changes_no_other_engine_and_says_so(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    output = tmp_path / "compiled.onnx"

    code = main(["compile", str(DIGITS), "-o", str(output), "--engine", "openvino", "--sparse", "--no-cache", "--json"])

    facts = json.loads(capsys.readouterr().out)
    assert (code, facts["segments"]) == (0, 1)
    assert caplog.messages.count("Engine openvino lacks these options, so they have no effect: sparse") == 1


def write(folder: pathlib.Path, model: str) -> pathlib.Path:
    path = folder / "servable.yaml"
    path.write_text(f"models:\n- name: m\n  path: {DIGITS}\n{model}")
    return path


def test_configured_shapes_and_options_reach_the_compiler(tmp_path: pathlib.Path) -> None:
    path = write(
        tmp_path,
        "  engine: tensorrt\n"
        "  shapes:\n"
        "  - image: {min: [1, 1, 8, 8], opt: [4, 1, 8, 8], max: [8, 1, 8, 8]}\n"
        "  - image: {min: [1, 1, 8, 8], opt: [1, 1, 8, 8], max: [1, 1, 8, 8]}\n"
        "  tensorrt: {workspace_mb: 64, optimization_level: 1, sparse: true, cuda_graphs: false}\n"
        "  build_timeout_s: 7\n",
    )

    options = load_config(path, {}).models[0].options

    assert options.shapes[0] == {"image": ShapeRange(min=(1, 1, 8, 8), opt=(4, 1, 8, 8), max=(8, 1, 8, 8))}
    assert len(options.shapes) == 2
    assert options.tensorrt == TensorRtOptions(workspace_mb=64, optimization_level=1, sparse=True, cuda_graphs=False)
    assert options.build_timeout_s == 7


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (
            "  shapes:\n  - image:\n      min: [2, 8]\n      opt: [1, 8]\n      max: [4, 8]\n",
            "servable.yaml:7: models[0].shapes[0].image.opt: 1x8 is less than 2x8 somewhere; min <= opt <= max must",
        ),
        (
            "  shapes:\n  - image: {min: [1], opt: [4], max: [2]}\n",
            "servable.yaml:5: models[0].shapes[0].image.max: 2 is less than 4 somewhere; min <= opt <= max must hold",
        ),
        (
            "  shapes:\n  - image: {min: [1, 1], opt: [4], max: [8]}\n",
            "servable.yaml:5: models[0].shapes[0].image.opt: 4 should have 2 dimensions, like 1x1",
        ),
        ("  shapes:\n  - image: {min: [1], opt: [4]}\n", "models[0].shapes[0].image.max: is missing; add it"),
        (
            "  shapes:\n  - image: {min: [-1], opt: [4], max: [8]}\n",
            "servable.yaml:5: models[0].shapes[0].image.min: -1 has a negative size, which only values of an input may",
        ),
        ("  tensorrt: {optimization_level: 6}\n", "servable.yaml:4: models[0].tensorrt.optimization_level: should be"),
        ("  tensorrt: {sparce: true}\n", "models[0].tensorrt.sparce: unknown key; did you mean 'sparse'?"),
    ],
)
def test_settings_that_can_not_be_are_told_with_their_line(model: str, problem: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, model), {})

    assert problem in str(caught.value)


def test_compile_leaves_the_fallback_out_on_request_and_says_so(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compile", str(DIGITS), "--engine", "openvino", "--cache", str(tmp_path / "cache"), "-o"]
    main([*command, str(tmp_path / "whole.onnx"), "--json"])
    whole = json.loads(capsys.readouterr().out)

    main([*command, str(tmp_path / "stripped.onnx"), "--strip-fallback", "--json"])
    stripped = json.loads(capsys.readouterr().out)
    main([*command, str(tmp_path / "stripped.onnx"), "--strip-fallback"])

    assert (whole["stripped"], stripped["stripped"], stripped["native_fallback"]) == (False, True, False)
    assert stripped["file_bytes"] < whole["file_bytes"]
    assert "its native fallback is left out" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "option", [["--workspace-mb", "9" * 5000], ["--build-timeout-s", "inf"], ["--max-segments", "99999999999"]]
)
def test_numbers_beyond_any_use_are_one_sentence(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(DIGITS), *option]) == 2

    said, advice = capsys.readouterr().err.splitlines()
    assert "number from" in said
    assert len(said) < 200
    assert advice == "`trtnode explain --help` tells what it takes."
