from __future__ import annotations

import errno
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.errors import ProcessStartError
from trtnode.engines.interpreter import start_interpreter
from workshop import prepare_and_open

ECHO = """
import sys
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
connection.send((connection.recv(), sys.argv[2:], sys.stdin.read()))
"""


def test_a_child_talks_to_its_parent_alone() -> None:
    process, connection = start_interpreter(ECHO)

    with connection:
        connection.send({"any": "object"})
        assert connection.recv() == ({"any": "object"}, [], "")
    assert process.wait(60) == 0


def test_a_child_inherits_the_files_that_it_is_told_of() -> None:
    with tempfile.TemporaryFile() as file:
        code = "import os, sys; os.write(int(sys.argv[2]), b'from the child')"
        process, connection = start_interpreter(code, files=[file.fileno()])
        connection.close()
        assert process.wait(60) == 0

        assert os.pread(file.fileno(), 99, 0) == b"from the child"


def test_a_child_imports_nothing_from_the_current_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mailbox", "onnx", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("import os; os._exit(9)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", ".", *sys.path])

    process, connection = start_interpreter("import mailbox, onnx")

    connection.close()
    assert process.wait(60) == 0


def test_the_other_end_closes_with_its_process() -> None:
    process, connection = start_interpreter("import os; os._exit(3)", stdout=subprocess.DEVNULL)

    with connection:
        assert connection.poll(60)
    assert process.wait(60) == 3


@pytest.mark.usefixtures("no_kept_workers")
@pytest.mark.parametrize(
    ("number", "told"),
    [
        pytest.param(errno.EAGAIN, "(Resource temporarily unavailable). This user or container has as many", id="pids"),
        pytest.param(errno.ENOMEM, "(Cannot allocate memory). The machine or container has no memory", id="memory"),
        pytest.param(errno.ENOENT, "(No such file or directory). The interpreter has gone", id="gone"),
        pytest.param(errno.EIO, "(Input/output error). Check the limits", id="other"),
    ],
)
def test_a_process_that_can_not_be_started_is_told_with_its_reason(
    number: int, told: str, model: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), sys.executable)

    monkeypatch.setattr(subprocess, "Popen", fail)

    with pytest.raises(ProcessStartError) as error:
        compile_model(model, CompileOptions(engine="openvino"))

    assert str(error.value).startswith(f"A process of {sys.executable} can't be started {told}")


@pytest.mark.usefixtures("no_kept_workers")
@pytest.mark.parametrize("made", ["os.memfd_create", "multiprocessing.Pipe"])
def test_a_process_for_which_too_many_files_are_open_is_told(
    made: str, model: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(made, fail)

    with pytest.raises(ProcessStartError, match=r"\(Too many open files\)\. This process has as many files open"):
        compile_model(model, CompileOptions(engine="openvino"))


@pytest.mark.usefixtures("no_kept_workers")
def test_a_served_model_runs_natively_where_no_process_can_be_started(
    model: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", str(model.with_name("gone")))

    executable = prepare_and_open(model, CompileOptions(engine="openvino"))

    assert executable.facts.engine == "native"
    assert "can't be started (No such file or directory)" in caplog.text
    executable.close()
