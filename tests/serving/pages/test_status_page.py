"""The status page: what the server tells it."""

from __future__ import annotations

import json
import pathlib
import re
import urllib.error
import urllib.request
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Eventually, Running, Starter, StartFake, given
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.serving.pages.status_page import render_status_page
from trtnode.serving.telemetry.latency_steps import latency_bound_us
from trtnode.serving.telemetry.request_stats import Durations, ModelCounts

DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"


def told(running: Running, **headers: str) -> dict[str, Any]:
    request = urllib.request.Request(f"{running.http}/status.json", headers=headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def infer(running: Running, model: str = "fake") -> None:
    running.client.infer(model, [given("x", np.zeros(1, np.float32))])


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = render_status_page()

    assert re.findall(r'(?:href|src)="([^"]*)"', text) == ["metrics"]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import|<link|<iframe|innerHTML", text)
    assert "default-src 'none'" in text
    assert "connect-src 'self'" in text


@pytest.mark.parametrize("path", ["/", "/status"])
def test_the_page_holds_nothing_of_the_server(shared: Running, path: str) -> None:
    assert fetch(f"{shared.http}{path}") == (200, render_status_page())


def test_the_server_tells_what_happened_to_each_version(start_fake: StartFake) -> None:
    running = start_fake()
    for _ in range(5):
        infer(running)

    facts = told(running)

    (model,) = facts["models"]
    assert (model["name"], model["version"], model["state"], model["required"]) == ("fake", "1", "READY", True)
    assert model["counts"]["success"] == 5
    assert sum(count for _, count in model["counts"]["latencies"]) == 5
    assert model["counts"]["batches"] == [[1, 5]]
    assert facts["not_ready"] == []
    assert sum(answered for _, answered, *_ in model["history"]) == 5
    assert model["counts"]["recent_latencies"] == model["counts"]["latencies"]
    assert facts["memory_bytes"] > 1 << 20
    assert facts["uptime_s"] > 0
    assert {"onnxruntime", "openvino", "Python"} <= facts["libraries"].keys()


def test_the_server_tells_why_requests_failed(start_fake: StartFake) -> None:
    running = start_fake()
    y = given("y", np.zeros(1, np.float32))
    with pytest.raises(InferenceServerException):
        running.client.infer("fake", [y])
    with pytest.raises(InferenceServerException):
        infer(running, "absent")

    facts = told(running)

    (model,) = facts["models"]
    assert model["counts"]["failures"] == [["OTHER", 1]]
    assert [failed for _, _, failed, *_ in model["history"]] == [1]
    assert "no input 'y'" in model["last_failure"]["detail"]
    assert facts["unknown_requests"] == 1


def test_slots_before_a_number_are_left_out(start_fake: StartFake) -> None:
    running = start_fake()
    infer(running)
    ((number, *_),) = told(running)["models"][0]["history"]

    def history(since: str) -> tuple[int, dict[str, Any]]:
        status, text = fetch(f"{running.http}/status.json?since={since}")
        return status, json.loads(text)

    assert history(str(number))[1]["models"][0]["history"]
    assert history(str(number + 1))[1]["models"][0]["history"] == []
    assert history("soon") == (400, {"error": "since=soon is no slot; take a slot's number, or leave it out"})


def test_a_model_that_failed_is_told_with_its_reason(
    start: Starter, models: pathlib.Path, tmp_path: pathlib.Path, eventually: Eventually
) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    running = start(
        f"- {{name: two, path: {models}/two.onnx, engine: native}}\n- {{name: bad, path: bad.onnx, required: false}}\n"
    )
    eventually(lambda: told(running)["models"][1]["state"] != "LOADING")

    _, bad = told(running)["models"]

    assert (bad["state"], bad["required"], bad["runs"]) == ("UNAVAILABLE", False, None)
    assert "bad.onnx" in bad["reason"]


def test_where_nodes_run_adds_up_to_the_model(start: Starter) -> None:
    running = start(f"- {{name: digits, path: {DIGITS}, engine: openvino, partition: {{native_ops: [Relu]}}}}\n")

    (model,) = told(running)["models"]
    status, page = fetch(f"{running.http}/models/digits/versions/1/explain")

    runs = model["runs"]
    assert runs["engine_nodes"] + runs["native_nodes"] == 10
    assert runs["native_nodes"] >= 1
    assert (runs["engine"], runs["precision"], runs["rejected"]) == ("openvino", "fp32", [])
    assert status == 200
    assert f"{runs['engine_nodes']}</dd>" in page
    assert page.count('data-index="') > 10
    assert "USER_EXCLUDED" in page


def test_what_can_not_be_explained_says_why(start: Starter, tmp_path: pathlib.Path) -> None:
    compile_model(DIGITS, CompileOptions()).save(tmp_path / "compiled.onnx")
    running = start(f"- {{name: compiled, path: {tmp_path}/compiled.onnx}}\n")

    status, text = fetch(f"{running.http}/models/compiled/explain")

    assert status == 501
    assert "is compiled already" in json.loads(text)["error"]
    assert fetch(f"{running.http}/models/none/explain")[0] == 404
    assert told(running)["models"][0]["runs"]["engine_nodes"] == 10


@pytest.mark.parametrize("microseconds", [0.001, 1, 49.9, 1000, 123456, 5e6])
def test_a_latency_is_told_to_nine_percent(microseconds: float) -> None:
    counts = ModelCounts()
    counts.add_success(Durations(total=int(microseconds * 1000)))

    ((step, count),) = counts.snapshot().latencies.items()

    assert count == 1
    assert latency_bound_us(step) / 1.0906 <= microseconds <= latency_bound_us(step)
