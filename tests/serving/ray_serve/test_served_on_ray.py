"""``trtnode serve --on ray`` as a process with a Ray cluster of its own, one for all tests."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2
from tritonclient.utils import InferenceServerException

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(600),  # starting a cluster takes long on a busy machine
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: make test-ray"),
]

EXAMPLE = pathlib.Path(__file__).parents[3] / "examples" / "digits"
START_S = 200
IMAGES = np.zeros((2, 1, 8, 8), np.float32)


class Served:
    """A server process on a Ray cluster, with two models of the same file."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.grpc, self.http = free_port(), free_port()
        model = shutil.copy(EXAMPLE / "digits.onnx", folder)
        settings = f"path: {model}, engine: native, scaling: {{replicas: 1, cpus: 0.5}}"
        config = folder / "servable.yaml"
        config.write_text(
            f"server: {{grpc: {{port: {self.grpc}}}, http: {{port: {self.http}}}}}\n"
            f"models: [{{name: digits, {settings}}}, {{name: numbers, {settings}}}]\n"
        )
        self.log = folder / "log"
        # Sockets in it have short names only.
        environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": str(folder)}
        environment.pop("RAY_ADDRESS", None)
        command = [sys.executable, "-m", "serving.cli", "serve", "--config", str(config), "--on", "ray"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log, env=environment)
        self.client = triton.InferenceServerClient(f"127.0.0.1:{self.grpc}")

    def wait_ready(self) -> None:
        """Wait as an operator does: by the probe."""
        deadline = time.monotonic() + START_S
        while self.get("/readyz")[0] != 200:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.5)

    def get(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", body, timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 0, b""

    def stop(self) -> int:
        """End it as an orchestrator does; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = pathlib.Path("/tmp") / f"ray{os.getpid()}"
    folder.mkdir()
    server = Served(folder)
    try:
        server.wait_ready()
        yield server
        assert server.stop() == 0, server.log.read_text()
        assert server.get("/livez")[0] == 0
    finally:
        server.process.kill()
        server.process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def image() -> Any:
    tensor = triton.InferInput("image", IMAGES.shape, "FP32")
    tensor.set_data_from_numpy(IMAGES)
    return tensor


def test_an_unchanged_client_gets_the_answers_of_a_plain_server(served: Served) -> None:
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
def test_errors_have_the_codes_of_a_plain_server(served: Served, model: str, tensor: str, code: str) -> None:
    wrong = triton.InferInput(tensor, IMAGES.shape, "FP32")
    wrong.set_data_from_numpy(IMAGES)

    with pytest.raises(InferenceServerException) as caught:
        served.client.infer(model, [wrong])

    assert caught.value.status() == f"StatusCode.{code}"


def test_what_changes_one_process_is_refused(served: Served) -> None:
    with pytest.raises(InferenceServerException, match=r"server\.admin\.repository allows it"):
        served.client.load_model("digits")


def test_a_stream_answers_each_of_its_requests(served: Served) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client = triton.InferenceServerClient(f"127.0.0.1:{served.grpc}")
    client.start_stream(lambda result, error: answers.put((result, error)))

    for number, name in enumerate(("digits", "letters", "numbers", "digits")):
        client.async_stream_infer(name, [image()], request_id=str(number))
    found = [answers.get(timeout=60) for _ in range(4)]
    client.stop_stream()

    assert {result.get_response().id for result, error in found if error is None} == {"0", "2", "3"}
    assert [str(error).count("there is no model 'letters'") for _, error in found if error is not None] == [1]


def test_the_http_proxy_answers_rest_and_probes(served: Served) -> None:
    body = {"inputs": [{"name": "image", "shape": [2, 1, 8, 8], "datatype": "FP32", "data": IMAGES.ravel().tolist()}]}

    status, answer = served.get("/v2/models/digits/infer", json.dumps(body).encode())

    assert status == 200
    assert json.loads(answer)["outputs"][0]["shape"] == [2, 10]
    assert served.get("/livez") == (200, b"live\n")
    assert json.loads(served.get("/v2/models/numbers")[1])["name"] == "numbers"
    assert served.get("/v2/models/letters")[0] == 404
    assert served.get("/v2/models/letters/infer", b"{}")[0] == 404


def test_the_health_service_answers_for_the_cluster(served: Served) -> None:
    check = served.client._channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )

    answer = check(health_pb2.HealthCheckRequest(), timeout=60)

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_metrics_tell_replicas_apart(served: Served) -> None:
    served.client.infer("digits", [image()])

    status, text = served.get("/metrics")

    assert status == 200
    assert re.search(rb'nv_inference_request_success{model="digits",replica="\w+",version="1"} [1-9]', text)


def test_the_log_warns_that_every_address_listens(served: Served) -> None:
    assert f"Ray's gRPC proxies listen on port {served.grpc} of every address" in served.log.read_text()
