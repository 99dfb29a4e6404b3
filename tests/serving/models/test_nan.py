"""A served model whose engine loses NaN, and requests that hold NaN."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from prometheus_client import generate_latest

from tests.serving.conftest import Running, Starter, given

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[N,2] x) => (float[N,2] y) { a = Relu(x) y = Neg(a) }"""


def answer(running: Running, *row: float) -> Sequence[float]:
    sent = given("x", np.array([row], np.float32))
    values: list[float] = running.client.infer("m", [sent]).as_numpy("y")[0].tolist()
    return values


def native_answers(running: Running) -> list[str]:
    lines = generate_latest(running.server.metrics.registry).decode().splitlines()
    return [line for line in lines if line.startswith("trtnode_native_fallback_total") and "non_finite" in line]


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_an_engine_answers_nan_where_the_model_says_so(start: Starter, path: pathlib.Path) -> None:
    running = start(f"- {{name: m, path: {path}, engine: openvino, nan: engine}}\n")

    assert answer(running, math.nan, -1) == [0, 0]
    assert native_answers(running) == []


def test_nan_in_a_batch_changes_no_answer_of_the_others(start: Starter, path: pathlib.Path) -> None:
    running = start(f"- {{name: m, path: {path}, engine: openvino, batching: {{max_queue_delay_us: 20000}}}}\n")
    rows = [(math.nan if number % 4 == 0 else float(number), 1.0) for number in range(16)]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda row: answer(running, *row), rows))

    assert answers == [[pytest.approx(-row[0], nan_ok=True), -1] for row in rows]
    assert native_answers(running)[0].endswith(" 4.0")
