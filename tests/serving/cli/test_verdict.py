"""The output of explain and compile: the verdict first, then details; in 80 columns on a terminal, else unbroken."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

import onnx
import pytest

from trtnode.serving.cli.program import main

Explain = Callable[..., list[str]]

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "digits"
SHARED = pathlib.Path(__file__).parents[4] / "shared" / "models" / "models"
HEADER = '<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 3]>'
LONG = "a_rather_long_name_of_a_node_as_exporters_write_them_" * 3

MODELS = {
    "one-segment": f"{HEADER} g (float[1, 64] x) => (float[1, 64] y) {{ a = Relu(x) y = Neg(a) }}",
    "unknown-sizes": f"{HEADER} g (float[N, M] x) => (float[N, M] y) {{ a = Relu(x) y = Neg(a) }}",
    "native-node": f"""{HEADER} g (float[4, 3] x) => (float[4, 3] y) {{
        [{LONG}first] a = Relu(x) [{LONG}scaler] b = ai.onnx.ml.Scaler <offset = [0.0], scale = [2.0]> (a)
        [{LONG}last] y = Neg(b) }}""",
    "nothing-to-build": f"""{HEADER} g (float[4, 3] x) => (float[4, 3] y) {{
        y = ai.onnx.ml.Scaler <offset = [0.0], scale = [2.0]> (x) }}""",
}


def be_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is printed go to a terminal of 80 columns without colours."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "dumb")


@pytest.fixture
def explained(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Explain:
    """Explain a model on a terminal of 80 columns, or on a pipe, and return the lines."""

    def explain(name: str, *options: str, terminal: bool = True) -> list[str]:
        if terminal:
            be_a_terminal(monkeypatch)
        path = SHARED / name / "model.onnx"
        if name in MODELS:
            path = tmp_path / f"{name}.onnx"
            onnx.save(onnx.parser.parse_model(MODELS[name]), path)
        elif not path.exists():
            pytest.skip("the collection of models is not here")
        assert main(["explain", str(path), "--engine", "openvino", "--no-cache", *options]) == 0
        return capsys.readouterr().out.splitlines()

    return explain


@pytest.mark.parametrize(
    "name", [*MODELS, "bert_toy", "iris_forest", "mlagents_sorter", "nms_yolo_nas", "openseeface_detect"]
)
def test_explanations_fit_80_columns(name: str, explained: Explain) -> None:
    lines = explained(name)

    assert [line for line in lines if len(line) > 80] == []
    assert "…" not in "".join(lines)


def test_what_is_piped_has_each_sentence_and_each_row_on_one_line(
    explained: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # of the terminal that the pipe was started on

    lines = explained("native-node", terminal=False)

    assert any("after clean-up" in line and line.endswith("cross.") for line in lines)
    assert any(f"{LONG}first > {LONG}scaler > {LONG}last" in line for line in lines)


def test_names_with_colons_are_printed_as_they_are(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.parser.parse_model(MODELS["one-segment"])
    model.graph.node[0].name = "block:cat:1"
    onnx.save(model, tmp_path / "model.onnx")

    main(["explain", str(tmp_path / "model.onnx"), "--engine", "openvino", "--no-cache", "--native-nodes", "block:*"])

    assert "block:cat:1" in capsys.readouterr().out


def test_an_explanation_begins_with_an_estimate_and_says_that_it_is_one(explained: Explain) -> None:
    lines = explained("one-segment")

    assert re.match(r"(Faster|Not faster) by an estimate.*: the whole model in", lines[0])
    assert "Nothing was measured." in " ".join(lines[:2])
    assert "2 nodes after clean-up; openvino can take 2. 2 run in 1 segment, 0 run" in " ".join(" ".join(lines).split())


def test_an_explanation_names_the_cause_of_native_nodes_before_the_details(explained: Explain) -> None:
    lines = explained("native-node")

    start = " ".join(" ".join(lines[: lines.index("")]).split())
    assert "1 node runs natively. Scaler belongs to domain 'ai.onnx.ml', not to ONNX." in start


def test_a_model_without_engines_is_not_called_faster(explained: Explain) -> None:
    lines = explained("nothing-to-build")

    assert lines[0].startswith("Not faster: no node runs in an engine")


def test_unknown_sizes_are_called_unknown(explained: Explain) -> None:
    text = " ".join(" ".join(explained("unknown-sizes")).split())

    assert "2 tensors (of unknown size) cross." in text
    assert "dimensions without a size count as 1" in text


def test_a_reason_is_printed_whole_on_lines_of_its_own(explained: Explain) -> None:
    lines = explained("native-node")

    assert "    Scaler belongs to domain 'ai.onnx.ml', not to ONNX." in [line.rstrip() for line in lines]


def test_an_option_that_keeps_nodes_native_is_what_to_try(explained: Explain) -> None:
    lines = explained("one-segment", "--native-ops", "Neg")

    assert "To try: leave out the options that keep nodes native." in lines


@pytest.mark.parametrize("command", [["explain"], ["compile", "-o", "compiled.onnx"]], ids=["explain", "compile"])
def test_model_with_an_operator_that_nothing_here_has_is_refused(
    command: list[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = "g (float[4, 3] x) => (float[4, 3] y) { a = ai.onnx.ml.Nobodys (x) b = Relu(a) y = Neg(b) }"
    onnx.save(onnx.parser.parse_model(f"{HEADER} {graph}"), "foreign.onnx")

    code = main([*command, "foreign.onnx", "--engine", "openvino", "--no-cache"])

    told = capsys.readouterr().err
    assert (code, told.count("\n")) == (1, 1)
    assert "No Op registered for Nobodys" in told


def test_compile_says_that_no_engine_is_kept(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["compile", str(EXAMPLES / "digits.onnx"), "-o", str(tmp_path / "c.onnx"), "--engine", "native", "--no-cache"])

    assert "0 engines built, none kept, computing in fp32" in " ".join(capsys.readouterr().out.split())


def test_compile_begins_with_the_verdict_and_counts_engines(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    be_a_terminal(monkeypatch)

    files = str(EXAMPLES / "digits.onnx"), "-o", str(tmp_path / "c.onnx"), "--cache", str(tmp_path / "cache")
    main(["compile", *files, "--engine", "openvino", "--all-engines"])

    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"(Faster|Not faster) by an estimate", lines[0])
    assert "1 engine built, 0 from the cache" in " ".join(lines)
    assert [line for line in lines if len(line) > 80] == []
