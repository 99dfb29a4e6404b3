"""Resources that one client can use up, and names that try to leave their place."""

from __future__ import annotations

import pathlib
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Eventually, FakeExecutable, Running, Starter, StartFake, given
from trtnode.partitioner.model.garbage import without_collections


def infer(running: Running, model: str, **options) -> None:
    running.client.infer(model, [given("x", np.zeros(1, np.float32))], **options)


def test_requests_that_wait_for_one_model_do_not_hold_up_those_to_another(
    start: Starter, fake: FakeExecutable, eventually: Eventually
) -> None:
    quick = type(fake)()
    entry = "- {{name: {0}, path: fake.onnx, warmup: 0}}\n".format
    running = start(entry("slow") + entry("quick"), loader=lambda model: quick if model.name == "quick" else fake)
    fake.gate.clear()

    with ThreadPoolExecutor(8) as pool:
        slow = [pool.submit(infer, running, "slow") for _ in range(8)]
        eventually(lambda: running.server.in_flight == 8)
        infer(running, "quick", client_timeout=60)
        assert fake.runs == 1
        fake.gate.set()
        assert [one.result(120) for one in slow] == [None] * 8


@pytest.mark.parametrize("size", [20_000, 200_000])
def test_headers_beyond_any_sensible_size_are_refused_and_the_server_goes_on(start_fake: StartFake, size: int) -> None:
    running = start_fake()

    with pytest.raises(InferenceServerException) as caught:
        infer(running, "fake", headers={"authorization": "Bearer " + size * "x"})

    assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
    infer(running, "fake")


def test_calls_beyond_the_limit_of_a_connection_wait_in_their_client(
    start_fake: StartFake, fake: FakeExecutable
) -> None:
    running = start_fake(server="limits: {connection_requests: 1}")
    fake.gate.clear()

    with (
        ThreadPoolExecutor(2) as pool,
        grpc.insecure_channel(running.address, options=[("grpc.use_local_subchannel_pool", 1)]) as other,
    ):
        first = pool.submit(infer, running, "fake")
        assert fake.started.acquire(timeout=120)
        with pytest.raises(InferenceServerException) as caught:
            infer(running, "fake", client_timeout=0.3)
        assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
        assert fake.runs == 1
        health = health_pb2_grpc.HealthStub(other).Check(health_pb2.HealthCheckRequest(), timeout=120)
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        fake.gate.set()
        first.result()

    infer(running, "fake")


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("inference.GRPCInferenceService/ModelInfer", id="infer"),
        pytest.param("inference.GRPCInferenceService/ModelReady", id="ready"),
        pytest.param("inference.GRPCInferenceService/ModelStreamInfer", id="stream"),
        pytest.param("grpc.health.v1.Health/Check", id="health"),
        pytest.param("grpc.health.v1.Health/Watch", id="watch"),
        pytest.param("grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", id="reflection"),
    ],
)
def test_messages_that_can_not_be_parsed_use_up_nothing(
    start_fake: StartFake, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    running = start_fake(server="limits: {connection_requests: 16}")

    options = [("grpc.use_local_subchannel_pool", 1)]
    with without_collections(), grpc.insecure_channel(running.address, options=options) as channel:
        statuses = [status_of_bytes(channel, "/" + method, b"\xff\xff\xff\xff") for _ in range(40)]
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=120)

    assert set(statuses) == {"INVALID_ARGUMENT"}
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert "Traceback" not in caplog.text
    infer(running, "fake")


def status_of_bytes(channel: grpc.Channel, method: str, data: bytes) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        list(channel.stream_stream(method)(iter([data]), timeout=120))
    return caught.value.code().name


@pytest.mark.parametrize(
    "name",
    ["../two", "models/two", "/etc/passwd", "..", ".", "two/../two", "..\\two", "two\0", "%2e%2e/two", "TWO", ""],
)
def test_names_are_looked_up_and_never_become_paths(shared: Running, name: str) -> None:
    with pytest.raises(InferenceServerException) as caught:
        infer(shared, name)

    assert caught.value.status() == "StatusCode.NOT_FOUND"
    assert not shared.client.is_model_ready(name)


@pytest.mark.parametrize("version", ["../1", "1/../1", "-1", "+1", "1.0", " 1", "\u0661"])
def test_versions_are_numbers_and_never_become_paths(shared: Running, version: str) -> None:
    with pytest.raises(InferenceServerException) as caught:
        shared.client.infer("two", [], version)

    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_a_message_above_the_limit_is_refused_and_one_below_is_not(start: Starter, models: pathlib.Path) -> None:
    model = f"- {{name: FLOAT, path: {models}/FLOAT.onnx, engine: native}}"
    small, large = start(model, ports="grpc: {port: 0, max_message_mb: 1}, http: {port: 0}"), start(model)
    array = np.zeros((1, 1_500_000), np.float32)
    sent = [triton.InferInput("x", array.shape, "FP32")]
    sent[0].set_data_from_numpy(array)

    assert large.client.infer("FLOAT", sent).as_numpy("y").shape == array.shape
    with pytest.raises(InferenceServerException) as caught:
        small.client.infer("FLOAT", sent)
    assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
