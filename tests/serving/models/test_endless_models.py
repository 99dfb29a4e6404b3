"""Models that never come back from their first run."""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import onnx
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Adders, Eventually, Starter
from trtnode.bench.server_process import free_port, wait_until_ready
from trtnode.serving.models import repository, warmup

ENDLESS = """<ir_version: 10, opset_import: ["": 21]>
g (float[1] x) => (float[1] y) {
    y = Loop (, , x) <body = b (int64 i, bool c, float[1] v) => (bool d, float[1] w) {
        d = Identity (c)
        w = Sin (v)
    }>
}"""
SETTINGS = json.dumps({"measure": False, "engine": "native"})


def endless() -> bytes:
    return onnx.parser.parse_model(ENDLESS).SerializeToString()


def load_endless(client: triton.InferenceServerClient) -> None:
    client.load_model("endless", config=SETTINGS, files={"file:1/model.onnx": endless()})


def test_an_endless_model_is_refused_in_time_and_holds_up_no_other(
    start: Starter, adders: Adders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "PATIENCE_S", 0.1)
    adders.write("m.onnx", 1)
    running = start(
        "- {name: m, path: m.onnx, engine: native}\n", server="admin: {repository: true}, limits: {load_timeout_s: 8}"
    )

    with ThreadPoolExecutor(1) as pool, triton.InferenceServerClient(running.address) as client:
        first = pool.submit(load_endless, client)
        time.sleep(1)  # it has begun
        running.client.load_model("m")
        assert not first.done()
        with pytest.raises(InferenceServerException, match=r"more than 8 s; raise server\.limits\.load_timeout_s"):
            first.result()

    assert adders.ask(running.client) == 1


def test_a_watched_endless_version_holds_up_no_other_model(
    start: Starter, adders: Adders, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(repository, "PATIENCE_S", 0.1)
    for name in ("m", "n"):
        adders.write(f"{name}/1/model.onnx", 1)
    entries = [f"- {{name: {name}, path: {name}, engine: native, watch: true, measure: false}}\n" for name in "mn"]
    running = start("".join(entries))

    (adders.folder / "m" / "2").mkdir()
    (adders.folder / "m" / "2" / "model.onnx").write_bytes(endless())
    time.sleep(3)
    adders.write("n/2/model.onnx", 2)

    eventually(lambda: adders.ask(running.client, model="n") == 2)
    assert adders.ask(running.client) == 1


def test_a_server_ends_while_an_endless_model_loads(tmp_path: pathlib.Path) -> None:
    (tmp_path / "m.onnx").write_bytes(endless())
    port = free_port()
    config = {
        "server": {"grpc": {"port": port}, "http": {"port": 0}},
        "cache": {"dir": str(tmp_path / "cache")},
        "models": [{"name": "m", "path": "m.onnx", "engine": "native", "measure": False, "required": False}],
    }
    (tmp_path / "servable.yaml").write_text(json.dumps(config))
    command = [sys.executable, "-m", "trtnode", "serve", "--config", str(tmp_path / "servable.yaml")]
    with subprocess.Popen(command) as process:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            wait_until_ready(channel, process)
        time.sleep(3)
        process.send_signal(signal.SIGTERM)

        assert process.wait(60) == 0


def test_a_warm_up_of_many_runs_ends(
    start: Starter, adders: Adders, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(warmup, "MOST_S", 0.001)
    adders.write("m.onnx", 1)
    running = start("- {name: m, path: m.onnx, engine: native, warmup: 10000}\n")

    assert adders.ask(running.client) == 1
    assert "the warm-up ended after" in caplog.text
