"""Files that ask for terabytes, loaded by a server that has other models to serve."""

from __future__ import annotations

import itertools
import pathlib
import textwrap
import types
from collections.abc import Callable

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

import stalls
from benchmarks.attacks import bombs
from tests.serving.conftest import Eventually, Running, Starter, given
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.serving.models import isolation

MOST_BYTES = 300 * 2**20
"""Most memory that the serving process may take besides its own, whatever it is asked to load."""

RELU = f"{bombs.HEADER} g (float[N] x) => (float[N] y) {{ y = Relu(x) }}"

ADMIN = "admin: {repository: true}"


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    onnx.save(onnx.parser.parse_model(RELU), tmp_path / "m.onnx")
    return tmp_path


@pytest.fixture
def models() -> str:
    return textwrap.dedent("""
        - {name: other, path: m.onnx, engine: native}
        - {name: m, path: m.onnx, engine: native, required: false}
    """)


def ask(client: triton.InferenceServerClient, model: str = "other") -> list[float]:
    return client.infer(model, [given("x", np.array([-1, 1], np.float32))]).as_numpy("y").tolist()


def memory_bytes(field: str) -> int:
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) * 1024


def forget_peak() -> None:
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def load(running: Running, model: onnx.ModelProto, timeout_s: float | None = None) -> None:
    files = {"file:1/model.onnx": model.SerializeToString()}
    running.client.load_model("m", config="{}", files=files, client_timeout=timeout_s)


def test_a_bomb_by_rpc_is_refused_and_takes_no_memory_of_the_server(
    start: Starter, folder: pathlib.Path, models: str, eventually: Eventually
) -> None:
    running = start(models, server=ADMIN)
    eventually(lambda: running.client.is_model_ready("m"))
    ask(running.client)
    forget_peak()
    idle = memory_bytes("VmRSS")

    for name, bomb in bombs.BOMBS.items():
        with pytest.raises(InferenceServerException, match=r"model 'm' is not loaded: .*model.onnx: ") as caught:
            load(running, bomb())
        assert "unexpected" not in str(caught.value), name
        assert ask(running.client, "m") == ask(running.client) == [0, 1]

    assert memory_bytes("VmHWM") - idle < MOST_BYTES


def test_a_bomb_in_a_watched_folder_is_refused_and_the_model_goes_on(
    start: Starter, folder: pathlib.Path, models: str, eventually: Eventually
) -> None:
    path = folder / "watched.onnx"
    onnx.save(onnx.parser.parse_model(RELU), path)
    running = start(models + "- {name: watched, path: watched.onnx, engine: native, watch: true}\n")
    forget_peak()
    idle = memory_bytes("VmRSS")

    onnx.save(bombs.BOMBS["concats"](), path)

    def reasons() -> list[str]:
        return [entry.reason for entry in running.client.get_model_repository_index().models]

    eventually(lambda: any("computes a constant" in reason for reason in reasons()))
    assert ask(running.client, "watched") == [0, 1]
    assert memory_bytes("VmHWM") - idle < MOST_BYTES


def test_a_load_that_takes_too_much_memory_is_ended(
    start: Starter, folder: pathlib.Path, models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(models, server=f"{ADMIN}, limits: {{load_memory_mb: 4096}}")
    monkeypatch.setattr(isolation, "prepare_next", stalls.allocate)

    with pytest.raises(InferenceServerException, match=r"more than 4096 MiB of memory; raise server.limits.load_m"):
        load(running, onnx.parser.parse_model(RELU.replace("Relu", "Abs")))

    assert ask(running.client) == [0, 1]


def test_a_load_that_takes_too_long_is_ended(
    start: Starter, folder: pathlib.Path, models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(models, server=f"{ADMIN}, limits: {{load_timeout_s: 60}}")
    monkeypatch.setattr(isolation, "prepare_next", stalls.stall)
    monkeypatch.setattr(SubprocessWorker, "call", short(SubprocessWorker.call))

    with pytest.raises(InferenceServerException, match=r"more than 60 s; raise server.limits.load_timeout_s"):
        load(running, onnx.parser.parse_model(RELU.replace("Relu", "Abs")))

    assert ask(running.client) == [0, 1]


def test_a_load_that_takes_too_long_in_the_server_itself_is_refused(
    start: Starter, folder: pathlib.Path, models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(models, server=f"{ADMIN}, limits: {{load_timeout_s: 60}}")
    monkeypatch.setattr(isolation, "time", types.SimpleNamespace(monotonic=itertools.count(0, 61).__next__))

    with pytest.raises(InferenceServerException, match=r"more than 60 s; raise server.limits.load_timeout_s"):
        load(running, onnx.parser.parse_model(RELU.replace("Relu", "Sign")))

    assert ask(running.client) == [0, 1]


def short(call: Callable[..., object]) -> Callable[..., object]:
    return lambda worker, function, _timeout_s, *arguments: call(worker, function, 0.5, *arguments)


def test_a_load_whose_caller_has_gone_is_ended_and_the_next_one_begins(
    start: Starter, folder: pathlib.Path, models: str, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    running = start(models, server=ADMIN)
    eventually(lambda: running.client.is_model_ready("m"))
    with monkeypatch.context() as patch:
        patch.setattr(isolation, "prepare_next", stalls.stall)
        with pytest.raises(InferenceServerException, match=r"Deadline"):
            load(running, onnx.parser.parse_model(RELU.replace("Relu", "Abs")), timeout_s=2)

    load(running, onnx.parser.parse_model(RELU.replace("Relu", "Neg")))

    assert ask(running.client, "m") == [1, -1]


def test_a_file_that_was_loaded_before_needs_no_process(
    start: Starter, folder: pathlib.Path, models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(models)
    monkeypatch.setattr(isolation, "prepare_next", stalls.stall)

    again = start(models)

    assert ask(again.client) == [0, 1]
