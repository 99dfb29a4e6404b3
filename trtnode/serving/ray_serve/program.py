"""``trtnode serve --on ray``: a Ray cluster that serves, from start to stop."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import ray
from ray import serve as ray_serve
from ray.serve.config import ProxyLocation, gRPCOptions
from ray.serve.schema import LoggingConfig

from trtnode.serving.errors import ServingError
from trtnode.serving.process.signals import run_until_signal
from trtnode.serving.ray_serve.application import application
from trtnode.serving.ray_serve.proxy_methods import ADDED
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.security.exposure_warnings import warn_of_open_ports
from trtnode.serving.service.stoppable import Stoppable
from trtnode.serving.telemetry import logs

logger = logging.getLogger(__name__)

APPLICATION = "trtnode"
CONTROLLER = "SERVE_CONTROLLER_ACTOR"
NAMESPACE = "serve"
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # replicas are what the machine is for; Ray would let everything else go first
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # a proxy that starts slowly on a busy machine is no broken one
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",  # from hop to hop past Ray's object store, which copies large tensors
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",  # what runs in the loops of ingress and replica never blocks
}
"""Variables of a cluster that this process starts, unless the user sets them."""
LOOK_S = 5.0
"""The time between two looks at who has deployed the application."""


class DeploymentFailedError(ServingError):
    """Ray couldn't deploy the models."""


def serve(config: ServableConfig, log_level: str | None) -> int:
    """Serve on a Ray cluster until a signal; return the exit code.

    Args:
        config: What to serve.
        log_level: The one that the user asked for; None takes that of the configuration.

    Raises:
        DeploymentFailedError: There is no such cluster, or a required model can't be loaded.
    """
    if log_level is None:
        logging.getLogger().setLevel(config.server.log.level.upper())
    logs.use_format(config.server.log.format)
    return run_until_signal(config, RayServer(config))


class RayServer(Stoppable):
    """The application on the cluster of ``RAY_ADDRESS``, or on one of its own."""

    def __init__(self, config: ServableConfig) -> None:
        super().__init__()
        self._config = config
        self._run = uuid.uuid4().hex
        self._owns_serve = False
        self._deployed = False

    def start(self) -> None:
        """Join or start the cluster, and begin to deploy.

        Raises:
            DeploymentFailedError: There is no such cluster, or its proxies can't be started.
        """
        server = self._config.server
        warn_of_open_ports(server)
        logger.warning(
            "Ray's gRPC proxies listen on port %d of every address of their nodes; keep others out with a firewall",
            server.grpc.port,
        )
        several = any(model.scaling and model.scaling.most > 1 for model in self._config.models)
        if several:
            logger.warning(
                "replicas that start together on a machine each build and measure engines; "
                "serve a file that `trtnode compile` wrote, so that none does"
            )
        try:
            _join()
            self._owns_serve = not _serve_runs()
            ray_serve.start(
                proxy_location=ProxyLocation.EveryNode,
                http_options={"host": server.http.host, "port": server.http.port},
                grpc_options=gRPCOptions(
                    port=server.grpc.port, grpc_servicer_functions=[ADDED], enable_reflection=False
                ),
                logging_config=LoggingConfig(log_level=logging.WARNING, enable_access_log=False),
            )
        except Exception as error:
            raise DeploymentFailedError(f"Ray can't serve: {_first_line(error)}") from error
        threading.Thread(target=self._deploy, name="deploy", daemon=True).start()

    def wait_for_stop(self) -> None:
        """Wait until somebody asks it to stop, another one serves in its place, or it can't go on."""
        while not self._stop_wanted.wait(LOOK_S):
            if self._is_replaced():
                logger.info("another process has deployed in place of this one")
                return

    def stop(self, grace_s: float) -> bool:  # noqa: ARG002  # each deployment has it
        """Remove the application, once its replicas have answered, and what this process has started.

        What another process has deployed in its place stays, and so does what was there before a failure to deploy.
        """
        if not self._is_replaced():
            if self._owns_serve:
                ray_serve.shutdown()
            elif self._deployed:
                ray_serve.delete(APPLICATION)
        ray.shutdown()
        self.at_rest = True
        return True

    def _is_replaced(self) -> bool:
        """Return whether an application answers that another process has deployed."""
        if not self._deployed or not os.environ.get("RAY_ADDRESS"):  # nobody else has the cluster that is its own
            return False
        try:
            run: str = ray_serve.get_app_handle(APPLICATION).deployed_by.remote().result(timeout_s=LOOK_S)
        except Exception as error:  # whoever doesn't answer replaces nobody
            logger.debug("The application doesn't tell who deployed it: %s", error)
            return False
        return run != self._run

    def _deploy(self) -> None:
        """Deploy; runs in a thread of its own, since it takes as long as the models need to load."""
        try:
            ray_serve.run(application(self._config, self._run), name=APPLICATION, route_prefix="/")
            self._deployed = True
        except Exception as error:
            if not self._stop_wanted.is_set():
                self._give_up(DeploymentFailedError(_deployment_problem(error)))
        else:
            logger.info(
                "ready on port %d, HTTP on port %d", self._config.server.grpc.port, self._config.server.http.port
            )


def _join() -> None:
    """Connect to the cluster of ``RAY_ADDRESS``, or start one on this machine that ends with this process."""
    address = os.environ.get("RAY_ADDRESS")
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    with _signals_kept():
        ray.init(address or "local", namespace=NAMESPACE, logging_level=logging.WARNING, **options)
    logger.info("%s a Ray cluster", f"joined {address}," if address else "started")


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Handle signals afterwards as before. Ray installs handlers of its own, which end the process."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _serve_runs() -> bool:
    """Return whether the cluster serves already."""
    try:
        ray.get_actor(CONTROLLER, namespace=NAMESPACE)
    except ValueError:
        return False
    return True


def _deployment_problem(error: Exception) -> str:
    """Return why the models aren't deployed: the reasons of their replicas, without tracebacks."""
    app = ray_serve.status().applications.get(APPLICATION)
    messages = [one.message for one in app.deployments.values() if one.message] if app else []
    return "Ray didn't deploy the models: " + ("; ".join(map(_reason, messages)) or _first_line(error))


def _reason(message: str) -> str:
    """Return the last line of a message that isn't blank, which names the error where it ends with a traceback."""
    return [line.strip() for line in message.splitlines() if line.strip()][-1]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
