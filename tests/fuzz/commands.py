"""Runs commands and readers on fuzzed files in a child process with bounded memory, one case at a time.

As a program (``python -m tests.fuzz.commands FOLDER``) it is that child: it takes a line of JSON a case, with the kind
and the file, and answers with a line of JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pathlib
import resource
import select
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable

import numpy as np
import onnx

from tests.workshop.index_sweep import CASES, run_case
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model

MEMORY_BYTES = 12 << 30
"""Address space of the child and of its children. Libraries reserve several GB of it without use."""
CASE_S = 120
ROOT = pathlib.Path(__file__).parents[2]


def _remove(file: pathlib.Path) -> None:
    if file.is_dir() and not file.is_symlink():
        file.rmdir()
    file.unlink(missing_ok=True)


def _put(file: pathlib.Path, what: str) -> None:
    """Put something in the place of a file that is none, or only says that it is large."""
    if what == "pipe":
        os.mkfifo(file)
    elif what == "folder":
        file.mkdir()
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(file))
    elif what == "sparse":
        with file.open("wb") as large:
            large.truncate(1 << 33)
    else:
        file.symlink_to("/dev/zero" if what == "device" else file.name)


class Commands:
    """The child, started again when a case has killed it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._child: subprocess.Popen[str] | None = None

    def outcome(self, kind: str, data: bytes) -> str:
        """Run one case; return what is wrong with how it ended, empty if nothing is."""
        kind, _, what = data.decode().partition(" ") if kind == "odd" else (kind, "", "")
        file = self._folder / {"yaml": "servable.yaml", "tokens": "tokens.yaml"}.get(kind, "model.onnx")
        _remove(file)
        if what:
            _put(file, what)
        else:
            file.write_bytes(data)
            file.chmod(0o600)
        if self._child is None:
            command = [sys.executable, "-m", "tests.fuzz.commands", str(self._folder)]
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ
            )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps({"kind": kind, "file": str(file)}) + "\n")
        self._child.stdin.flush()
        if not select.select([self._child.stdout], [], [], CASE_S)[0]:
            self.close()
            return f"takes longer than {CASE_S} s"
        answer = self._child.stdout.readline()
        if not answer:
            code = self._child.wait()
            self.close()
            return f"the process ended with {code}"
        return str(json.loads(answer))

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()


def _command(*arguments: str) -> str:
    """Run a command of ``trtnode``; return what is wrong with its end."""
    from trtnode.serving.cli.program import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*arguments])
    told = err.getvalue()
    if "unexpected " in told or "Traceback" in told:
        return f"{arguments[0]}: {told[-400:]}"
    if code not in (0, 1, 2) or (code and not told.strip()):
        return f"{arguments[0]}: exit code {code} with {told!r}"
    return ""


def _explain(file: pathlib.Path) -> str:
    return _command("explain", str(file), "--json", "--cache", str(file.with_name("cache")))


def _compile(file: pathlib.Path) -> str:
    output = str(file.with_name("output.onnx"))
    return _command("compile", str(file), "-o", output, "--json", "--cache", str(file.with_name("cache")))


def _compiled(file: pathlib.Path) -> str:
    inputs = file.with_name("inputs.npz")
    if not inputs.exists():
        np.savez(inputs, x=np.ones((2, 3), np.float32))
    cache = ["--cache", str(file.with_name("cache"))]
    ran = _command("run", str(file), "--inputs", str(inputs), "--outputs", str(file.with_name("out.npz")), *cache)
    return ran or _command("explain", str(file), "--json", *cache)


def _yaml(file: pathlib.Path) -> str:
    from trtnode.serving.config.load import load_config
    from trtnode.serving.errors import ConfigError

    with contextlib.suppress(ConfigError):
        load_config(file, {})
    return ""


def _tokens(file: pathlib.Path) -> str:
    from trtnode.serving.errors import ConfigError
    from trtnode.serving.security.tokens import Tokens

    with contextlib.suppress(ConfigError):
        Tokens(file)
    return ""


def _indices(file: pathlib.Path) -> str:
    """Run an operator with indices in an engine and natively; return the first that differs."""
    asked = json.loads(file.read_bytes())
    name, computed = asked["case"], asked["computed"]
    source = file.with_name(f"{name}-{computed}.onnx")
    compiled = source.with_suffix(".compiled.onnx")
    if not compiled.exists():
        header = f'<ir_version: 10, opset_import: ["": {CASES[name].opset}]>'
        onnx.save(onnx.parser.parse_model(f"{header} {CASES[name].text(computed=computed)}"), source)
        compile_model(source, CompileOptions(engine="openvino", all_engines=True)).save(compiled)
    here, natively = open_model(compiled), open_model(source)
    for index in asked["indices"]:
        one, other = (run_case(name, executable, index, computed=computed)[:2] for executable in (here, natively))
        refused = other[0] == "error" and (one[0] == "error" or computed)  # a clamp has no error
        if not refused and one != other:
            return f"indices: {name} with {index} gives {one}, natively {other}"
    return ""


KINDS: dict[str, Callable[[pathlib.Path], str]] = {
    "explain": _explain,
    "compile": _compile,
    "compiled": _compiled,
    "yaml": _yaml,
    "tokens": _tokens,
    "indices": _indices,
}


def _answer_cases() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    logging.disable()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print to stdout
    for line in sys.stdin:
        case = json.loads(line)
        try:
            wrong = KINDS[case["kind"]](pathlib.Path(case["file"]))
        except BaseException:
            wrong = traceback.format_exc()[-1500:]
        answers.write(json.dumps(wrong) + "\n")
        answers.flush()


if __name__ == "__main__":
    _answer_cases()
