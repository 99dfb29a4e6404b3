"""Served models: what is told of their memory, and approximations of their activations."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton

from stand_in_workers import InProcessWorker, LoadingHere

LARGE = """<ir_version: 10, opset_import: ["": 18]>
g (float[1, 262144] x) => (float[1, 262144] y) { a = Exp(x) b = Sigmoid(a) y = Neg(b) }"""


@pytest.fixture
def entry(tmp_path: pathlib.Path) -> str:
    onnx.save(onnx.parser.parse_model(LARGE), tmp_path / "m.onnx")
    return f"- {{name: m, path: {tmp_path / 'm.onnx'}, engine: native, approximate: APPROXIMATE}}\n"


def get(url: str) -> str:
    with urllib.request.urlopen(url) as response:
        return str(response.read(), "utf-8")


def test_memory_stands_in_metrics_and_status(start: Callable[..., Any], entry: str) -> None:
    running = start(entry.replace("APPROXIMATE", "false"))

    found = dict(re.findall(r'trtnode_model_memory_bytes{.*kind="(\w+)".*} (\S+)', get(f"{running.http}/metrics")))
    told = json.loads(get(f"{running.http}/status.json"))["models"][0]["memory"]

    assert {kind: float(size) for kind, size in found.items()} == told
    assert told["native_arena"] == 2 * 2**20
    assert told.keys() == {"resident", "weights", "engines", "boundary", "boundary_reused", "native_arena"}


@pytest.mark.slow
@pytest.mark.parametrize(("key", "expected"), [("true", -0.5 - 1 / 6), ("false", -1 / (1 + np.exp(-1)))])
def test_a_model_is_served_with_the_approximations_that_pay(
    key: str, expected: float, start: Callable[..., Any], entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trtnode.serving.models.isolation.SubprocessWorker", LoadingHere)
    module = "trtnode.engines.compile.approximation"
    monkeypatch.setattr(f"{module}.SubprocessWorker", lambda: contextlib.nullcontext(InProcessWorker()))
    monkeypatch.setattr(f"{module}.is_faster", lambda *_: True)
    monkeypatch.setattr(f"{module}._gain", lambda _: 1.5)
    for name in ("PLACE_S", "WHOLE_S"):
        monkeypatch.setattr(f"{module}.{name}", 0.02)
    running = start(entry.replace("APPROXIMATE", key))
    x = triton.InferInput("x", [1, 262144], "FP32")
    x.set_data_from_numpy(np.zeros((1, 262144), np.float32))

    y = running.client.infer("m", [x]).as_numpy("y")

    np.testing.assert_allclose(y, expected, rtol=1e-5)
