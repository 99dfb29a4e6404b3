"""A child that crashes, hangs or fails costs one call, never this process and never the next call."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import logging
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import pytest

from trtnode.engines.backends.progress import Progress, listening
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.errors import (
    EngineError,
    EngineRejectedError,
    ModelLoadError,
    OutOfMemoryError,
    OutOfRangeError,
    OutputFileError,
    UnknownBackendError,
    WorkerError,
)

# The child imports what it is told to run by name, so these live in a module that it can import.
FUNCTIONS = """
import ctypes, os, pathlib, signal, sys, threading, time
from trtnode.engines import errors
from trtnode.engines.backends import progress

def add(one, other=1): return one + other
def identify(): return os.getpid()
def leave(): os._exit(3)
def crash(): os.kill(os.getpid(), signal.SIGSEGV)
def hang(): time.sleep(1000)
def reject(): raise errors.EngineRejectedError("segment_0", "it is green.")
def exceed(): raise errors.OutOfRangeError("int64_range", "too large")
def refuse_load(): raise errors.ModelLoadError("m.onnx", "no")
def refuse_backend(): raise errors.UnknownBackendError("abacus", "auto")
def refuse_file(): raise errors.OutputFileError(pathlib.Path("f"), "full")
def divide(): return 1 // 0
def quit(): sys.exit(4)
def warn_and_leave(): warn(); leave()
def hold_lock(): return threading.Lock()
def raise_lock():
    error = errors.EngineError("locked")
    error.lock = threading.Lock()
    raise error
def echo(data): return data
def hang_after_progress(): progress.report(progress.Progress("phase", 0, 1, limit_s=0.3)); hang()
def warn(): os.write(2, b"a library's warning\\n")
def lack_memory_in_a_thread():
    fail = ctypes.CDLL("libstdc++.so.6")._ZSt17__throw_bad_allocv  # std::__throw_bad_alloc()
    threading.Thread(target=fail).start(); hang()
def shout(): print("on stdout"); return "done"
def shout_and_hang(): print("hanging", flush=True); time.sleep(1000)
def advance():
    for done in range(3):
        threading.Thread(target=progress.report, args=[progress.Progress("phase", done, 2)]).start()
    return "done"
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[types.ModuleType]:
    folder = tmp_path_factory.mktemp("functions")
    (folder / "worker_functions.py").write_text(FUNCTIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        import worker_functions

        yield worker_functions


@pytest.fixture(scope="module")
def child(functions: types.ModuleType) -> Iterator[SubprocessWorker]:
    with SubprocessWorker() as worker:
        yield worker


def test_function_runs_in_one_other_process(child: SubprocessWorker, functions: types.ModuleType) -> None:
    first = child.call(functions.identify, 60)

    assert first != os.getpid()
    assert child.call(functions.identify, 60) == first
    assert child.call(functions.add, 60, 2, other=3) == 5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("leave", r"The process that ran leave crashed \(exit code 3\)", id="exit"),
        pytest.param("crash", r"The process that ran crash crashed \(exit code -11\)", id="segmentation-fault"),
        pytest.param("quit", r"The process that ran quit crashed \(exit code 4\)", id="sys-exit"),
        pytest.param("hold_lock", "hold_lock failed: its result can't be sent", id="result-that-can-not-be-sent"),
        pytest.param("raise_lock", "raise_lock failed: its result can't be sent", id="error-that-can-not-be-sent"),
        pytest.param("divide", "divide failed: ZeroDivisionError: integer division", id="unexpected-error"),
    ],
)
def test_failure_of_the_child_is_an_error_and_the_next_call_works(
    name: str, message: str, child: SubprocessWorker, functions: types.ModuleType
) -> None:
    with pytest.raises(WorkerError, match=message):
        child.call(getattr(functions, name), 60)

    assert child.call(functions.add, 60, 1) == 2


