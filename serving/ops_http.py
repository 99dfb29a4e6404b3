"""The HTTP port for operators: /metrics, /livez and /readyz.

Probes need no token, everything else does where the server has tokens. The port has no TLS of its own.
"""

import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import prometheus_client
from prometheus_client.exposition import ThreadingWSGIServer

from serving.access import Access
from serving.errors import AddressError, UnauthenticatedError
from serving.schema import HttpConfig

logger = logging.getLogger(__name__)

StartResponse = Callable[[str, list[tuple[str, str]]], object]
WsgiApp = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]

CLIENT_TIMEOUT_S = 10
"""How long a client may take over its request."""
POLL_S = 0.1
"""How long ``close`` may take to be noticed."""


class OpsHttpServer:
    """Serves in threads of its own, from construction until ``close``.

    Attributes:
        port: The port that it listens on.
    """

    def __init__(self, config: HttpConfig, app: WsgiApp) -> None:
        try:
            family = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0][0]
            server_class = type("_FamilyServer", (_HttpServer,), {"address_family": family})
            self._server: WSGIServer = make_server(config.host, config.port, app, server_class, _QuietHandler)
        except (OSError, OverflowError) as error:
            raise AddressError("http", config.host, config.port, error) from None
        self.port = int(self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), name="ops-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def ops_app(
    not_ready: Callable[[], Sequence[str]],
    registry: prometheus_client.CollectorRegistry,
    access: Access,
    notes: Callable[[], Sequence[str]],
) -> WsgiApp:
    """Return the WSGI application.

    Args:
        not_ready: Says what the server waits for, one line a reason; nothing if it is ready.
        registry: The metrics.
        access: Decides about calls.
        notes: Lines for /readyz about what should be mended.
    """
    metrics_app = prometheus_client.make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/livez":
            return _text(start_response, "200 OK", "live")
        if path == "/readyz":
            reasons = not_ready()
            status = "503 Service Unavailable" if reasons else "200 OK"
            return _text(start_response, status, *(reasons or ["ready"]), *notes())
        try:
            access.authenticate(environ.get("HTTP_AUTHORIZATION", ""))
        except UnauthenticatedError as error:
            access.count_refusal(error, path, environ.get("REMOTE_ADDR", ""))
            return _text(start_response, "401 Unauthorized", str(error), headers=[("WWW-Authenticate", "Bearer")])
        if path == "/metrics":
            exposition: Iterable[bytes] = metrics_app(environ, start_response)
            return exposition
        return _text(start_response, "404 Not Found", "There are /metrics, /livez and /readyz here.")

    return app


def _text(
    start_response: StartResponse, status: str, *lines: str, headers: Sequence[tuple[str, str]] = ()
) -> list[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store"), *headers])
    return ["".join(f"{line}\n" for line in lines).encode()]


class _HttpServer(ThreadingWSGIServer):
    """A thread a connection."""

    def server_bind(self) -> None:
        """Bind without asking DNS for the host's name, which can take seconds and is for CGI only."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, _request: object, client_address: object) -> None:
        """Log what a broken connection raised, at DEBUG instead of on stderr."""
        logger.debug("http connection of %s broke", client_address, exc_info=True)


class _QuietHandler(WSGIRequestHandler):
    """Answers one connection; logs at DEBUG instead of on stderr."""

    timeout = CLIENT_TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name that the base class uses
        """Log a line about a request."""
        logger.debug("http %s: " + format, self.client_address[0], *args)
