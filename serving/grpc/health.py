"""The health service of gRPC, ``grpc.health.v1.Health``.

grpcio-health-checking has a servicer too, but that one sends to watchers with its lock held, and takes the same lock in
gRPC's own thread when a watcher leaves: a change of status while a client cancels its watch stops the server for good.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from trtnode.serving.grpc.codec import parser_of
from trtnode.serving.grpc.unary_rpc import UnaryRpc
from trtnode.serving.service.call import Call

SERVICE_NAME = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
OVERALL = ""
"""The name that stands for the server as a whole."""

Status = health_pb2.HealthCheckResponse
_UNREADABLE = health_pb2.HealthCheckRequest(service="(not a HealthCheckRequest)")
_parse = parser_of(health_pb2.HealthCheckRequest, instead=_UNREADABLE)
_Send = Callable[[Any], None]


class HealthService:
    """Tells clients whether services are serving, when they ask (Check) and when it changes (Watch)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statuses: dict[str, int] = {}
        self._watchers: dict[str, set[_Send]] = {}
        # One thread, so that each watcher sees changes in order. Sending waits for gRPC, so never do it locked.
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="health")

    def set(self, services: tuple[str, ...], *, serving: bool) -> None:
        """Change the status of services, and tell their watchers."""
        status = Status.SERVING if serving else Status.NOT_SERVING
        with self._lock:
            for service in services:
                self._statuses[service] = status
                for send in self._watchers.get(service, ()):
                    self._sender.submit(send, Status(status=status))

    def close(self) -> None:
        """Send nothing more. Only after the server has ended its streams."""
        self._sender.shutdown(wait=False, cancel_futures=True)

    def check_rpc(self) -> UnaryRpc:
        """Return Check, which needs no token: an orchestrator's probes have none."""
        return UnaryRpc("Check", _parse, self._check)

    def watch_handler(self) -> grpc.RpcMethodHandler:
        """Return what answers Watch."""
        watch: Any = functools.partial(self._watch)
        watch.experimental_non_blocking = True  # a watcher holds no thread while it waits
        return grpc.unary_stream_rpc_method_handler(
            watch, request_deserializer=_parse, response_serializer=Status.SerializeToString
        )

    def _check(self, request: health_pb2.HealthCheckRequest, call: Call) -> None:
        status = self._statuses.get(request.service)
        if status is None:
            call.fail(grpc.StatusCode.NOT_FOUND, f"there is no service {request.service[:200]!r} here")
        else:
            call.reply(Status(status=status).SerializeToString())

    def _watch(
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext, send_response_callback: _Send
    ) -> None:
        service = request.service
        with self._lock:
            status = self._statuses.get(service, Status.SERVICE_UNKNOWN)
            self._sender.submit(send_response_callback, Status(status=status))
            self._watchers.setdefault(service, set()).add(send_response_callback)
        if not context.add_callback(functools.partial(self._leave, service, send_response_callback)):
            self._leave(service, send_response_callback)  # the client is gone already

    def _leave(self, service: str, send: _Send) -> None:
        with self._lock:
            watchers = self._watchers[service]
            watchers.discard(send)
            if not watchers:  # clients may ask for any name, and these must not pile up
                del self._watchers[service]
