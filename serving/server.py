"""Builds the objects of a server, starts them, and stops them in order."""

import logging
import threading
import time

from serving.access import Access
from serving.errors import ModelLoadFailedError
from serving.exposure import warn_of_open_ports
from serving.front import GrpcFront
from serving.metrics import Metrics
from serving.ops_http import OpsHttpServer, ops_app
from serving.repository import ModelRepository
from serving.schema import ServableConfig
from serving.servable import Loader
from serving.service import InferenceService
from serving.tokens import Tokens

logger = logging.getLogger(__name__)

LOAD_END_S = 1.0
"""How long a stop waits for a model that is loading. Nobody waits for that model any more."""


class Server:
    """One server, from its configuration to its end. Starts and stops once.

    Attributes:
        metrics: What happened so far.
        failure: Why the server can't go on; None while it can.
        at_rest: Whether it has stopped and no thread of it is at work.
    """

    def __init__(self, config: ServableConfig, loader: Loader) -> None:
        """Read tokens and certificates.

        Raises:
            ConfigError: The tokens file can't be used.
            TlsError: The certificates can't be used.
        """
        self.metrics = Metrics()
        self.failure: ModelLoadFailedError | None = None
        self.at_rest = False
        self._config = config
        self._repository = ModelRepository(config.models, loader, self.metrics, config.server.startup)
        self._service = InferenceService(self._repository, self.metrics, config.server)
        auth = config.server.auth
        self._access = Access(config.server.admin, Tokens(auth.tokens_file) if auth else None, self.metrics)
        instances = sum(model.instances for model in config.models)
        self._front = GrpcFront(config.server, self._service, self._access, instances)
        self._http: OpsHttpServer | None = None
        self._stop_wanted = threading.Event()
        self._ready = threading.Event()
        self._shown_ready = False
        self._showing = threading.Lock()

    @property
    def port(self) -> int:
        """The gRPC port, once started."""
        return self._front.port

    @property
    def http_port(self) -> int:
        """The HTTP port, once started."""
        assert self._http is not None, "start() opens it"
        return self._http.port

    @property
    def in_flight(self) -> int:
        """Inference requests that are accepted and not answered yet."""
        return self._front.in_flight

    def start(self) -> None:
        """Open both ports, then load the models in the background. Until they are there, the server isn't ready.

        Raises:
            AddressError: A port can't be opened.
        """
        warn_of_open_ports(self._config.server)
        self._front.start()
        try:
            app = ops_app(self._service, self.metrics, self._access, self._front.notes)
            self._http = OpsHttpServer(self._config.server.http, app)
        except BaseException:
            self._front.stop(0)
            raise
        self._repository.start(self._models_changed)

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the server is ready or can't become it; return whether it is ready."""
        self._ready.wait(timeout_s)
        return self._service.ready()

    def ask_to_stop(self) -> None:
        """Let ``wait_for_stop`` return."""
        self._stop_wanted.set()

    def wait_for_stop(self) -> None:
        """Wait until somebody asks the server to stop, or it can't go on."""
        self._stop_wanted.wait()

    def stop(self, grace_s: float) -> bool:
        """Stop: not ready first, then requests in flight finish while new ones are refused, then the ports close.

        Returns:
            Whether every accepted request was answered within ``grace_s``.
        """
        deadline = time.monotonic() + grace_s
        self._service.draining = True
        self._show_readiness()
        drained = self._front.drain(grace_s)
        if not drained:
            logger.warning("%d requests are cut off: they did not finish within %g s", self._front.in_flight, grace_s)
        self._front.stop(max(0.0, deadline - time.monotonic()))
        if self._http is not None:
            self._http.close()
        self.at_rest = self._repository.close(LOAD_END_S) if drained else False
        self._service.close()
        return drained

    def _models_changed(self) -> None:
        """Follow the models' states; runs in whatever thread changes them."""
        failed = self._repository.failed()
        if failed is not None and not self._ready.is_set():
            self.failure = ModelLoadFailedError(failed.config.name, failed.failure)
            self._ready.set()
            self._stop_wanted.set()
        self._show_readiness()

    def _show_readiness(self) -> None:
        with self._showing:
            ready = self._service.ready()
            if ready != self._shown_ready:
                self._front.show_ready(ready)
                self._shown_ready = ready
            if ready and not self._ready.is_set():
                logger.info("ready on %s:%d", self._config.server.grpc.host, self.port)
                self._ready.set()
