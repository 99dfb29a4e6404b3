"""TensorRT where it is not installed: models are explained by the table, and nothing pretends to build."""

from __future__ import annotations

import json
import pathlib

import pytest

from trtnode.engines.backends.registry import get_backend, resolve_engine
from trtnode.engines.cuda import devices
from trtnode.engines.tensorrt.library import TENSORRT
from trtnode.serving.cli.program import main

pytestmark = pytest.mark.skipif(TENSORRT.find().module is not None, reason="TensorRT is installed")

MENDING = "TensorRT is not installed here. Install it on a machine with an NVIDIA GPU: pip install 'trtnode[tensorrt]'."


def test_explain_labels_by_the_table_and_says_so(digits: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(digits), "--engine", "tensorrt", "--no-cache", "--json"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert report["labelled_by"] == f"the table; {MENDING}"
    assert (report["engine"], report["engine_nodes"], len(report["segments"])) == ("tensorrt", 10, 1)


def test_explain_tells_people_too(digits: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", str(digits), "--engine", "tensorrt", "--no-cache"])

    assert "Labelled by the table; TensorRT is not" in capsys.readouterr().out


def test_compile_ends_with_one_sentence_and_exit_code_1(
    digits: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "compiled.onnx"

    code = main(["compile", str(digits), "-o", str(output), "--engine", "tensorrt", "--no-cache"])

    assert (code, capsys.readouterr().err) == (1, f"trtnode: {MENDING}\n")
    assert not output.exists()


def test_an_allowance_that_does_not_exist_is_a_usage_error(
    digits: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(digits), "--allow", "everything"]) == 2
    assert "data-dependent" in capsys.readouterr().err


def test_auto_takes_tensorrt_only_where_nothing_of_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_engine("auto") == "openvino"

    monkeypatch.setattr(devices, "find_gpu", lambda: devices.Gpu(name="simulated", compute_capability="8.6"))
    monkeypatch.setattr(type(get_backend("tensorrt")), "unavailable_reason", lambda self: None)

    assert resolve_engine("auto") == "tensorrt"
