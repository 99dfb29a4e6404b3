"""The models of one process, and the gRPC port in front of them."""

import logging
import threading
from collections.abc import Callable

from serving.access import Access
from serving.admission import InferencePool, inference_threads
from serving.cores import FrontCores
from serving.errors import ModelLoadFailedError
from serving.front import GrpcFront
from serving.metrics import Metrics
from serving.repository import ModelRepository
from serving.schema import ServableConfig
from serving.servable import Loader
from serving.service import InferenceService
from serving.servicer import Spread
from serving.tokens import Tokens

logger = logging.getLogger(__name__)

LOAD_END_S = 1.0
"""How long a stop waits for a model that is loading. Nobody waits for that model any more."""


class Station:
    """What answers requests in one process. Starts and stops once.

    Attributes:
        metrics: What happened so far.
        service: What the port answers with.
        access: Who may call.
        cores: Where the ports' threads run.
        pool: The threads that run models.
        front: The gRPC port.
    """

    def __init__(self, config: ServableConfig, loader: Loader, spread: Spread | None = None, place: int = 0) -> None:
        """Read tokens and certificates.

        Args:
            config: What to serve.
            loader: Makes a model ready to run.
            spread: For one of several processes that share a port: see ``GrpcServicer``.
            place: Of the process among those.

        Raises:
            ConfigError: The tokens file can't be used.
            TlsError: The certificates can't be used.
        """
        self.metrics = Metrics()
        self._repository = ModelRepository(config.models, loader, self.metrics, config.server.startup)
        self.service = InferenceService(self._repository, self.metrics, config.server)
        auth = config.server.auth
        self.access = Access(config.server.admin, Tokens(auth.tokens_file) if auth else None, self.metrics)
        self.cores = cores = FrontCores(config.server.grpc.cores, place)
        threads = inference_threads(self._repository.instances())
        self.pool = InferencePool(threads, config.server.limits.max_requests, cores.settle)
        self.front = GrpcFront(config.server, self.service, self.access, self.pool, cores, spread)
        self._shown_ready = False
        self._changing = threading.Lock()

    def load(self, on_change: Callable[[], None]) -> None:
        """Begin to load the models; ``on_change`` is called when their states change, in whatever thread does it."""

        def changed() -> None:
            with self._changing:
                self.pool.let_work(inference_threads(self._repository.instances()))
            on_change()

        self._repository.start(changed)

    def failure(self) -> ModelLoadFailedError | None:
        """Say which required model couldn't be loaded, if there is one."""
        failed = self._repository.failed()
        return ModelLoadFailedError(failed.config.name, failed.failure) if failed is not None else None

    def show_readiness(self) -> bool:
        """Tell the clients of the health service whether the server is ready, and return it."""
        with self._changing:
            ready = self.service.ready()
            if ready != self._shown_ready:
                self.front.show_ready(ready)
                self._shown_ready = ready
        return ready

    def drain(self, grace_s: float) -> bool:
        """Become not ready, refuse new requests, and wait for those in flight; return False if that takes longer."""
        self.service.draining = True
        self.show_readiness()
        self.pool.draining = True
        drained = self.pool.wait_idle(grace_s)
        if not drained:
            logger.warning("%d requests are cut off: they did not finish within %g s", self.pool.in_flight, grace_s)
        return drained

    def close(self, drained: bool) -> bool:
        """Free the models, once the ports are closed.

        Args:
            drained: Whether no request is in flight.

        Returns:
            Whether no thread is at work any more.
        """
        self.pool.shutdown(wait=False, cancel_futures=True)
        at_rest = self._repository.close(LOAD_END_S) if drained else False
        self.service.close()
        return at_rest
