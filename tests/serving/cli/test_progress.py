"""Long work shows its progress on a terminal, and what it works on."""

from __future__ import annotations

import pathlib

import pytest

from trtnode.engines.backends.progress import Progress, report
from trtnode.serving.cli.program import main
from trtnode.serving.cli.terminal.progress_bar import showing_progress

DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"


def test_a_terminal_shows_what_is_built_and_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")

    with showing_progress("Compiling"):
        report(Progress("Building", 0, 20, what="segment_0, 12 nodes"))
        report(Progress("Building", 12, 20, what="segment_1, 8 nodes"))

    drawn = capsys.readouterr().err
    assert "Building segment_0, 12 nodes" in drawn
    assert "Building segment_1, 8 nodes" in drawn
    assert "left" in drawn


def test_calibration_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    samples = DIGITS.with_name("calibration.npz")

    main(["calibrate", str(DIGITS), "--data", str(samples), "-o", str(tmp_path / "ranges.json")])

    assert "Calibrating" in capsys.readouterr().err


def test_nothing_is_drawn_where_errors_are_piped(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["compile", str(DIGITS), "-o", str(tmp_path / "compiled.onnx"), "--no-cache"])

    assert capsys.readouterr().err == ""
