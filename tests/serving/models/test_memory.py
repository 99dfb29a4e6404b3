"""Served models tell of their memory."""

from __future__ import annotations

import json
import pathlib
import re
import urllib.request
from collections.abc import Callable
from typing import Any

import onnx
import pytest

LARGE = """<ir_version: 10, opset_import: ["": 18]>
g (float[1, 262144] x) => (float[1, 262144] y) { a = Exp(x) b = Sigmoid(a) y = Neg(b) }"""


@pytest.fixture
def entry(tmp_path: pathlib.Path) -> str:
    onnx.save(onnx.parser.parse_model(LARGE), tmp_path / "m.onnx")
    return f"- {{name: m, path: {tmp_path / 'm.onnx'}, engine: native}}\n"


def get(url: str) -> str:
    with urllib.request.urlopen(url) as response:
        return str(response.read(), "utf-8")


def test_memory_stands_in_metrics_and_status(start: Callable[..., Any], entry: str) -> None:
    running = start(entry)

    found = dict(re.findall(r'trtnode_model_memory_bytes{.*kind="(\w+)".*} (\S+)', get(f"{running.http}/metrics")))
    told = json.loads(get(f"{running.http}/status.json"))["models"][0]["memory"]

    assert {kind: float(size) for kind, size in found.items()} == told
    assert told.keys() == {"resident", "weights", "engines"}
