"""The health service of gRPC, ``grpc.health.v1.Health``.

grpcio-health-checking has a servicer too, but that one sends to watchers with its lock held, and takes the same lock in
gRPC's own thread when a watcher leaves: a change of status while a client cancels its watch stops the server for good.
"""

from __future__ import annotations

import functools
import threading

import grpc
from grpc_health.v1 import health_pb2

from trtnode.serving.grpc.rpc import Rpc, parser_of
from trtnode.serving.grpc.streams import Stream
from trtnode.serving.service.call import Call

SERVICE_NAME = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
OVERALL = ""
"""The name that stands for the server as a whole."""

Status = health_pb2.HealthCheckResponse
_parse = parser_of(health_pb2.HealthCheckRequest)


class HealthService:
    """Tells clients whether services are serving, when they ask (Check) and when it changes (Watch)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statuses: dict[str, int] = {}
        self._watchers: dict[str, set[Stream]] = {}

    def set(self, services: tuple[str, ...], *, serving: bool) -> None:
        """Change the status of services, and tell their watchers."""
        status = Status.SERVING if serving else Status.NOT_SERVING
        with self._lock:  # so that each watcher sees changes in order
            for service in services:
                self._statuses[service] = status
                for watcher in self._watchers.get(service, ()):
                    watcher.send(_message(status))

    def check_rpc(self) -> Rpc:
        """Return Check, which needs no token: an orchestrator's probes have none."""
        return Rpc("Check", _parse, self._check)

    def watch_rpc(self) -> Rpc:
        """Return Watch, for streams; it needs no token either."""
        return Rpc("Watch", _parse, self._watch)

    def _check(self, request: health_pb2.HealthCheckRequest, call: Call) -> None:
        status = self._statuses.get(request.service)
        if status is None:
            call.fail(grpc.StatusCode.NOT_FOUND, f"there is no service {request.service[:200]!r} here")
        else:
            call.reply(_message(status))

    def _watch(self, request: health_pb2.HealthCheckRequest, call: Call) -> None:
        service, watcher = request.service, call.writer
        assert isinstance(watcher, Stream)
        with self._lock:
            watcher.send(_message(self._statuses.get(service, Status.SERVICE_UNKNOWN)))
            self._watchers.setdefault(service, set()).add(watcher)
        if not call.add_callback(functools.partial(self._leave, service, watcher)):
            self._leave(service, watcher)  # the client is gone already

    def _leave(self, service: str, watcher: Stream) -> None:
        with self._lock:
            watchers = self._watchers.get(service, set())
            watchers.discard(watcher)
            if not watchers:  # clients may ask for any name, and these must not pile up
                self._watchers.pop(service, None)


def _message(status: int) -> bytes:
    return bytes(Status(status=status).SerializeToString())
