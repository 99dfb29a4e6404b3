"""``trtnode serve --on ray`` as a process with a Ray cluster of its own, one for all tests."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import pathlib
import queue
import re
import shutil
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2
from tritonclient.utils import InferenceServerException

from benchmarks.ray_cluster.served import ServedOnRay
from otlp_collector import Collector

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(600),  # starting a cluster takes long on a busy machine
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: make test-ray"),
]

EXAMPLE = pathlib.Path(__file__).parents[3] / "examples" / "digits"
TRACE = "0af7651916cd43dd8448eb211c80319c"
IMAGES = np.zeros((2, 1, 8, 8), np.float32)


class Watched(ServedOnRay):
    """A server on a cluster of its own, with two models of the same file and somebody who takes spans."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self.collector = Collector()
        self.client = triton.InferenceServerClient(f"127.0.0.1:{self.grpc}")
        path = shutil.copy(EXAMPLE / "digits.onnx", folder)
        settings = {"path": path, "engine": "native", "scaling": {"replicas": 1, "cpus": 0.5}}
        self.start(
            [{"name": "digits", **settings}, {"name": "numbers", **settings}],
            limits={"streams": 2},
            log={"level": "debug"},
            tracing={"otlp_endpoint": f"http://127.0.0.1:{self.collector.port}"},
        )


@pytest.fixture(scope="module")
def served() -> Iterator[Watched]:
    folder = pathlib.Path("/tmp") / f"ray{os.getpid()}"
    folder.mkdir()
    server = Watched(folder)
    try:
        yield server
        assert server.stop() == 0, server.log.read_text()
        assert server.get("/livez")[0] == 0
    finally:
        server.close()
        server.collector.close()
        shutil.rmtree(folder, ignore_errors=True)


def image() -> Any:
    tensor = triton.InferInput("image", IMAGES.shape, "FP32")
    tensor.set_data_from_numpy(IMAGES)
    return tensor


def test_an_unchanged_client_gets_the_answers_of_a_plain_server(served: Watched) -> None:
    client = served.client

    answer = client.infer("digits", [image()], request_id="one")

    assert (answer.get_response().id, answer.as_numpy("probabilities").shape) == ("one", (2, 10))
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("numbers")
    assert not client.is_model_ready("letters")
    assert client.get_server_metadata().name == "trtnode"
    assert client.get_model_metadata("digits").inputs[0].name == "image"
    assert client.get_model_config("numbers").config.name == "numbers"
    index = {(model.name, model.state) for model in client.get_model_repository_index().models}
    assert index == {("digits", "READY"), ("numbers", "READY")}
    (statistics,) = client.get_inference_statistics("digits").model_stats
    assert statistics.inference_count >= 1


@pytest.mark.parametrize(
    ("model", "tensor", "code"),
    [
        pytest.param("letters", "image", "NOT_FOUND", id="no-such-model"),
        pytest.param("digits", "picture", "INVALID_ARGUMENT", id="no-such-input"),
    ],
)
def test_errors_have_the_codes_of_a_plain_server(served: Watched, model: str, tensor: str, code: str) -> None:
    wrong = triton.InferInput(tensor, IMAGES.shape, "FP32")
    wrong.set_data_from_numpy(IMAGES)

    with pytest.raises(InferenceServerException) as caught:
        served.client.infer(model, [wrong])

    assert caught.value.status() == f"StatusCode.{code}"


def test_what_changes_one_process_is_refused(served: Watched) -> None:
    with pytest.raises(InferenceServerException, match=r"server\.admin\.repository allows it"):
        served.client.load_model("digits")


def test_a_stream_answers_each_of_its_requests(served: Watched) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client = triton.InferenceServerClient(f"127.0.0.1:{served.grpc}")
    client.start_stream(lambda result, error: answers.put((result, error)))

    for number, name in enumerate(("digits", "letters", "numbers", "digits")):
        client.async_stream_infer(name, [image()], request_id=str(number))
    found = [answers.get(timeout=60) for _ in range(4)]
    client.stop_stream()

    assert {result.get_response().id for result, error in found if error is None} == {"0", "2", "3"}
    assert [
        str(error).count("Request for unknown model: 'letters' is not found") for _, error in found if error is not None
    ] == [1]


def test_the_http_proxy_answers_rest_and_probes(served: Watched) -> None:
    body = {"inputs": [{"name": "image", "shape": [2, 1, 8, 8], "datatype": "FP32", "data": IMAGES.ravel().tolist()}]}

    status, answer = served.get("/v2/models/digits/infer", json.dumps(body).encode())

    assert status == 200
    assert json.loads(answer)["outputs"][0]["shape"] == [2, 10]
    assert served.get("/livez") == (200, b"live\n")
    assert json.loads(served.get("/v2/models/numbers")[1])["name"] == "numbers"
    assert served.get("/v2/models/letters")[0] == 404
    assert served.get("/v2/models/letters/infer", b"{}")[0] == 404


def test_the_health_service_answers_for_the_cluster(served: Watched) -> None:
    check = served.client._channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )

    answer = check(health_pb2.HealthCheckRequest(), timeout=60)

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_metrics_tell_replicas_apart(served: Watched) -> None:
    served.client.infer("digits", [image()])

    status, text = served.get("/metrics")

    assert status == 200
    assert re.search(rb'nv_inference_request_success{model="digits",replica="\w+",version="1"} [1-9]', text)


def test_the_log_warns_that_every_address_listens(served: Watched) -> None:
    assert f"Ray's gRPC proxies listen on port {served.grpc} of every address" in served.log.read_text()


def test_a_trace_of_a_client_goes_on_in_the_replica(served: Watched) -> None:
    served.client.infer("digits", [image()], headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})

    spans = served.collector.of_trace(TRACE)

    assert [span.parent_span_id.hex() for span in spans] == ["b7ad6b7169203331"]
    assert {"trtnode.model": "digits"}.items() <= {
        fact.key: fact.value.string_value for fact in spans[0].attributes
    }.items()


def test_a_line_of_the_log_names_request_model_and_replica(served: Watched) -> None:
    served.client.infer("numbers", [image()], request_id="rolling")

    line = re.compile(
        r"ModelInfer of .*: OK in .*deployment='numbers' replica='\w+'.*request_id='rolling' model='numbers'"
    )
    deadline = time.monotonic() + 60
    while not line.search(served.log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert line.search(served.log.read_text())


def test_streams_beyond_the_limit_are_refused(served: Watched) -> None:
    clients = [triton.InferenceServerClient(f"127.0.0.1:{served.grpc}") for _ in range(3)]
    answers: list[queue.Queue[tuple[Any, Any]]] = [queue.Queue() for _ in clients]

    for client, found in zip(clients, answers, strict=True):
        client.start_stream(functools.partial(lambda found, result, error: found.put((result, error)), found))
        with contextlib.suppress(InferenceServerException):  # of a stream that is refused already
            client.async_stream_infer("digits", [image()])
        found.put(found.get(timeout=60))
    errors = [found.get()[1] for found in answers]
    for client in clients:
        client.stop_stream()

    assert errors[:2] == [None, None]
    assert "2 streams are open, the most" in str(errors[2])
