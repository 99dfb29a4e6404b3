"""The HTTP port: uvicorn with an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import pathlib
import socket
import threading
from typing import TYPE_CHECKING

import uvicorn

from partitioner.lazy_names import on_first_call
from serving.errors import AddressError
from serving.rest.acceptor import Acceptor
from serving.rest.bounded_protocol import BoundedProtocol
from serving.rest.bounds import Bounds
from serving.rest.connection_table import ConnectionTable
from serving.rest.ops import OpsApp, only_probes
from serving.schema.server import ServerConfig
from serving.telemetry.logs import OneASecond

if TYPE_CHECKING:
    from serving.security.tls import Certificates
else:
    Certificates = on_first_call("serving.security.tls:Certificates")

logger = logging.getLogger(__name__)
for library in ("asyncio", "uvicorn.error"):  # clients cause their lines
    logging.getLogger(library).addFilter(OneASecond())

KEEP_ALIVE_S = 75
"""The longest time that a connection may be without a request between two of them; clients keep them for reuse."""
FLUSH_S = 1
"""The longest time that answers already written may take to leave when the port closes."""


class HttpServer:
    """The HTTP port of one server.

    Attributes:
        port: The port that it listens on, once started.
    """

    def __init__(self, config: ServerConfig, app: OpsApp, behind: pathlib.Path | None = None) -> None:
        """Read the certificates.

        Args:
            config: Of the server.
            app: Answers.
            behind: Where several processes share the port: the socket on which this one gets requests of the process
                that has the port.

        Raises:
            TlsError: They can't be used.
        """
        self.port = 0
        self._config = config.http
        self._behind = behind
        tls = config.http.tls
        self._certificates = Certificates("http", tls) if tls and behind is None else None
        bounds = Bounds.behind_port(config.limits) if behind else Bounds.of_port(config.limits)
        self._server = _Uvicorn(_uvicorn_config(app, self._certificates, behind=behind is not None), bounds)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the port.

        Raises:
            AddressError: It can't be opened.
        """
        listener = _listen_at(self._behind) if self._behind else self._listen()
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="http", daemon=True)
        self._thread.start()

    def _listen(self) -> socket.socket:
        host, port = self._config.host, self._config.port
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = socket.create_server(address[:2], family=family)
            # Connections inherit it. asyncio sets it for sockets of another origin only, and head and body of an
            # answer are two packets, of which clients would acknowledge the first after 40 ms.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, OverflowError) as error:
            raise AddressError("http", host, port, error) from None
        self.port = int(listener.getsockname()[1])
        logger.info("HTTP on %s:%d", host, self.port)
        return listener

    def notes(self) -> list[str]:
        """Return what an operator should mend though the server can work."""
        problem = self._certificates and self._certificates.problem()
        return [problem] if problem else []

    def stop(self) -> None:
        """Close the port, once the answers that are written have left."""
        if self._thread is not None:
            self._server.ask_to_stop()
            self._thread.join()
            self._thread = None


class _Uvicorn(uvicorn.Server):
    """Accepts within bounds, and sleeps until it is asked to stop, instead of looking ten times a second."""

    def __init__(self, config: uvicorn.Config, bounds: Bounds) -> None:
        super().__init__(config)
        self._bounds = bounds
        self._table = ConnectionTable()
        self._probes = only_probes(config.loaded_app)
        self._stop_wanted = asyncio.Event()
        self._loop_known = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the connections of the listeners."""
        await self.lifespan.startup()
        assert sockets, "the port is open before"
        self.servers = []
        for listener in sockets:
            acceptor = Acceptor(listener, self._bounds, self._table, self.config.ssl)
            acceptor.start(self._protocol, self.config.backlog)
            self.servers.append(acceptor)  # type: ignore[arg-type]  # it has what uvicorn calls
        self.started = True

    def _protocol(self, probes_only: bool) -> BoundedProtocol:
        protocol = BoundedProtocol(
            self._bounds,
            self._table,
            probes_only=probes_only,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        if probes_only:
            protocol.app = self._probes
        return protocol

    def ask_to_stop(self) -> None:
        """Let ``run`` return; any thread may call this."""
        self._loop_known.wait()
        assert self._loop is not None, "it is known"
        self._loop.call_soon_threadsafe(self._stop_wanted.set)

    async def main_loop(self) -> None:
        """Wait until somebody asks it to stop."""
        self._loop = asyncio.get_running_loop()
        self._loop_known.set()
        await self._stop_wanted.wait()


def _listen_at(path: pathlib.Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def _uvicorn_config(app: OpsApp, certificates: Certificates | None, *, behind: bool) -> uvicorn.Config:
    config = uvicorn.Config(
        app.asgi(),
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # clients cause its warnings
        access_log=False,
        proxy_headers=behind,  # which tell the client's address
        forwarded_allow_ips="*" if behind else None,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=FLUSH_S,
        ssl_context_factory=(lambda _config, _default: certificates.context()) if certificates else None,
    )
    config.load()
    return config
