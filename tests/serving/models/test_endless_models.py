"""Models that never come back from their first run."""

from __future__ import annotations

import contextlib
import json
import pathlib
import time
from concurrent.futures import ThreadPoolExecutor

import onnx
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Adders, Eventually, Starter
from tests.serving.server_process import ServerProcess
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
        "- {name: m, path: m.onnx, engine: native}\n", server="admin: {repository: true}, limits: {load_timeout_s: 15}"
    )

    with ThreadPoolExecutor(1) as pool, triton.InferenceServerClient(running.address) as client:
        first = pool.submit(load_endless, client)
        time.sleep(1)  # it has begun
        running.client.load_model("m")
        assert not first.done()
        with pytest.raises(InferenceServerException, match=r"more than 15 s; raise server\.limits\.load_timeout_s"):
            first.result()

    assert adders.ask(running.client) == 1


def test_a_watched_endless_version_holds_up_no_other_model(
    start: Starter, adders: Adders, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(repository, "PATIENCE_S", 0.1)
    for name in ("m", "n"):
        adders.write(f"{name}/1/model.onnx", 1)
    entries = [f"- {{name: {name}, path: {name}, engine: native, watch: true, measure: false}}\n" for name in "mn"]
    running = start("".join(entries), server="limits: {load_timeout_s: 15}")  # else its process goes on for minutes

    (adders.folder / "m" / "2").mkdir()
    (adders.folder / "m" / "2" / "model.onnx").write_bytes(endless())
    eventually(lambda: adders.index(running.client).get("2", ("",))[0] == "LOADING")
    adders.write("n/2/model.onnx", 2)

    eventually(lambda: adders.ask(running.client, model="n") == 2)
    assert adders.ask(running.client) == 1


def test_a_server_ends_while_an_endless_model_loads(tmp_path: pathlib.Path) -> None:
    (tmp_path / "m.onnx").write_bytes(endless())
    (tmp_path / "servable.yaml").write_text(
        "server: {grpc: {port: 0}, http: {port: 0}}\ncache: {dir: cache}\n"
        "models: [{name: m, path: m.onnx, engine: native, measure: false, required: false}]\n"
    )
    with contextlib.closing(ServerProcess(tmp_path / "servable.yaml")) as process:
        process.wait_for("ready on")
        process.wait_for("Partitioning")

        assert process.end(timeout_s=60)[0] == 0


def test_a_warm_up_of_many_runs_ends(
    start: Starter, adders: Adders, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(warmup, "MOST_S", 0.001)
    adders.write("m.onnx", 1)
    running = start("- {name: m, path: m.onnx, engine: native, warmup: 10000}\n")

    assert adders.ask(running.client) == 1
    assert "the warm-up ended after" in caplog.text
