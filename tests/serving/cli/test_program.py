from __future__ import annotations

import argparse
import importlib.metadata
import logging
import os
import pathlib
import subprocess
import sys

import pytest

from trtnode.serving.cli import program
from trtnode.serving.cli.command import Command
from trtnode.serving.errors import ServingError

ENTRY_POINTS = {
    "config": "trtnode.serving.cli.serve:CONFIG",
    "fake": "cli_fakes:FAKE",
    "gone": "no.such.module:GONE",
    "serve": "trtnode.serving.cli.serve:SERVE",
}


class Fakes:
    """A module of commands; ``run`` is what the command ``fake`` does."""

    def __init__(self) -> None:
        self.seen: argparse.Namespace | None = None
        self.error: BaseException | None = None
        self.FAKE = Command(name="fake", help="do as told", configure=self._configure, run=self._run)

    def _configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--number", type=int)

    def _run(self, arguments: argparse.Namespace) -> int:
        self.seen = arguments
        if self.error is not None:
            raise self.error
        return 0


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    points = [importlib.metadata.EntryPoint(name, value, program.GROUP) for name, value in ENTRY_POINTS.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points if group == program.GROUP else [])
    fakes = Fakes()
    monkeypatch.setitem(sys.modules, "cli_fakes", fakes)
    monkeypatch.setattr(logging, "basicConfig", lambda **settings: None)
    return fakes


def test_a_command_runs_with_its_arguments(fakes: Fakes) -> None:
    assert program.main(["fake", "--number", "7"]) == 0

    assert (fakes.seen.number, fakes.seen.debug, fakes.seen.log_level) == (7, None, None)


def test_the_version_is_that_of_the_package(fakes: Fakes, capsys: pytest.CaptureFixture) -> None:
    assert program.main(["--version"]) == 0

    assert capsys.readouterr().out == f"trtnode {importlib.metadata.version('trtnode')}\n"


