"""The HTTP port: a listener, and the thread of its event loop."""

from __future__ import annotations

import logging
import socket
import threading

from trtnode.serving.errors import AddressError
from trtnode.serving.rest.bounds import Bounds
from trtnode.serving.rest.event_loop import EventLoop
from trtnode.serving.rest.ops import OpsApp
from trtnode.serving.schema.server import ServerConfig
from trtnode.serving.security.tls import Certificates

logger = logging.getLogger(__name__)

READER_TIMEOUT_S = 60
"""The longest time that a client may read nothing of an answer; the system then ends the connection."""


class HttpServer:
    """The HTTP port of one server.

    Attributes:
        port: The port that it listens on, once started.
    """

    def __init__(self, config: ServerConfig, app: OpsApp, *, shares_port: bool = False) -> None:
        """Read the certificates.

        Args:
            config: Of the server.
            app: Answers.
            shares_port: Whether other processes of this server have the port as well.

        Raises:
            TlsError: They can't be used.
        """
        self.port = 0
        self._config = config.http
        self._shares_port = shares_port
        self._certificates = Certificates("http", config.http.tls) if config.http.tls else None
        self._bounds = Bounds.of_port(config.limits, config.http)
        self._app = app
        self._loop: EventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the port.

        Raises:
            AddressError: It can't be opened.
        """
        listener = self._listen()
        self._loop = EventLoop(self._app, self._bounds, self._certificates.context if self._certificates else None)
        self._thread = threading.Thread(target=self._loop.run, args=([listener],), name="http", daemon=True)
        self._thread.start()

    def _listen(self) -> socket.socket:
        host, port = self._config.host, self._config.port
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = socket.create_server(address[:2], family=family, reuse_port=self._shares_port)
            # Connections inherit both. asyncio sets the first for sockets of another origin only, and head and body of
            # an answer are two packets, of which clients would acknowledge the first after 40 ms.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * READER_TIMEOUT_S))
        except (OSError, OverflowError) as error:
            raise AddressError("http", host, port, error) from None
        self.port = int(listener.getsockname()[1])
        logger.info("HTTP on %s:%d", host, self.port)
        return listener

    def notes(self) -> list[str]:
        """Return what an operator should mend though the server can work."""
        problem = self._certificates and self._certificates.problem()
        return [problem] if problem else []

    def turn_away(self) -> None:
        """Tell clients to go elsewhere, with the next answer on each connection."""
        if self._loop is not None and self._thread is not None:
            self._loop.turn_away()

    def stop(self) -> None:
        """Close the port, once the answers that are written have left."""
        if self._loop is None or self._thread is None:
            return
        self._loop.ask_to_stop()
        self._thread.join()
        self._thread = None
