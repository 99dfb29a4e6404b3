"""The gRPC port: the inference service, health and reflection on grpcio's threaded server.

Calls go past grpcio's Python layer (``calls``), which gets those of unknown methods alone. Threads that run models are
apart from those that answer everything else, so that health checks never wait for a slow model.
"""

from __future__ import annotations

import functools
import logging
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.runtime_version import VersionError

from trtnode.serving.errors import AddressError, OldProtobufError, UnsuitableGrpcioError

try:
    from trtnode.serving.grpc import health
except VersionError as error:
    raise OldProtobufError from error

from trtnode.serving.grpc.auth_interceptor import AuthInterceptor
from trtnode.serving.grpc.backlog import ResponseBacklog
from trtnode.serving.grpc.calls import Method, Received, UnaryCall, has_unread_calls, missing_parts
from trtnode.serving.grpc.reflection import METHOD as REFLECTION
from trtnode.serving.grpc.reflection import reflection_rpc
from trtnode.serving.grpc.rpc import Rpc
from trtnode.serving.grpc.servicer import unary_rpcs
from trtnode.serving.grpc.streams import Streams
from trtnode.serving.schema.server import ServerConfig
from trtnode.serving.security.descriptors import GRPC_SHARE, most_connections
from trtnode.serving.security.tls import Certificates
from trtnode.serving.service.host import ModelHost
from trtnode.serving.service.rpc_table import INFER_RPC, SERVICE_NAME, STREAM_RPC

logger = logging.getLogger(__name__)

FLUSH_S = 3.0
"""The longest time without an answer that leaves when the port closes. On a crowded machine that has been more than a
second."""
CLOSE_S = 2.0
"""The longest time that gRPC may take beyond that."""
HELD_S, SETTLED_S, SHORT_S = 0.5, 0.05, 0.01
"""The longest time that calls are held back when the server stops, the time without a new one after which none is
expected, and the time in which the first one would come."""
HANDSHAKE_S = 10
"""The longest time until a connection is encrypted and speaks HTTP/2."""


