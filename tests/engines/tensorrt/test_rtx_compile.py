"""A model compiled for other machines' GPUs: built by TensorRT for RTX itself, and run natively here."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from trtnode.serving.cli.program import main

pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")

DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits"
SHAPES = ("--shapes", "image:1x1x8x8,8x1x8x8,512x1x8x8")

Compile = Callable[..., int]


@pytest.fixture
def output(tmp_path: pathlib.Path) -> pathlib.Path:
    """The file that a test compiles to."""
    return tmp_path / "compiled.onnx"


@pytest.fixture
def compile_digits(output: pathlib.Path) -> Compile:
    """Runs ``trtnode compile`` on the example for TensorRT for RTX, and returns its exit code."""
    command = ["compile", str(DIGITS / "digits.onnx"), "-o", str(output), "--engine", "tensorrt-rtx", "--no-cache"]
    return lambda *options: main([*command, *SHAPES, *options])


@pytest.mark.parametrize("cut", [(), ("--native-ops", "Relu")], ids=["one-engine", "four-engines"])
def test_compiled_file_runs_natively_here_with_equal_answers_and_one_warning(
    cut: tuple[str, ...],
    compile_digits: Compile,
    output: pathlib.Path,
    tmp_path: pathlib.Path,
    plain: Callable[..., Mapping[str, Any]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    inputs, results = tmp_path / "in.npz", tmp_path / "out.npz"
    image = np.load(DIGITS / "test.npz")["image"]
    np.savez(inputs, image=image)
    expected = plain(DIGITS / "digits.onnx", {"image": image})["probabilities"]

    assert compile_digits("--targets", "sm86,sm89,sm120", *cut) == 0
    caplog.clear()
    assert main(["run", str(output), "--inputs", str(inputs), "--outputs", str(results)]) == 0

    np.testing.assert_array_equal(np.load(results)["probabilities"], expected)
    np.testing.assert_array_equal(plain(output, {"image": image})["probabilities"], expected)
    (warning,) = (r.message for r in caplog.records if r.levelname == "WARNING")
    assert "TensorRT for RTX builds engines here, and runs them on an NVIDIA GPU" in warning
    assert "nodes run natively; compile the model again, with an engine that runs here." in warning


def test_report_and_envelope_say_what_was_built_and_that_it_was_not_run(
    compile_digits: Compile, output: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compile_digits("--targets", "sm89,sm86", "--json") == 0

    facts = json.loads(capsys.readouterr().out)
    (node,) = onnx.load(output).graph.node
    envelope = json.loads(next(a.s for a in node.attribute if a.name == "envelope"))
    assert (facts["engines_built"], facts["segments"], facts["report"]["checked"]) == (1, 1, False)
    assert (envelope["backend"], envelope["device"]["features"]) == ("tensorrt-rtx", "sm86,sm89")
    assert envelope["backend_version"].count(".") == 3
    assert envelope["options"]["UNCHECKED"] == "1"


def test_people_are_told_in_one_sentence(compile_digits: Compile, capfd: pytest.CaptureFixture[str]) -> None:
    assert compile_digits() == 0

    told = capfd.readouterr()
    assert "Engines were built but not run: no GPU here." in told.out
    assert "A process that runs it" not in told.out, "it would be one without engines"
    assert "WARNING" not in told.err


def test_plan_of_precisions_is_recalled_from_the_cache(
    output: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compile", str(DIGITS / "digits.onnx"), "-o", str(output), "--engine", "tensorrt-rtx", *SHAPES, "--json"]
    reports = []
    for _ in range(2):
        assert main([*command, "--precision", "fp16", "--cache", str(tmp_path / "cache")]) == 0
        reports.append(json.loads(capsys.readouterr().out))

    assert [(r["engines_built"], r["engines_cached"]) for r in reports] == [(2, 0), (0, 1)]
    assert reports[0]["precision"] == reports[1]["precision"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--precision", "auto"], "--precision auto runs engines, and those of tensorrt-rtx are only built here"),
    ],
)
def test_wish_that_can_not_be_met_here_is_one_sentence_and_exit_code_2(
    options: list[str],
    sentence: str,
    compile_digits: Compile,
    output: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = compile_digits(*options)

    said = capsys.readouterr().err
    assert (code, said.count("\n"), output.exists()) == (2, 1, False)
    assert sentence in said


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        (",", "names none; there are sm75, sm80, sm86, sm89, sm120, sm121"),
        ("SM86", "'SM86' should be one of sm75"),
        ("sm86,sm85", "'sm85' should be one of sm75, sm80, sm86, sm89, sm120, sm121"),
        ("sm90", "(sm90, H100, H200, is none of RTX: engine tensorrt builds for it, on a machine that has one)"),
    ],
)
def test_unknown_target_is_a_usage_error_that_lists_the_known_ones(
    target: str, sentence: str, compile_digits: Compile, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compile_digits("--targets", target) == 2
    assert sentence in capsys.readouterr().err
    assert main(["explain", str(DIGITS / "digits.onnx"), "--targets", target]) == 2
    assert sentence in capsys.readouterr().err


def test_target_given_twice_counts_once(
    compile_digits: Compile, output: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compile_digits("--targets", "sm89,sm86,sm89", "--json") == 0

    (node,) = onnx.load(output).graph.node
    envelope = json.loads(next(a.s for a in node.attribute if a.name == "envelope"))
    assert (json.loads(capsys.readouterr().out)["engines_built"], envelope["options"]["TARGETS"]) == (1, "sm86,sm89")


def test_options_without_effect_are_named_in_a_warning(
    compile_digits: Compile, caplog: pytest.LogCaptureFixture
) -> None:
    assert compile_digits("--optimization-level", "5", "--hardware-compatible") == 0

    lacking = "Engine tensorrt-rtx lacks these options, so they have no effect: optimization_level, hardware_compatible"
    assert lacking in caplog.messages


def test_bench_is_refused_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "model", str(DIGITS / "digits.onnx"), "--engine", "tensorrt-rtx"]) == 2
    assert "bench runs engines, and those of tensorrt-rtx are only built here: no GPU here." in capsys.readouterr().err


def test_explain_asks_the_library_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(DIGITS / "digits.onnx"), "--engine", "tensorrt-rtx", "--no-cache", "--json"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert (report["engine"], report["engine_nodes"], report.get("labelled_by")) == ("tensorrt-rtx", 10, None)


def test_explain_says_that_nothing_here_can_measure_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", str(DIGITS / "digits.onnx"), "--engine", "tensorrt-rtx", "--no-cache"])

    printed = " ".join(capsys.readouterr().out.split())
    assert "compile the model here, and measure it where tensorrt-rtx runs: nothing here can." in printed
