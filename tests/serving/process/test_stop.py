"""A server that stops, and ports that can not be opened."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import FakeExecutable, Running, Starter, StartFake
from tests.serving.process.conftest import NOT_SERVING, SERVING, infer, wait_until
from trtnode.bench.server_process import inference_request
from trtnode.serving.errors import AddressError
from trtnode.serving.grpc.server import FLUSH_S

STREAM_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
BODY = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}).encode()


def test_a_stop_lets_requests_finish_and_sends_clients_away(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake()
    fake.gate.clear()

    with ThreadPoolExecutor(8) as pool, grpc.insecure_channel(running.address) as channel, kept(running) as connection:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == SERVING
        accepted = [pool.submit(infer, running.client) for _ in range(6)]
        wait_until(lambda: running.server.in_flight == 6)
        assert ask(connection, "/readyz")[:2] == (200, None)
        stopped = pool.submit(running.server.stop, 20)
        assert next(watch).status == NOT_SERVING
        wait_until(lambda: is_turned_away(running.client))
        assert ask(connection, "/livez")[:2] == (200, "close")
        fake.gate.set()
        assert [answer.result().tolist() for answer in accepted] == [[1]] * 6
        watch.cancel()  # the server would give it time to end
        assert stopped.result() is True

    assert fake.closed


def test_requests_are_answered_until_the_delay_of_a_stop_is_over(start_fake: StartFake) -> None:
    running = start_fake(server="shutdown_delay_s: 1.5")

    with ThreadPoolExecutor(1) as pool, kept(running) as connection:
        assert ask(connection, "/readyz")[0] == 200
        stopped = pool.submit(running.server.stop, 20)
        wait_until(lambda: not running.client.is_server_ready())
        assert infer(running.client).tolist() == [1]
        status, told, content = ask(connection, "/v2/models/fake/infer", BODY)
        assert (status, told, json.loads(content)["outputs"][0]["data"]) == (200, "close", [2])
        assert ask(connection, "/readyz")[::2] == (503, b"the server is stopping\n")
        assert stopped.result() is True


def test_clients_with_another_address_go_there_without_an_error(start_fake: StartFake) -> None:
    first, second = start_fake(), start_fake()
    errors: list[Exception] = []
    ended = threading.Event()

    def call() -> None:
        own = [("grpc.use_local_subchannel_pool", 1)]
        with triton.InferenceServerClient(f"ipv4:{first.address},{second.address}", channel_args=own) as client:
            while not ended.is_set():
                try:
                    infer(client)
                except InferenceServerException as error:
                    errors.append(error)

    with ThreadPoolExecutor(6) as pool:
        callers = [pool.submit(call) for _ in range(6)]
        wait_until(lambda: answers_of(first) > 60)
        assert answers_of(second) == 0
        assert first.server.stop(20)
        wait_until(lambda: answers_of(second) > 60)
        ended.set()
        for caller in callers:
            caller.result()

    assert errors == []


def kept(running: Running) -> contextlib.closing[http.client.HTTPConnection]:
    return contextlib.closing(http.client.HTTPConnection(running.http.removeprefix("http://")))


def is_turned_away(client: triton.InferenceServerClient) -> bool:
    try:
        return not client.is_server_live()
    except InferenceServerException as error:
        return "Failed to connect" in error.message()


def ask(connection: http.client.HTTPConnection, path: str, body: bytes | None = None) -> tuple[int, str | None, bytes]:
    """Return status, the header ``Connection`` and the content of an answer."""
    connection.request("GET" if body is None else "POST", path, body)
    answer = connection.getresponse()
    return answer.status, answer.getheader("connection"), answer.read()


def answers_of(running: Running) -> int:
    (counts,) = running.client.get_inference_statistics("fake").model_stats if running.server.models else [None]
    return 0 if counts is None else int(counts.inference_count)


def test_a_stop_lets_a_client_that_reads_slowly_take_every_answer(start_fake: StartFake, fake: FakeExecutable) -> None:
    running, count = start_fake(server="limits: {stream_buffer_mb: 256}"), 50
    request = inference_request("fake", {"x": np.zeros(1 << 18, np.float32)}).SerializeToString()
    options = [("grpc.max_receive_message_length", -1)]

    with grpc.insecure_channel(running.address, options) as channel, ThreadPoolExecutor(1) as pool:
        answers = channel.stream_stream(STREAM_METHOD)(itertools.repeat(request, count))
        next(answers)
        wait_until(lambda: fake.runs == count and not running.server.in_flight)
        stopped = pool.submit(running.server.stop, 60)
        for _ in range(count - 1):
            time.sleep(1.1 * FLUSH_S / count)  # more than FLUSH_S for all of them, much less for each
            next(answers)
        assert stopped.result() is True


def test_a_stop_gives_up_on_requests_after_the_grace_time(
    start_fake: StartFake, fake: FakeExecutable, caplog: pytest.LogCaptureFixture
) -> None:
    running = start_fake()
    fake.gate.clear()

    with ThreadPoolExecutor(1) as pool:
        cut = pool.submit(infer, running.client)
        wait_until(lambda: running.server.in_flight == 1)
        assert running.server.stop(0.2) is False
        fake.gate.set()
        with pytest.raises(InferenceServerException):
            cut.result()

    assert "1 requests are cut off: they did not finish within 0.2 s" in caplog.text


@pytest.mark.parametrize(("section", "option"), [("grpc", "--port"), ("http", "--http-port")])
def test_a_busy_port_is_told_with_its_setting(
    start_fake: StartFake, start: Starter, fake: FakeExecutable, section: str, option: str
) -> None:
    first = start_fake().server
    port = first.port if section == "grpc" else first.http_port
    other = "http" if section == "grpc" else "grpc"

    with pytest.raises(AddressError) as caught:
        start(
            "- {name: fake, path: fake.onnx}",
            ports=f"{section}: {{port: {port}}}, {other}: {{port: 0}}",
            loader=lambda model: fake,
        )

    assert str(caught.value) == (
        f"can't listen on 127.0.0.1:{port} (Address already in use); "
        f"change server.{section}.port ({option}) or server.{section}.host (--host), or stop what uses the port."
    )


@pytest.mark.parametrize("section", ["grpc", "http"])
def test_a_host_that_does_not_exist_is_told_with_its_setting(
    start: Starter, fake: FakeExecutable, section: str
) -> None:
    other = "http" if section == "grpc" else "grpc"

    with pytest.raises(AddressError, match=rf"can't listen on host\.invalid:0 .*server\.{section}\.host"):
        start(
            "- {name: fake, path: fake.onnx}",
            ports=f"{section}: {{host: host.invalid, port: 0}}, {other}: {{port: 0}}",
            loader=lambda model: fake,
        )


def test_a_stop_ends_watches_and_reflection_that_clients_hold_open(start_fake: StartFake) -> None:
    running = start_fake()
    questions: queue.SimpleQueue = queue.SimpleQueue()
    questions.put(reflection_pb2.ServerReflectionRequest(list_services=""))
    with grpc.insecure_channel(running.address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        reflect = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter(questions.get, None))
        assert next(watch).status == SERVING
        assert next(reflect).list_services_response.service

        assert running.server.stop(5)

        assert next(watch).status == NOT_SERVING
        for call in (watch, reflect):
            with pytest.raises(grpc.RpcError, match="the server is stopping"):
                next(call)
            assert call.code() is grpc.StatusCode.UNAVAILABLE
        questions.put(None)