class GrpcServer:
    """The gRPC port of one process.

    Attributes:
        port: The port that it listens on, once started.
    """

    def __init__(self, config: ServerConfig, host: ModelHost) -> None:
        """Read the certificates.

        Args:
            config: Of the server.
            host: Answers.

        Raises:
            TlsError: The certificates can't be used.
            UnsuitableGrpcioError: The installed grpcio lacks private parts that calls take.
        """
        self.port = 0
        self._config = config.grpc
        self._most_streams = config.limits.streams
        self._host = host
        self._shares_port = host.rpcs.is_broadcast
        self._certificates = Certificates("grpc", config.grpc.tls) if config.grpc.tls else None
        self._health = health.HealthService()
        self._rpcs = unary_rpcs(host, config.grpc.max_message_mb << 20)
        self._backlog = ResponseBacklog(config.limits.stream_buffer_mb << 20)
        self._streams: list[Streams] = []
        self._methods: list[Method] = []
        # The only work of grpcio's own pool is to refuse unknown methods to callers without a token.
        self._refusals = ThreadPoolExecutor(1, "refusals", host.cores.settle)
        with host.cores.kept():  # gRPC starts threads here, too
            self._server = grpc.server(
                self._refusals,
                interceptors=[AuthInterceptor(host.authorizer)] if host.authorizer.has_tokens else [],
                options=channel_options(config, shares_port=self._shares_port),
            )
        if missing := missing_parts(self._server):
            raise UnsuitableGrpcioError(missing)
        self._add_services()
        self.show_ready(False)

    def start(self) -> None:
        """Open the port.

        Raises:
            AddressError: It can't be opened.
        """
        host, port = self._config.host, self._config.port
        try:
            self.port = self._add_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except RuntimeError as error:
            raise AddressError("grpc", host, port, error) from None
        with self._host.cores.kept():
            self._server.start()
        for method in self._methods:
            method.open()

    def show_ready(self, ready: bool) -> None:
        """Tell the clients of the health service."""
        self._health.set((health.OVERALL, SERVICE_NAME), serving=ready)

    def notes(self) -> list[str]:
        """Return what an operator should mend though the server can work."""
        problem = self._certificates and self._certificates.problem()
        return [problem] if problem else []

    def turn_away(self, timeout_s: float) -> None:
        """Tell clients to go elsewhere (GOAWAY), and let no new connection in. Calls that have come are answered.

        gRPC drops a call that comes before its client has heard of that. So calls are held back a moment: clients that
        wait for each answer then have none on its way.
        """
        deadline = time.monotonic() + timeout_s
        for method in self._methods:
            method.hold()
        until, held = time.monotonic() + HELD_S, 0
        time.sleep(SHORT_S)
        while time.monotonic() < until and held < (held := sum(method.held for method in self._methods)):
            time.sleep(SETTLED_S)
        self._server.stop(timeout_s + FLUSH_S + CLOSE_S)
        for method in self._methods:
            method.release()
        while has_unread_calls(self._server) and time.monotonic() < deadline:
            time.sleep(SHORT_S)

    def stop(self, timeout_s: float) -> None:
        """Close the port; streams that clients hold open end, once their answers have left."""
        for streams in self._streams:
            streams.end()
        grace_s = min(FLUSH_S, timeout_s) if self._backlog.wait_read(FLUSH_S, timeout_s) else 0.0
        self._server.stop(grace_s).wait(grace_s + CLOSE_S)
        self._refusals.shutdown(wait=False, cancel_futures=True)

    def _add_port(self, address: str) -> int:
        if self._certificates is None:
            return int(self._server.add_insecure_port(address))
        return int(self._server.add_secure_port(address, self._certificates.credentials()))

    def _add_services(self) -> None:
        host = self._host
        for rpc in self._rpcs.values():
            self._offer_unary(f"{SERVICE_NAME}/{rpc.name}", rpc)
        self._offer_streams(f"{SERVICE_NAME}/{STREAM_RPC}", self._rpcs[INFER_RPC], self._most_streams)
        self._offer_unary(f"{health.SERVICE_NAME}/Check", self._health.check_rpc())
        self._offer_streams(f"{health.SERVICE_NAME}/Watch", self._health.watch_rpc())
        self._offer_streams(REFLECTION, reflection_rpc(host.pools.control, host.authorizer))

    def _offer_unary(self, method: str, rpc: Rpc) -> None:
        self._offer(method, functools.partial(UnaryCall, rpc, self._backlog, self._host.pools.unpacking))

    def _offer_streams(self, method: str, rpc: Rpc, most: int = sys.maxsize) -> None:
        streams = Streams(rpc, self._backlog, self._host.pools.unpacking, most)
        self._streams.append(streams)
        self._offer(method, streams.receive)

    def _offer(self, method: str, receive: Callable[[Any], Received]) -> None:
        self._methods.append(Method(self._server, f"/{method}", receive))


def channel_options(config: ServerConfig, *, shares_port: bool = False) -> list[tuple[str, int]]:
    """Return the settings of the port in gRPC's words."""
    size = config.grpc.max_message_mb << 20
    return [
        ("grpc.max_receive_message_length", size),
        ("grpc.max_send_message_length", size),
        ("grpc.max_concurrent_streams", config.limits.connection_requests),
        # They are inflated here, in a thread of their own: gRPC would in its serving thread, where all calls wait.
        ("grpc.per_message_decompression", 0),
        # Where it isn't meant, a second server on this port would start without an error and take connections.
        ("grpc.so_reuseport", int(shares_port)),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),  # for clients that ping to keep a connection
        ("grpc.max_allowed_incoming_connections", most_connections(GRPC_SHARE)),
        ("grpc.server_handshake_timeout_ms", 1000 * HANDSHAKE_S),
    ]
