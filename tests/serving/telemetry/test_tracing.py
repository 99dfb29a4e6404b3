"""Spans that a real collector gets over OTLP."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from tritonclient.utils import InferenceServerException

from model_texts import parse
from otlp_collector import Collector
from stateful_models import COUNTER
from tests.serving.conftest import Running, Starter, given
from trtnode.serving.errors import MissingExtraError

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
CLIENT_TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT_SPAN = "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{CLIENT_TRACE}-{CLIENT_SPAN}-01"}
PATIENCE_S = 120


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    one = Collector()
    yield one
    one.close()


@pytest.fixture
def traced(collector: Collector, start: Starter) -> Callable[..., Running]:
    """Start a server that sends spans, with the digits model cut in two by a native operator."""

    def start_server(batching: str = "null", server: str = "") -> Any:
        options = f"engine: openvino, partition: {{native_ops: [Relu]}}, warmup: 0, batching: {batching}"
        tracing = f"tracing: {{otlp_endpoint: 'http://127.0.0.1:{collector.port}'}}"
        return start(f"- {{name: digits, path: {DIGITS}, {options}}}\n", server=f"{tracing}, {server}")

    return start_server


def ask(client: triton.InferenceServerClient, rows: int = 1, **options: Any) -> None:
    client.infer("digits", images(rows), **options)


def images(rows: int) -> list[triton.InferInput]:
    return [given("image", np.zeros((rows, 1, 8, 8), np.float32))]


def facts(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_a_request_belongs_to_the_trace_of_its_client(traced: Callable[..., Running], collector: Collector) -> None:
    ask(traced().client, request_id="seven", headers=PARENT)

    (span,) = collector.requests()

    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (CLIENT_TRACE, CLIENT_SPAN)
    assert span.kind == Span.SPAN_KIND_SERVER
    assert facts(span) == {"trtnode.request_id": "seven", "trtnode.model": "digits", "trtnode.version": "1"}


def test_a_rest_request_belongs_to_the_trace_of_its_client(
    traced: Callable[..., Running], collector: Collector
) -> None:
    image = {"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0] * 64}
    body = json.dumps({"id": "seven", "inputs": [image]}).encode()
    request = urllib.request.Request(traced().http + "/v2/models/digits/infer", body, PARENT)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        assert answer.status == 200

    (span,) = collector.requests()

    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (CLIENT_TRACE, CLIENT_SPAN)
    assert facts(span)["trtnode.request_id"] == "seven"


def test_spans_show_the_queue_the_run_and_each_stage_in_order(
    traced: Callable[..., Running], collector: Collector
) -> None:
    ask(traced().client)

    (span,) = collector.requests()
    parts = collector.parts(span)
    stages = sorted(collector.parts(parts["run"]).values(), key=lambda stage: stage.start_time_unix_nano)

    assert sorted(parts, key=lambda name: parts[name].start_time_unix_nano) == ["read", "queue", "run", "write"]
    assert [facts(stage)["trtnode.stage"] for stage in stages][:3] == ["engine", "native", "engine"]
    assert all(is_inside(part, span) for part in parts.values())
    assert all(is_inside(stage, parts["run"]) for stage in stages)


def is_inside(span: Any, other: Any) -> bool:
    begins = other.start_time_unix_nano <= span.start_time_unix_nano
    return bool(begins and span.end_time_unix_nano <= other.end_time_unix_nano)


def test_a_batch_shows_its_rows_to_each_of_its_requests(traced: Callable[..., Running], collector: Collector) -> None:
    client = traced("{max_batch_size: 8, max_queue_delay_us: 20000}").client
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: ask(client), range(64)))

    batches = [collector.parts(span)["batch"] for span in collector.requests(64)]
    requests = Counter(facts(batch)["trtnode.rows"] for batch in batches)

    assert max(requests) > 1
    assert all(count % rows == 0 for rows, count in requests.items())
    assert all(collector.parts(batch) for batch in batches)


def test_a_step_names_its_sequence(collector: Collector, start: Starter, tmp_path: Path) -> None:
    onnx.save(parse(COUNTER), tmp_path / "counter.onnx")
    tracing = f"tracing: {{otlp_endpoint: 'http://127.0.0.1:{collector.port}'}}"
    models = f"- {{name: counter, path: {tmp_path}/counter.onnx, engine: native, warmup: 0, state: auto}}\n"
    running = start(models, server=tracing)

    inputs = [given("x", np.zeros((1, 1), np.float32))]
    running.client.infer("counter", inputs, sequence_id="a chat", sequence_start=True)

    assert facts(collector.requests()[0])["trtnode.sequence"] == "a chat"


def test_a_request_that_fails_says_why(traced: Callable[..., Running], collector: Collector) -> None:
    client = traced().client
    with pytest.raises(InferenceServerException):
        client.infer("digits", images(1), outputs=[triton.InferRequestedOutput("nothing")])

    (span,) = collector.requests()

    assert span.status.code == Status.STATUS_CODE_ERROR
    assert "nothing" in span.status.message
    assert facts(span)["error.type"] == "InvalidRequestError"


def test_clients_turn_tracing_off_and_on(traced: Callable[..., Running], collector: Collector) -> None:
    client = traced(server="admin: {settings: true}").client

    off = client.update_trace_settings(settings={"trace_level": ["OFF"]}).settings
    ask(client, request_id="unseen")
    on = client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}).settings
    ask(client, request_id="seen")

    assert [facts(span)["trtnode.request_id"] for span in collector.requests()] == ["seen"]
    assert (list(off["trace_level"].value), list(on["trace_level"].value)) == (["OFF"], ["TIMESTAMPS"])
    assert "trace" in client.get_server_metadata().extensions


def test_one_request_in_so_many_is_traced_and_all_that_belong_to_a_trace(
    traced: Callable[..., Running], collector: Collector
) -> None:
    client = traced(server="admin: {settings: true}").client
    client.update_trace_settings(settings={"trace_rate": "3"})

    for index in range(6):
        ask(client, request_id=f"own {index}")
    ask(client, request_id="theirs", headers=PARENT)

    assert [facts(span)["trtnode.request_id"] for span in collector.requests(3)] == ["own 0", "own 3", "theirs"]


@pytest.mark.parametrize(
    ("model", "setting", "value", "code", "text"),
    [
        ("", "trace_rate", "0", "INVALID_ARGUMENT", "trace_rate should be a whole number from 1"),
        ("", "trace_rate", "often", "INVALID_ARGUMENT", "not 'often'"),
        ("", "trace_level", "TENSORS", "UNIMPLEMENTED", "never writes tensors"),
        ("digits", "trace_level", "OFF", "UNIMPLEMENTED", "leave the model's name out"),
    ],
)
def test_trace_settings_that_can_not_be_are_refused(
    traced: Callable[..., Running], model: str, setting: str, value: str, code: str, text: str
) -> None:
    client = traced(server="admin: {settings: true}").client

    with pytest.raises(InferenceServerException) as caught:
        client.update_trace_settings(model, {setting: [value]})

    assert caught.value.status() == f"StatusCode.{code}"
    assert text in caught.value.message()
    assert list(client.get_trace_settings().settings["trace_level"].value) == ["TIMESTAMPS"]


def test_a_collector_that_is_away_stops_no_request(
    start: Starter, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trtnode.serving.telemetry.tracing.FLUSH_S", 0.1)
    tracing = f"tracing: {{otlp_endpoint: 'http://127.0.0.1:{free_port}'}}"
    running = start(f"- {{name: digits, path: {DIGITS}, engine: native}}\n", server=tracing)

    ask(running.client)


def test_without_opentelemetry_the_server_says_what_to_install(
    start: Starter, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.delitem(sys.modules, "trtnode.serving.telemetry.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    with pytest.raises(
        MissingExtraError, match=r"server\.tracing needs OpenTelemetry.*pip install 'trtnode\[tracing\]'"
    ):
        start(f"- {{name: digits, path: {DIGITS}}}\n", server="tracing: {otlp_endpoint: 'http://127.0.0.1:1'}")
