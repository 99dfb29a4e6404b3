"""The models of one process and the service in front of them, without any port."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from trtnode.serving.errors import ModelLoadFailedError
from trtnode.serving.models.repository import ModelRepository
from trtnode.serving.models.servable import Loader
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.security.authorization import Authorizer
from trtnode.serving.security.tokens import Tokens
from trtnode.serving.service.inference_service import InferenceService
from trtnode.serving.service.unary_rpcs import Broadcast, UnaryRpcs
from trtnode.serving.telemetry.metrics import Metrics
from trtnode.serving.threads.cpu_affinity import PortCores
from trtnode.serving.threads.pools import ThreadPools
from trtnode.serving.threads.request_pool import inference_threads

logger = logging.getLogger(__name__)

LOAD_END_S = 1.0
"""The time that a stop waits for a model that is loading. Nobody waits for that model any more."""


class ModelHost:
    """Hosts the models of one process, and answers for every port of it. Starts and stops once.

    Attributes:
        metrics: The counts so far.
        service: Runs inference requests, and answers about the server and its models.
        rpcs: The other unary RPCs.
        authorizer: Decides about calls.
        cores: Where the ports' threads run.
        pools: The ports' threads.
        show_ready: Called when the server becomes ready, or isn't any more.
    """

    def __init__(
        self, config: ServableConfig, loader: Loader, broadcast: Broadcast | None = None, place: int = 0
    ) -> None:
        """Read the tokens.

        Args:
            config: What to serve.
            loader: Makes a model ready to run.
            broadcast: For one of several processes that share a port: see ``UnaryRpcs``.
            place: Of the process among those.

        Raises:
            ConfigError: The tokens file can't be used.
        """
        self.metrics = Metrics()
        self._repository = ModelRepository(config.models, loader, self.metrics, config.server, config.source)
        self.cores = PortCores(config.server.grpc.cores, place)
        self.pools = ThreadPools(self._repository.instances(), config.server.limits.max_requests, self.cores)
        self.service = InferenceService(self._repository, self.metrics, config.server, self.pools.inference)
        self.rpcs = UnaryRpcs(self.service, broadcast)
        auth = config.server.auth
        self.authorizer = Authorizer(config.server.admin, Tokens(auth.tokens_file) if auth else None, self.metrics)
        self.show_ready: Callable[[bool], None] = lambda _ready: None
        self._shown_ready = False
        self._changing = threading.Lock()

    def load(self, on_change: Callable[[], None]) -> None:
        """Begin to load the models; ``on_change`` is called when their states change, in whatever thread does it."""

        def changed() -> None:
            with self._changing:
                self.pools.inference.let_work(inference_threads(self._repository.instances()))
            on_change()

        self.metrics.start()
        self._repository.start(changed)

    def failure(self) -> ModelLoadFailedError | None:
        """Return which required models couldn't be loaded, if there are some."""
        failed = self._repository.failed()
        return ModelLoadFailedError({one.config.name: one.failure for one in failed}) if failed else None

    def update_readiness(self) -> bool:
        """Call ``show_ready`` if the server became ready, or isn't any more; return whether it is ready."""
        with self._changing:
            ready = self.service.ready()
            if ready != self._shown_ready:
                self.show_ready(ready)
                self._shown_ready = ready
        return ready

    def announce_stop(self) -> None:
        """Become not ready; requests are still answered."""
        self.service.stopping = True
        self.update_readiness()

    def drain(self, grace_s: float, turn_away: Callable[[float], None] = lambda _timeout_s: None) -> bool:
        """Become not ready, refuse new requests, and wait for those in flight; return False if that takes longer.

        Args:
            grace_s: Seconds for all of that.
            turn_away: Tells clients to go elsewhere, in so many seconds, before requests are refused.
        """
        pool, deadline = self.pools.inference, time.monotonic() + grace_s
        self.announce_stop()
        turn_away(grace_s)
        pool.draining = True
        drained = pool.wait_idle(max(0.0, deadline - time.monotonic()))
        if not drained:
            logger.warning("%d requests are cut off: they did not finish within %g s", pool.in_flight, grace_s)
        return drained

    def close(self, drained: bool) -> bool:
        """Free the models, once the ports are closed.

        Args:
            drained: Whether no request is in flight.

        Returns:
            Whether no thread is at work any more.
        """
        self.pools.close()
        at_rest = self._repository.close(LOAD_END_S) if drained else False
        self.service.close()
        self.metrics.close()
        return at_rest
