"""Requests over plain HTTP, as no client library would send them."""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import Any

import numpy as np

from tests.serving.conftest import Running

ROW = np.array([[1, 2, 3]], np.float32)
LENGTH = "Inference-Header-Content-Length"
INFER = "/v2/models/two/infer"


def call(
    running: Running, path: str, body: bytes | None = None, *, method: str = "", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", running.server.http_port, timeout=120)
    with contextlib.closing(connection):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method or ("GET" if body is None else "POST"), path, body, named)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()


def refusal(running: Running, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    status, _, text = call(running, path, body, **headers)
    return status, json.loads(text)["error"]


def given(name: str = "a", **changes: Any) -> dict[str, Any]:
    fields = {"name": name, "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3], **changes}
    return {key: value for key, value in fields.items() if value is not None}


def request(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": inputs or [given("a"), given("b")], **more}).encode()


def with_tensors(text: bytes, tensors: bytes = 2 * ROW.tobytes()) -> tuple[bytes, dict[str, str]]:
    return text + tensors, {LENGTH: str(len(text))}


def fake_request(count: int) -> tuple[bytes, dict[str, str]]:
    text = request(given("x", shape=[count], data=None, parameters={"binary_data_size": 4 * count}),
                   parameters={"binary_data_output": True})  # fmt: skip
    return with_tensors(text, np.zeros(count, np.float32).tobytes())
