"""``trtnode serve`` as a process: signals and exit codes."""

from __future__ import annotations

import contextlib
import pathlib
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.serving.server_process import SERVE, ServerProcess

DRIVER = """
import logging, pathlib, sys, time
from tests.serving.conftest import given
from trtnode.serving.config.load import load_config
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.process.signals import run_until_signal
from trtnode.serving.process.single_process import Server

def say(text):
    print(text, file=sys.stderr, flush=True)

def load(model):
    {load}
    executable = engine_loader(config)(model)
    run = executable.run_checked

    def slow(feeds, outputs=None, times=None):
        say("running")
        time.sleep(60)
        return run(feeds, outputs, times)

    executable.run_checked = slow
    return executable

logging.basicConfig(level="INFO")
config = load_config(pathlib.Path(sys.argv[1]))
sys.exit(run_until_signal(config, Server(config, load)))
"""
SLOW = [sys.executable, "-c", DRIVER.format(load="pass")]
EXAMPLE = pathlib.Path(__file__).parents[3] / "examples" / "digits"


@pytest.fixture
def launch(tmp_path: pathlib.Path, models: pathlib.Path, warm_cache: pathlib.Path) -> Iterator:
    launched: list[ServerProcess] = []

    def launch_server(
        server: str = "",
        model: str = "two",
        port: int = 0,
        command: Sequence[str] = SERVE,
        config: pathlib.Path | None = None,
    ) -> ServerProcess:
        launched.append(ServerProcess(config or write_config(server, model, port), command))
        return launched[-1]

    def write_config(server: str, model: str, port: int) -> pathlib.Path:
        config = tmp_path / f"servable{len(launched)}.yaml"
        config.write_text(
            f"server: {{grpc: {{port: {port}}}, http: {{port: 0}}, {server}}}\n"
            f"cache: {{dir: {warm_cache}}}\nmodels:\n"
            f"- {{name: m, path: {models / model}.onnx, engine: native, warmup: 0}}\n"
        )
        return config

    yield launch_server
    for process in launched:
        process.close()


def ones() -> list[triton.InferInput]:
    inputs = [triton.InferInput(name, [1, 3], "FP32") for name in "ab"]
    for one in inputs:
        one.set_data_from_numpy(np.ones((1, 3), np.float32))
    return inputs


def infer(client: triton.InferenceServerClient) -> np.ndarray:
    return client.infer("m", ones()).as_numpy("sum")


def test_ctrl_c_ends_the_server_in_order(launch: Iterator) -> None:
    process = launch()
    with process.client() as client:
        assert infer(client).tolist() == [[2, 2, 2]]

    code, log = process.end(signal.SIGINT)
    assert code == 0, log
    assert "Traceback" not in log
    assert log.rstrip().endswith("stopped")


def test_the_example_is_served_by_an_engine_that_is_built_once(launch: Iterator, tmp_path: pathlib.Path) -> None:
    config = tmp_path / "digits.yaml"
    config.write_text(
        "server: {grpc: {port: 0}, http: {port: 0}}\ncache: {dir: cache}\n"
        f"models:\n- {{name: digits, path: {EXAMPLE}/digits.onnx, engine: openvino}}\n"
    )
    samples = np.load(EXAMPLE / "test.npz")
    builds = []

    for _ in range(2):
        process = launch(config=config)
        with process.client() as client:
            metadata = client.get_model_metadata("digits")
            images = samples[metadata.inputs[0].name][:10]
            image = triton.InferInput(metadata.inputs[0].name, images.shape, "FP32")
            image.set_data_from_numpy(images)
            scores = client.infer("digits", [image]).as_numpy(metadata.outputs[0].name)
            with urllib.request.urlopen(f"http://{process.http_address}/metrics") as metrics:
                builds.append(re.search(r"trtnode_engine_builds_total{.*} (.*)", metrics.read().decode())[1])
        assert process.end()[0] == 0
        assert metadata.platform == "openvino_onnx"
        assert scores.argmax(1).tolist() == samples["label"][:10].tolist()

    assert builds == ["1.0", "0.0"]


def test_a_second_signal_ends_a_server_that_still_waits(launch: Iterator) -> None:
    process = launch(command=SLOW, server="shutdown_grace_s: 60")
    with process.client() as client, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(infer, client)
        process.wait_for("running")
        process.child.send_signal(signal.SIGTERM)
        with contextlib.suppress(InferenceServerException):  # the port is closed
            while client.is_server_ready():
                time.sleep(0.01)

        assert process.end(timeout_s=10)[0] == 128 + signal.SIGTERM
        with pytest.raises(InferenceServerException):
            answer.result(120)


def test_requests_that_outlast_the_grace_time_are_told_and_exit_code_1(launch: Iterator) -> None:
    process = launch(command=SLOW, server="shutdown_grace_s: 0.3")
    with process.client() as client, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(infer, client)
        process.wait_for("running")

        code, log = process.end(timeout_s=10)
        with pytest.raises(InferenceServerException):
            answer.result(120)
    assert code == 1
    assert "1 requests are cut off: they did not finish within 0.3 s" in log


@pytest.mark.parametrize(
    ("experiments", "reader"), [(None, "tcp_posix.cc"), ("event_engine_listener", "posix_endpoint.cc")]
)
def test_grpcs_server_thread_reads_the_socket_itself_unless_the_user_says_otherwise(
    launch: Iterator, monkeypatch: pytest.MonkeyPatch, experiments: str | None, reader: str
) -> None:
    monkeypatch.delenv("GRPC_EXPERIMENTS")
    if experiments is not None:
        monkeypatch.setenv("GRPC_EXPERIMENTS", experiments)
    monkeypatch.setenv("GRPC_VERBOSITY", "debug")
    monkeypatch.setenv("GRPC_TRACE", "tcp,event_engine_endpoint")

    process = launch()
    with process.client() as client:
        assert client.is_server_live()
    code, log = process.end()

    assert code == 0
    assert "Unknown experiment" not in log, "this version of grpcio has no such choice any more"
    assert {name for name in ("tcp_posix.cc", "posix_endpoint.cc") if name in log} == {reader}