def test_the_version_in_full_tells_what_is_here_and_what_is_missing(
    fakes: Fakes, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr("trtnode.engines.sparse.library.LIBRARY", tmp_path / "gone.so")

    assert program.main(["--version", "--verbose"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("Python 3.")
    assert f"openvino {importlib.metadata.version('openvino')}" in lines
    assert lines[-1].startswith("engine sparse: its kernels were not compiled")


@pytest.mark.parametrize(
    "argv", [["--log-level", "info", "fake", "--number", "1"], ["fake", "--number", "1", "--log-level", "info"]]
)
def test_common_options_may_stand_before_or_after_the_command(fakes: Fakes, argv: list[str]) -> None:
    assert program.main(argv) == 0

    assert (fakes.seen.log_level, fakes.seen.number) == ("info", 1)


def test_debug_turns_logging_up(fakes: Fakes) -> None:
    program.main(["fake", "--debug"])

    assert fakes.seen.log_level == "debug"


def test_help_lists_every_command_and_survives_a_broken_one(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--help"]) == 0

    out = capsys.readouterr().out
    assert "  config     print the JSON Schema of servable.yaml" in out
    assert "  fake       do as told" in out
    assert "  gone       (Command 'gone' is installed but can't be loaded: ModuleNotFoundError" in out


def test_no_command_prints_help_and_is_a_usage_error(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main([]) == 2

    assert "commands:" in capsys.readouterr().err


def test_an_unknown_command_names_the_nearest(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["serv"]) == 2

    assert capsys.readouterr().err.startswith("trtnode: unknown command 'serv'; did you mean 'serve'?\n")


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        pytest.param("--numbr=1", "; did you mean --number?", id="typing-error"),
        pytest.param("--member", "", id="somewhat-alike"),
        pytest.param("--zzz", "", id="unlike-any"),
        pytest.param("superfluous", "", id="no-option"),
    ],
)
def test_an_unknown_argument_names_the_nearest_option(
    fakes: Fakes, capsys: pytest.CaptureFixture[str], typed: str, advice: str
) -> None:
    assert program.main(["fake", typed]) == 2

    fault, help_ = capsys.readouterr().err.splitlines()
    assert fault == f"trtnode fake: unrecognized arguments: {typed}{advice}"
    assert help_ == "`trtnode fake --help` tells what it takes."


def test_a_wrong_argument_is_a_usage_error_without_the_usage(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["fake", "--number", "x"]) == 2

    assert capsys.readouterr().err == (
        "trtnode fake: argument --number: invalid int value: 'x'\n`trtnode fake --help` tells what it takes.\n"
    )


def test_a_command_that_cannot_be_imported_is_told(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["gone"]) == 1

    assert capsys.readouterr().err.startswith("trtnode: Command 'gone' is installed but can't be loaded")


def test_an_error_of_the_project_is_one_sentence(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    fakes.error = ServingError("a.yaml:1: that is wrong.")

    assert program.main(["fake"]) == 1

    assert capsys.readouterr().err == "trtnode: a.yaml:1: that is wrong.\n"


def test_an_unexpected_error_has_no_traceback_without_debug(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    fakes.error = KeyError("x")

    assert program.main(["fake"]) == 1

    assert capsys.readouterr().err == ("trtnode: unexpected KeyError: 'x'. Run again with --debug for its traceback.\n")


def test_an_error_has_its_traceback_with_debug(fakes: Fakes, caplog: pytest.LogCaptureFixture) -> None:
    fakes.error = ServingError("that is wrong.")

    assert program.main(["--debug", "fake"]) == 1

    assert "Traceback" in caplog.text
    assert "that is wrong." in caplog.text


def test_ctrl_c_is_130(fakes: Fakes) -> None:
    fakes.error = KeyboardInterrupt()

    assert program.main(["fake"]) == 130


def test_a_reader_that_left_is_no_traceback(tmp_path: pathlib.Path) -> None:
    # The child waits for the end of its input, so the reader has left before anything is written.
    code = (
        "import sys; from trtnode.serving.cli.serve import CONFIG; from trtnode.serving.cli import program\n"
        "program._parse = lambda *_: (__import__('argparse').Namespace(debug=False, log_level=None), CONFIG)\n"
        "sys.stdin.read(); sys.exit(program.main([]))"
    )
    reader, writer = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(reader)
    os.close(writer)

    _, err = child.communicate(timeout=240)

    assert (child.returncode, err) == (141, "")


def test_config_schema_prints_json_only(fakes: Fakes, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["config", "schema"]) == 0

    out, err = capsys.readouterr()
    assert out.startswith('{\n  "$schema"')
    assert err == ""


def test_a_configuration_fault_is_exit_code_2(
    fakes: Fakes, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    config = tmp_path / "servable.yaml"
    config.write_text("models:\n- name: a\n  path: gone.onnx\n")

    assert program.main(["serve", "--config", str(config)]) == 2

    assert capsys.readouterr().err == (
        f"trtnode: {config}:3: models[0].path: there is no file {tmp_path}/gone.onnx; correct the path\n"
    )


def test_serve_main_is_the_command_serve(
    fakes: Fakes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["serve", "--help"])
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # as the program itself does

    assert program.serve_main() == 0

    assert capsys.readouterr().out.startswith("usage: trtnode serve")


def test_the_list_of_commands_imports_neither_engines_nor_grpc() -> None:
    code = "import sys, trtnode.serving.cli.program, trtnode.serving.cli.serve; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert not {"openvino", "onnxruntime", "grpc", "pydantic", "numpy"} & set(done.stdout.split())


def test_an_older_protobuf_is_told_with_the_way_back(tmp_path: pathlib.Path) -> None:
    """Messages of grpcio's services come from a later protobuf than the installed one."""
    package = tmp_path / "grpc_health" / "v1"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "health_pb2.py").write_text(
        "from google.protobuf.runtime_version import Domain, ValidateProtobufRuntimeVersion as check\n"
        "check(Domain.PUBLIC, 99, 0, 0, '', 'health.proto')\n"
    )
    model = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
    command = [sys.executable, "-m", "trtnode", "serve", str(model), "--port", "0", "--http-port", "0"]
    done = subprocess.run(
        [*command, "--engine", "native"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 2
    assert "The installed protobuf is too old" in done.stderr
    assert "pip install 'trtnode[client]'" in done.stderr
