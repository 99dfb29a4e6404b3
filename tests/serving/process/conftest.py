"""Health checks, and the status of a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2

from tests.serving.conftest import Running, given

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def infer(client: triton.InferenceServerClient, **options) -> np.ndarray:
    return client.infer("fake", [given("x", np.zeros(1, np.float32))], **options).as_numpy("y")


@pytest.fixture
def channel(shared: Running) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(shared.address) as channel:
        yield channel


def wait_until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.005)
