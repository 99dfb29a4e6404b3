"""One replica of a model: a model host in a process of Ray's, without a port."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from concurrent.futures import Future

from ray import serve

from trtnode.serving.errors import ModelLoadFailedError
from trtnode.serving.grpc.servicer import unary_rpcs
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.ray_serve.messages import Caller, Failure, HttpAnswer, HttpRequest, Reply, ask
from trtnode.serving.ray_serve.metrics import labelled
from trtnode.serving.rest.app import HttpApp
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.service.call import Call, FutureWriter
from trtnode.serving.service.host import ModelHost
from trtnode.serving.telemetry import logs
from trtnode.serving.workers.merged_metrics import Families

logger = logging.getLogger(__name__)


class ModelReplica:
    """The deployment of one model. It takes calls once its model can answer; a model that can't ends it."""

    def __init__(self, config: ServableConfig) -> None:
        """Load the model.

        Args:
            config: With this model alone.

        Raises:
            ModelLoadFailedError: The model is required and can't be loaded.
        """
        write_logs(config)
        self._host = ModelHost(_on_all_cores(config), engine_loader(config))
        self._rpcs = unary_rpcs(self._host)
        self._http = HttpApp(config, self._host, list).asgi()
        _load(self._host)

    async def answer(self, rpc: str, message: bytes, caller: Caller) -> Reply:
        """Answer a unary RPC.

        Args:
            rpc: Its name.
            message: Its request.
            caller: Who has been let in by the ingress.
        """
        writer = FutureWriter(lambda code, details: Failure(code.name, details))
        call = Call(writer, *caller)
        self._rpcs[rpc].take(call, message)
        answer: Future[Reply] = writer.answer
        if answer.done():
            return answer.result()
        try:
            return await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            call.leave()
            raise

    async def answer_http(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request of the HTTP port about this model."""
        return await ask(self._http, request)

    def metrics(self) -> Families:
        """Return the counts of this process, with its name on every sample."""
        return labelled(self._host.metrics.registry.collect(), serve.get_replica_context().replica_id.unique_id)

    def check_health(self) -> None:
        """Let Ray replace this replica when its model is gone.

        Raises:
            ModelLoadFailedError: The model is required and has no version that can answer.
        """
        failure = self._host.failure()
        if failure is not None:
            raise failure

    def __del__(self) -> None:
        """Free the model; Ray has waited for the requests in flight."""
        host = getattr(self, "_host", None)
        if host is not None:
            host.close(host.drain(0))


def write_logs(config: ServableConfig) -> None:
    """Write this process's log as servable.yaml says, with the replica's name on every line."""
    logging.basicConfig(level=config.server.log.level.upper())
    context = serve.get_replica_context()
    logs.use_format(config.server.log.format, deployment=context.deployment, replica=context.replica_id.unique_id)


def _on_all_cores(config: ServableConfig) -> ServableConfig:
    """Return the configuration without cores for the ports' threads, which all replicas of a machine would choose."""
    grpc = config.server.grpc.model_copy(update={"cores": len(os.sched_getaffinity(0))})
    return config.model_copy(update={"server": config.server.model_copy(update={"grpc": grpc})})


def _load(host: ModelHost) -> None:
    """Load the model of a host; return when it can answer, or has failed and isn't required."""
    changed = threading.Event()
    host.load(changed.set)
    while not all(model.ready or model.failure for model in host.service.models()):
        changed.wait()
        changed.clear()
    failure: ModelLoadFailedError | None = host.failure()
    if failure is not None:
        raise failure
    host.update_readiness()