def test_a_library_without_memory_in_its_own_thread_is_out_of_memory(
    child: SubprocessWorker, functions: types.ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(OutOfMemoryError, match="It takes more memory than its process may use"):
        child.call(functions.lack_memory_in_a_thread, 60)

    assert capfd.readouterr().err == ""
    assert child.call(functions.add, 60, 1) == 2


@pytest.mark.parametrize(("name", "failure"), [("warn", None), ("warn_and_leave", WorkerError)])
def test_what_a_library_writes_to_stderr_is_handed_on(
    name: str,
    failure: type[Exception] | None,
    child: SubprocessWorker,
    functions: types.ModuleType,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(failure) if failure else contextlib.nullcontext():
        child.call(getattr(functions, name), 60)

    assert capfd.readouterr().err == "a library's warning\n"


def test_each_call_hands_on_what_was_written_in_it(
    child: SubprocessWorker, functions: types.ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        child.call(functions.warn, 60)
        assert capfd.readouterr().err == "a library's warning\n"


def test_child_that_takes_too_long_is_stopped(child: SubprocessWorker, functions: types.ModuleType) -> None:
    process = child.call(functions.identify, 60)
    start = time.monotonic()

    with pytest.raises(WorkerError, match=r"hang took longer than 0\.3 s and was stopped"):
        child.call(functions.hang, 0.3)

    assert time.monotonic() - start < 30
    assert not pathlib.Path(f"/proc/{process}").exists()
    assert child.call(functions.add, 60, 1) == 2


def test_progress_limits_what_comes_behind_it(child: SubprocessWorker, functions: types.ModuleType) -> None:
    with pytest.raises(WorkerError, match=r"hang_after_progress took longer than 0\.3 s and was stopped"):
        child.call(functions.hang_after_progress, 600)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        pytest.param(signal.SIGKILL, r"The process that ran hang crashed \(exit code -9\)", id="killed"),
        pytest.param(signal.SIGSTOP, r"hang took longer than 1 s and was stopped", id="stopped"),
    ],
)
def test_child_that_gets_a_signal_at_work_costs_one_call(
    number: signal.Signals, message: str, child: SubprocessWorker, functions: types.ModuleType
) -> None:
    process = child.call(functions.identify, 60)
    sender = threading.Timer(0.2, os.kill, (process, number))
    sender.start()

    with pytest.raises(WorkerError, match=message):
        child.call(functions.hang, 1)

    sender.join()
    assert not pathlib.Path(f"/proc/{process}").exists()
    assert child.call(functions.add, 60, 1) == 2


def test_child_that_was_killed_between_calls_is_replaced(child: SubprocessWorker, functions: types.ModuleType) -> None:
    os.kill(child.call(functions.identify, 60), signal.SIGKILL)
    assert child._process is not None
    child._process.wait()

    assert child.call(functions.add, 60, 1) == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("reject", EngineRejectedError("segment_0", "it is green.")),
        ("exceed", OutOfRangeError("int64_range", "too large")),
        ("refuse_load", ModelLoadError("m.onnx", "no")),
        ("refuse_backend", UnknownBackendError("abacus", "auto")),
        ("refuse_file", OutputFileError(pathlib.Path("f"), "full")),
    ],
)
def test_engine_errors_cross_with_their_facts(
    name: str, expected: EngineError, child: SubprocessWorker, functions: types.ModuleType
) -> None:
    process = child.call(functions.identify, 60)

    with pytest.raises(type(expected)) as caught:
        child.call(getattr(functions, name), 60)

    assert str(caught.value) == str(expected)
    assert caught.value.__dict__ == expected.__dict__
    assert child.call(functions.identify, 60) == process


def test_large_data_crosses(child: SubprocessWorker, functions: types.ModuleType) -> None:
    data = os.urandom(3_000_000)

    assert child.call(functions.echo, 60, data) == data


