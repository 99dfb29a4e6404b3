"""What one client can use up, and names that try to leave their place."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.utils import InferenceServerException


def infer(running, model: str, **options) -> None:
    x = triton.InferInput("x", [1], "FP32")
    x.set_data_from_numpy(np.zeros(1, np.float32))
    running.client.infer(model, [x], **options)


@pytest.mark.parametrize("size", [20_000, 200_000])
def test_headers_beyond_any_sensible_size_are_refused_and_the_server_goes_on(start_fake, size: int) -> None:
    running = start_fake()

    with pytest.raises(InferenceServerException) as caught:
        infer(running, "fake", headers={"authorization": "Bearer " + size * "x"})

    assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
    infer(running, "fake")


def test_calls_beyond_the_limit_of_a_connection_wait_in_their_client(start_fake, fake) -> None:
    running = start_fake(server="limits: {connection_requests: 1}")
    fake.gate.clear()

    with (
        ThreadPoolExecutor(2) as pool,
        grpc.insecure_channel(running.address, options=[("grpc.use_local_subchannel_pool", 1)]) as other,
    ):
        first = pool.submit(infer, running, "fake")
        assert fake.started.acquire(timeout=10)
        with pytest.raises(InferenceServerException) as caught:
            infer(running, "fake", client_timeout=0.3)
        assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
        assert fake.runs == 1
        health = health_pb2_grpc.HealthStub(other).Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        fake.gate.set()
        first.result()

    infer(running, "fake")


@pytest.mark.parametrize(
    "name",
    ["../two", "models/two", "/etc/passwd", "..", ".", "two/../two", "..\\two", "two\0", "%2e%2e/two", "TWO", ""],
)
def test_names_are_looked_up_and_never_become_paths(shared, name: str) -> None:
    with pytest.raises(InferenceServerException) as caught:
        infer(shared, name)

    assert caught.value.status() == "StatusCode.NOT_FOUND"
    assert not shared.client.is_model_ready(name)


@pytest.mark.parametrize("version", ["../1", "1/../1", "-1", "+1", "1.0", " 1", "\u0661"])
def test_versions_are_numbers_and_never_become_paths(shared, version: str) -> None:
    with pytest.raises(InferenceServerException) as caught:
        shared.client.infer("two", [], version)

    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
