"""A server of one process: both ports, from start to stop."""

from __future__ import annotations

import logging
import socket
import threading
import time

from trtnode.engines.cores import usable_cores
from trtnode.serving.errors import AddressError
from trtnode.serving.grpc.server import GrpcServer
from trtnode.serving.models.servable import Loader, Servable
from trtnode.serving.rest.app import HttpApp
from trtnode.serving.rest.server import HttpServer
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.security.exposure_warnings import warn_of_open_ports
from trtnode.serving.service.host import ModelHost
from trtnode.serving.service.stoppable import Stoppable

logger = logging.getLogger(__name__)


class Server(Stoppable):
    """A server whose ports and models are in this process.

    Attributes:
        metrics: The counts so far.
    """

    def __init__(self, config: ServableConfig, loader: Loader) -> None:
        """Read the tokens, and the certificates of HTTP.

        Raises:
            ConfigError: The tokens file can't be used.
            TlsError: The certificates of HTTP can't be used.
        """
        super().__init__()
        self._config = config
        self._host = ModelHost(config, loader)
        self.metrics = self._host.metrics
        self._grpc: GrpcServer | None = None
        self._http = HttpServer(config.server, HttpApp(config, self._host, self._notes))
        self._opened = threading.Event()
        self._ready = threading.Event()

    @property
    def port(self) -> int:
        """The gRPC port, once started."""
        return self._grpc.port if self._grpc else 0

    @property
    def http_port(self) -> int:
        """The HTTP port, once started."""
        return self._http.port

    @property
    def in_flight(self) -> int:
        """Inference requests that are accepted and not answered yet."""
        return self._host.pools.inference.in_flight

    @property
    def models(self) -> list[Servable]:
        """The model versions that answer now."""
        return [one for model in self._host.service.models() for one in model.known() if one.is_ready]

    def start(self) -> None:
        """Open both ports, and load the models in the background. Until all is there, the server isn't ready.

        What speaks gRPC is imported while the first model loads.

        Raises:
            AddressError: A port can't be opened.
            TlsError: The certificates of gRPC can't be used.
        """
        server = self._config.server
        warn_of_open_ports(server)
        _check_port(server.grpc.host, server.grpc.port)
        with self._host.cores.kept():
            self._http.start()
        self._host.load(self._models_changed)
        try:
            self._grpc = GrpcServer(server, self._host)
            self._host.show_ready = self._grpc.show_ready
            self._grpc.start()
        except BaseException:
            self._close(0, drained=True)
            raise
        self._opened.set()
        self._models_changed()

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the server is ready or can't become it; return whether it is ready."""
        self._ready.wait(timeout_s)
        return self._host.service.ready()

    def stop(self, grace_s: float) -> bool:
        """Stop: not ready first, then clients are sent away while requests in flight finish, then ports close.

        Returns:
            Whether every accepted request was answered within ``grace_s``.
        """
        self._host.announce_stop()
        self._http.turn_away()
        if self._ready.is_set() and self.failure is None:
            time.sleep(self._config.server.shutdown_delay_s)
        deadline = time.monotonic() + grace_s
        drained = self._host.drain(grace_s, self._grpc.turn_away) if self._grpc is not None else True
        self._close(max(0.0, deadline - time.monotonic()), drained=drained)
        return drained

    def _close(self, timeout_s: float, *, drained: bool) -> None:
        if self._grpc is not None:
            self._grpc.stop(timeout_s)
        self._http.stop()
        self.at_rest = self._host.close(drained)

    def _notes(self) -> list[str]:
        return [*(self._grpc.notes() if self._grpc else ()), *self._http.notes()]

    def _models_changed(self) -> None:
        """Follow the models' states, in any thread. Readiness isn't shown before both ports are open."""
        failure = self._host.failure()
        if failure is not None and not self._ready.is_set():
            self._give_up(failure)
            self._ready.set()
        if not self._opened.is_set():
            return
        if self._host.update_readiness() and not self._ready.is_set():
            logger.info("threads follow %s", usable_cores())
            logger.info("ready on %s:%d", self._config.server.grpc.host, self.port)
            self._ready.set()


def _check_port(host: str, port: int) -> None:
    """Open and close the gRPC port once: the system says why it can't be had, gRPC only prints a stack of lines.

    Raises:
        AddressError: It can't be opened.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server(address[:2], family=family).close()
    except (OSError, OverflowError) as error:
        raise AddressError("grpc", host, port, error) from None