def test_a_child_starts_while_other_threads_import_modules(
    child: SubprocessWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    loggers = {**logging.root.manager.loggerDict, **{f"m{number}": None for number in range(300_000)}}
    monkeypatch.setattr(logging.root.manager, "loggerDict", loggers)
    over = threading.Event()

    def add_loggers() -> None:
        for number in itertools.count():
            loggers[f"n{number}"] = None
            if over.wait(0.0001):
                return

    adding = threading.Thread(target=add_loggers)
    adding.start()
    try:
        assert child.call(os.getpid, 120) != os.getpid()
    finally:
        over.set()
        adding.join()


def test_threads_take_turns(child: SubprocessWorker, functions: types.ModuleType) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        sums = list(pool.map(lambda n: child.call(functions.add, 60, n, n), range(40)))

    assert sums == [2 * n for n in range(40)]


def test_ctrl_c_that_reaches_the_child_first_interrupts(child: SubprocessWorker, functions: types.ModuleType) -> None:
    with pytest.raises(KeyboardInterrupt):
        child.call(signal.raise_signal, 60, signal.SIGINT)

    assert child.call(functions.add, 60, 1) == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_interrupted_call_does_not_answer_the_next(
    child: SubprocessWorker, functions: types.ModuleType, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    child.call(functions.add, 60, 1)
    connection = child._connection
    assert connection is not None

    def interrupt(*_: Any) -> bool:
        raise error

    monkeypatch.setattr(type(connection), "poll", interrupt)
    with pytest.raises(error):
        child.call(functions.add, 60, 100)
    monkeypatch.undo()

    assert child.call(functions.add, 60, 1) == 2


def test_closed_worker_has_no_child_and_starts_another_when_asked(
    functions: types.ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    worker = SubprocessWorker()
    process = worker.call(functions.identify, 60)

    worker.close()
    worker.close()

    assert not pathlib.Path(f"/proc/{process}").exists()
    with worker:
        assert worker.call(functions.identify, 60) != process
        assert worker.call(functions.shout, 60) == "done"
    assert capfd.readouterr().out == ""  # a command's stdout is for its result


def test_unused_worker_starts_nothing() -> None:
    with SubprocessWorker() as worker:
        assert worker._process is None


def test_progress_comes_before_the_answer(child: SubprocessWorker, functions: types.ModuleType) -> None:
    said: list[Progress] = []

    with listening(said.append):
        child.call(functions.advance, 60)
        answer = child.call(functions.advance, 60)

    assert answer == "done"
    assert {progress.done for progress in said} == {0, 1, 2}


def test_progress_that_nobody_listens_to_is_logged(
    child: SubprocessWorker, functions: types.ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "trtnode.engines.backends.progress"):
        child.call(functions.advance, 60)
        child.call(functions.add, 60, 1)

    assert "phase (2 steps)" in caplog.text


@pytest.mark.parametrize("suspended", [False, True], ids=["running", "suspended"])
def test_child_ends_when_its_parent_is_killed_during_a_call(functions: types.ModuleType, suspended: bool) -> None:
    script = (
        "import worker_functions as functions; from trtnode.engines.build.subprocess_worker import SubprocessWorker; "
        "worker = SubprocessWorker(); "
        "print(worker.call(functions.identify, 60), flush=True); worker.call(functions.shout_and_hang, 600)"
    )
    path = os.pathsep.join([str(pathlib.Path(functions.__file__).parent), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    ) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        child = int(parent.stdout.readline())
        assert child != parent.pid
        assert parent.stderr.readline() == b"hanging\n"
        if suspended:
            os.kill(child, signal.SIGSTOP)

        parent.kill()

        assert parent.stderr.read() == b""  # ends when the last process that holds it is gone


def test_a_child_stands_back_behind_this_process_if_asked_to() -> None:
    with SubprocessWorker(niceness=3) as worker:
        assert worker.call(os.nice, 60, 0) == os.nice(0) + 3
