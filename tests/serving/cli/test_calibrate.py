"""trtnode calibrate, as a user types it."""

from __future__ import annotations

import argparse
import json
import pathlib

import numpy as np
import pytest

from trtnode.engines.errors import CalibrationDataError, OutputFileError
from trtnode.engines.quantization.table import CalibrationTable
from trtnode.serving.cli.arguments import CALIBRATE

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "digits"


def calibrate(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    CALIBRATE.configure(parser)
    return CALIBRATE.run(parser.parse_args([str(a) for a in arguments]))


def test_calibrate_writes_the_ranges_of_a_model(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, output = EXAMPLES / "digits.onnx", tmp_path / "ranges.json"

    code = calibrate(model, "--data", EXAMPLES / "calibration.npz", "--method", "percentile", "-o", output)

    table = CalibrationTable.load(output, model=model)
    assert code == 0
    assert (table.samples, table.method) == (200, "percentile 99.99")
    assert table.ranges["image"] == (0.0, 1.0)
    assert "ranges of 8 tensors from 200 samples (percentile 99.99)" in capsys.readouterr().out


def test_calibrate_prints_one_json_object(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    calibrate(
        EXAMPLES / "digits.onnx",
        *("--data", EXAMPLES / "test.npz", "--samples", 3, "-o", tmp_path / "ranges.json", "--json"),
    )

    printed = capsys.readouterr()
    assert json.loads(printed.out)["samples"] == 3
    assert printed.err == ""


def test_calibrate_refuses_data_of_another_model(tmp_path: pathlib.Path) -> None:
    np.savez(tmp_path / "data.npz", picture=np.zeros((1, 1, 8, 8), np.float32))

    with pytest.raises(CalibrationDataError, match="there is no array 'image'"):
        calibrate(EXAMPLES / "digits.onnx", "--data", tmp_path / "data.npz", "-o", tmp_path / "ranges.json")

    assert not (tmp_path / "ranges.json").exists()


def test_calibrate_refuses_a_missing_folder_before_it_starts(tmp_path: pathlib.Path) -> None:
    with pytest.raises(OutputFileError, match="there is no such folder"):
        calibrate(EXAMPLES / "digits.onnx", "--data", "none.npz", "-o", tmp_path / "none" / "ranges.json")


@pytest.mark.parametrize("percentile", ["50", "101", "many"])
def test_a_percentile_outside_its_range_is_a_bad_argument(percentile: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        calibrate(EXAMPLES / "digits.onnx", "--data", "x.npz", "--percentile", percentile, "-o", tmp_path / "r.json")
