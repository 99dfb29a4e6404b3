from __future__ import annotations

import errno
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from trtnode.engines import system_limits
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.build import subprocess_worker
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.prepare import prepare_model
from trtnode.engines.cores import PROC, control_groups
from trtnode.engines.errors import BuildError, OutOfMemoryError, SystemLimitError, ThreadLimitError, WorkerError
from trtnode.engines.openvino.cpu_plugin import CpuPlugin
from trtnode.engines.system_limits import as_limit


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with a model."""
    weights = numpy_helper.from_array(np.eye(64, dtype=np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="mm"), helper.make_node("Relu", ["m"], ["y"], name="r")]
    sides = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 64])] for name in "xy"]
    graph = helper.make_graph(nodes, "g", *sides, [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), tmp_path / "m.onnx")
    return tmp_path


@pytest.fixture
def limit() -> Iterator[Callable[[int], str]]:
    """Returns the words of a shell that limit its processes and threads: those of a user, or of a group for root."""
    if os.geteuid():
        yield lambda tasks: f"ulimit -u {system_limits._tasks_of_user() + tasks}"
        return
    try:
        group = next(control_groups(PROC, "pids")) / f"test-{uuid.uuid4().hex}"
        group.mkdir()
        (group / "pids.max").write_text("max")
    except (OSError, StopIteration):
        pytest.skip("no group of processes can be made")
    yield lambda tasks: f"echo {tasks} > {group}/pids.max; echo $$ > {group}/cgroup.procs"
    group.rmdir()


def compiled(folder: pathlib.Path, limited: str) -> tuple[int, str]:
    """Compile behind some words of a shell; return exit code and messages."""
    command = [sys.executable, "-m", "trtnode", "compile", "m.onnx", "-o", "out.onnx", "--cache", "cache"]
    shell = ["bash", "-c", f'{limited}; exec "$@"', "bash", *command, "--all-engines", "--engine", "openvino", "--json"]
    finished = subprocess.run(shell, cwd=folder, capture_output=True, text=True, timeout=120)
    return finished.returncode, finished.stdout + finished.stderr


@pytest.mark.parametrize("tasks", [5, 8])
def test_too_few_threads_are_told_as_such_and_leave_nothing_in_the_cache(
    folder: pathlib.Path, limit: Callable[[int], str], tasks: int
) -> None:
    code, told = compiled(folder, limit(tasks))

    assert code == 1, told
    assert re.search(r"(pids.max|ulimit -u) allows \d+, and about \d+ are needed\. Raise the limit\.", told)
    assert "kernel for" not in told
    assert "Traceback" not in told
    code, told = compiled(folder, "true")
    assert code == 0, told
    assert '"engine_nodes": 2' in told


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(RuntimeError("can't start new thread"), "starts no more processes or threads", id="python"),
        pytest.param(RuntimeError("pthread_create failed, error code: 11"), "starts no more", id="onnxruntime"),
        pytest.param(
            OSError(errno.EMFILE, os.strerror(errno.EMFILE)), r"raise the limit \(ulimit -n\), to 64", id="files"
        ),
        pytest.param(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "Free some disk space", id="disk"),
    ],
)
def test_a_failure_at_a_limit_of_the_system_is_none_of_a_model(error: Exception, expected: str) -> None:
    found = as_limit(error)

    assert isinstance(found, SystemLimitError)
    assert not isinstance(found, WorkerError | BuildError)
    with pytest.raises(SystemLimitError, match=expected):
        raise found


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("Check failed: std::bad_alloc")])
def test_a_failed_allocation_is_told_as_such(error: Exception) -> None:
    assert isinstance(as_limit(error), OutOfMemoryError)


def test_another_failure_is_no_limit() -> None:
    assert as_limit(RuntimeError("no kernel for Foo")) is None


def test_a_library_at_a_limit_refuses_no_operator(monkeypatch: pytest.MonkeyPatch, folder: pathlib.Path) -> None:
    plugin = CpuPlugin()

    class Limited:
        def read_model(self, _: str) -> None:
            raise RuntimeError("Resource temporarily unavailable")

    monkeypatch.setattr(plugin, "_core", Limited())

    with pytest.raises(ThreadLimitError):
        plugin.check_support(folder / "m.onnx")
    with pytest.raises(ThreadLimitError):
        plugin.build(folder / "m.onnx", {})


def test_a_model_that_could_not_be_compiled_for_a_limit_is_compiled_at_the_next_start(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ThreadLimitError("pids.max", 8, 34)

    cache = EngineCache(tmp_path, 1 << 30)
    options = CompileOptions(engine="openvino", all_engines=True)
    with monkeypatch.context() as limited:
        limited.setattr("trtnode.engines.compile.prepare.compile_model", refuse)
        prepared = prepare_model(folder / "m.onnx", options, cache, tmp_path)

    assert prepared.compiled is None
    assert not prepared.lasting
    assert "runs natively, since it can't be compiled: The system starts no more processes or threads: " in caplog.text
    assert prepare_model(folder / "m.onnx", options, cache, tmp_path).lasting


def test_a_child_that_the_system_killed_for_memory_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = iter([3, 4])
    monkeypatch.setattr(subprocess_worker, "out_of_memory_kills", lambda: next(kills))

    with SubprocessWorker() as worker, pytest.raises(OutOfMemoryError, match="has no memory left"):
        worker.call(signal.raise_signal, 60, signal.SIGKILL)


def test_the_limits_of_a_container_are_read(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = tmp_path / "cgroup" / "pod"
    group.mkdir(parents=True)
    (tmp_path / "cgroup").joinpath("pids.max").write_text("max\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/pod\n")
    (tmp_path / "self/mountinfo").write_text(f"1 2 0:1 / {tmp_path}/cgroup rw - cgroup2 cgroup2 rw\n")
    for name, content in (("pids.max", "20"), ("pids.current", "17"), ("memory.events", "oom 2\noom_kill 1\n")):
        (group / name).write_text(content)
    monkeypatch.setattr(system_limits, "PROC", tmp_path / "self")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    assert system_limits.out_of_memory_kills() == 1
    system_limits.check_tasks(3)
    with pytest.raises(ThreadLimitError, match=r"pod/pids.max allows 20, and about \d+ are needed. Raise the limit\."):
        system_limits.check_tasks(4)


def test_threads_that_find_no_memory_for_their_stacks_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1 << 28 if kind == resource.RLIMIT_DATA else -1, -1))

    assert isinstance(as_limit(RuntimeError("can't start new thread")), OutOfMemoryError)


def test_a_child_with_too_little_memory_for_its_libraries_says_so() -> None:
    with SubprocessWorker(memory_bytes=32 << 20) as worker, pytest.raises(OutOfMemoryError, match="more memory than"):
        worker.call(os.getpid, 60)
