"""``workers: N``: processes that share both ports, and the supervisor that keeps them. All of them are real."""

from __future__ import annotations

import json
import pathlib
import re
import socket

import numpy as np
import pytest
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.serving.workers.conftest import CONNECTIONS, Group, Launch, entry, infer, status_of

pytestmark = pytest.mark.slow


def test_workers_answer_as_one_server(running: Group) -> None:
    clients = running.connect_to_all()

    assert [infer(client) for client in clients] == [2] * CONNECTIONS

    assert [one.get_inference_statistics("m").model_stats[0].inference_count for one in clients] == (
        [CONNECTIONS] * CONNECTIONS
    )
    assert [one.state for one in clients[0].get_model_repository_index().models] == ["READY", "READY"]
    assert running.metric('nv_inference_request_success{model="m",version="1"}') == CONNECTIONS
    assert running.metric('trtnode_model_ready{model="m",version="1"}') == 1
    assert running.metric("trtnode_workers") == 2
    assert running.http("/livez") == (200, "live\n")
    assert all(client.is_server_ready() for client in clients)


def test_engines_are_built_by_one_worker_for_all(running: Group) -> None:
    assert running.metric('trtnode_engine_builds_total{model="digits",version="1"}') == 1
    assert running.connect().get_model_metadata("digits").platform == "openvino_onnx"


def test_rest_reaches_every_worker(running: Group) -> None:
    with triton_http.InferenceServerClient(running.http_address) as client:
        image = triton_http.InferInput("image", [1, 1, 8, 8], "FP32")
        image.set_data_from_numpy(np.zeros((1, 1, 8, 8), np.float32))
        answers = [client.infer("digits", [image]).as_numpy("probabilities") for _ in range(4)]
        statistics = client.get_inference_statistics("digits")["model_stats"][0]
        index = client.get_model_repository_index()
        with pytest.raises(InferenceServerException, match="model 'other' is not loaded"):
            client.load_model("other")

    assert {answer.shape for answer in answers} == {(1, 10)}
    assert statistics["inference_count"] == 4
    assert [one["state"] for one in index] == ["READY", "READY"]
    for number in running.pids:
        assert re.search(rf"HTTP on {running.http_address} .*\[worker='{number}'\]", running.log)


def test_the_status_page_is_about_all_workers(running: Group) -> None:
    status, text = running.http("/status.json")
    facts = {one["name"]: one for one in json.loads(text)["models"]}
    success = running.metric('nv_inference_request_success{model="m",version="1"}')

    assert status == 200
    assert facts["m"]["counts"]["success"] == success
    assert facts["digits"]["state"] == "READY"
    assert running.http("/")[1].startswith("<!doctype html>")
    assert "openvino" in running.http("/models/digits/versions/1/explain")[1]


def test_what_clients_may_take_is_bounded_as_with_one_process(running: Group) -> None:
    host, _, port = running.http_address.partition(":")
    head = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"

    for rest, status in (
        (b"a: b\r\n" * 98 + b"\r\n", b"400"),  # a worker answers: as many fields as may be, and no body
        (b"a: b\r\n" * 99 + b"\r\n", b"431"),
        (b"Content-Length: 68000000\r\n\r\n" + bytes(68_000_000), b"413"),
    ):
        with socket.create_connection((host, int(port)), timeout=120) as client:
            client.sendall(head + rest)
            answer = b"".join(iter(lambda client=client: client.recv(1 << 16), b""))  # type: ignore[misc]
        assert answer.startswith(b"HTTP/1.1 " + status)


def test_a_line_of_the_log_names_its_worker(running: Group) -> None:
    for number in "01":
        assert re.search(rf"Loaded model 'm' version 1 .*\[worker='{number}'\]", running.log)


def test_a_change_that_no_worker_can_make_is_refused_in_one_sentence(running: Group) -> None:
    client = running.connect()

    with pytest.raises(
        InferenceServerException,
        match=r"^\[StatusCode.INTERNAL\] model 'other' is not loaded: Request for unknown model",
    ):
        client.load_model("other")
    assert status_of(lambda: client.register_system_shared_memory("region", "no-such-object", 16)) == "INTERNAL"
    assert status_of(lambda: client.get_inference_statistics("other")) == "INVALID_ARGUMENT"
    assert status_of(lambda: client.update_log_settings({"log_info": False})) == "PERMISSION_DENIED"


@pytest.mark.parametrize(("section", "option"), [("grpc", "--port"), ("http", "--http-port")])
def test_a_second_server_does_not_get_a_port(
    running: Group, launch: Launch, models: pathlib.Path, section: str, option: str
) -> None:
    address, setting = (running.address, "port") if section == "grpc" else (running.http_address, "http_port")

    second = launch(entry(models), **{setting: int(address.rpartition(":")[2])})

    assert second.ended()[0] == 2
    assert second.log == (
        f"trtnode: can't listen on {address} (Address already in use); "
        f"change server.{section}.port ({option}) or server.{section}.host (--host), or stop what uses the port.\n"
    )
