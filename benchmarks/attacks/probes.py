"""Probes of a server, as an orchestrator sends them: each on a connection of its own."""

from __future__ import annotations

import dataclasses
import http.client
import threading
import time
from collections.abc import Callable

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from benchmarks.attacks.sockets import Address

INTERVAL_S = 0.3
GIVE_UP_S = 10.0


@dataclasses.dataclass
class ProbeTimes:
    """Answers to one probe.

    Attributes:
        count: How many probes were sent.
        failed: How many got no answer, or another than that the server is ready.
        worst_s: The longest time until an answer.
    """

    count: int = 0
    failed: int = 0
    worst_s: float = 0.0

    def add(self, probe: Callable[[], bool]) -> None:
        """Send the probe once."""
        started = time.monotonic()
        good = probe()
        self.count += 1
        self.failed += not good
        self.worst_s = max(self.worst_s, time.monotonic() - started)


class Prober:
    """Sends both probes, each from a thread of its own, while the context lasts."""

    def __init__(self, http_address: Address, grpc_address: Address) -> None:
        self.http, self.grpc = ProbeTimes(), ProbeTimes()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(self.http, lambda: readyz(http_address))),
            threading.Thread(target=self._repeat, args=(self.grpc, lambda: health(grpc_address))),
        ]

    def __enter__(self) -> Prober:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, times: ProbeTimes, probe: Callable[[], bool]) -> None:
        while not self._over.wait(INTERVAL_S):
            times.add(probe)


def readyz(address: Address) -> bool:
    """Return whether ``/readyz`` says that the server is ready."""
    connection = http.client.HTTPConnection(*address, timeout=GIVE_UP_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def health(address: Address) -> bool:
    """Return whether the health service of gRPC says that the server serves."""
    alone = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"{address[0]}:{address[1]}", options=alone) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=GIVE_UP_S)
        except grpc.RpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
