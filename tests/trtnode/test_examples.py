"""The examples of the public functions do what they say, and what they show is what a reader sees."""

from __future__ import annotations

import base64
import dataclasses
import doctest
import pathlib
import re
import shutil
import types

import pytest

import trtnode.models
import trtnode.server
from trtnode.engines.errors import InvalidInputError
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.cut.report import NativeNode

DIGITS = pathlib.Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture(autouse=True)
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder with a model and an empty cache, in which the test runs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(DIGITS, "model.onnx")
    return tmp_path


@pytest.mark.parametrize("module", [trtnode.models, trtnode.server], ids=["models", "server"])
def test_the_examples_of_docstrings_hold(module: types.ModuleType) -> None:
    results = doctest.testmod(module)

    assert results.attempted > 0
    assert results.failed == 0


def test_a_report_is_printed_in_ten_lines_at_most_the_verdict_first() -> None:
    report = trtnode.explain("model.onnx", engine="openvino", native_nodes=["conv*", "norm*", "relu*"])

    first, *others = str(report).splitlines()

    assert re.match(r"(Faster|Not faster) by an estimate", first)
    assert any("nodes after clean-up; openvino can take" in line for line in others)
    assert "USER_EXCLUDED: 3 nodes (Conv), such as conv1. native_nodes has 'conv*', which matches it." in others
    assert len(others) < 10


def test_causes_beyond_ten_lines_are_counted() -> None:
    report = trtnode.explain("model.onnx", engine="openvino")
    native = tuple(NativeNode(node=code, op_type="Relu", code=code, detail="A reason.") for code in ReasonCode)

    lines = str(dataclasses.replace(report, native=native)).splitlines()

    causes = [line for line in lines if line.endswith("A reason.") and "1 node (Relu)" in line]
    assert len(lines) == 10
    assert lines[-1] == f"... and {len(native) - len(causes)} more causes"


def test_a_notebook_shows_the_page_of_an_explanation() -> None:
    report = trtnode.explain("model.onnx", engine="openvino")

    shown = report._repr_html_()

    address = re.fullmatch(r'<iframe src="data:text/html;charset=utf-8;base64,([^"]+)" .*></iframe>', shown)[1]
    page = base64.b64decode(address).decode()
    assert page.startswith("<!doctype html>")
    assert "conv1" in page


def test_progress_tells_which_segment_is_built() -> None:
    told: list[trtnode.Progress] = []

    compiled = trtnode.compile("model.onnx", engine="openvino", native_ops=["Relu"], progress=told.append)

    building = [step for step in told if step.phase == "Building"]
    sizes = [len(segment.nodes) for segment in compiled.report.segments]
    assert len(sizes) == 4
    assert [step.what.split(",")[0] for step in building] == ["segment_0", "segment_1", "segment_2", "segment_3", ""]
    assert [step.done for step in building] == [sum(sizes[:count]) for count in range(5)]
    assert {step.total for step in building} == {sum(sizes)}


def test_a_compiled_model_has_no_picture_and_the_same_text() -> None:
    report = trtnode.compile("model.onnx", engine="native").report

    assert report._repr_html_() is None
    assert str(report).startswith("Not faster: no node runs in an engine")


@pytest.mark.parametrize("wrong", ["image", [1.0], 3, None])
def test_inputs_without_names_are_refused_with_advice(wrong: object) -> None:
    model = trtnode.load("model.onnx")

    with pytest.raises(
        InvalidInputError, match=r"Give a dictionary of arrays by input name, such as {'image': array},"
    ):
        model.run(wrong)


def test_a_model_with_engines_says_so() -> None:
    trtnode.compile("model.onnx", "compiled.onnx", engine="openvino")

    assert repr(trtnode.load("compiled.onnx")).startswith(
        "<Executable compiled.onnx: 1 segment of openvino in fp32, 0 native nodes; image float32["
    )
