"""A bare gRPC server: the port of the real server, with a handler that only runs the model.

``python -m benchmarks.serving.bare_server servable.yaml 0`` serves the first model of a configuration on grpcio's
threaded server, with the options and the threads of ``serving/grpc/server.py``. The handler neither checks, counts,
logs nor batches, so the difference to the real server is the cost of its features. Several such processes may share a
port if the configuration has workers.
"""

from __future__ import annotations

import functools
import pathlib
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np

from trtnode.protos import (
    InferStatistics,
    ModelInferRequest,
    ModelInferResponse,
    ModelStatistics,
    ModelStatisticsRequest,
    ModelStatisticsResponse,
    StatisticDuration,
)
from trtnode.serving.config.load import load_config
from trtnode.serving.executables.interface import ServedExecutable
from trtnode.serving.grpc.rpc import parser_of
from trtnode.serving.grpc.server import channel_options
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.models.repository import ModelRepository
from trtnode.serving.protocol.wire_signature import DATATYPES
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.security.authorization import ANYONE
from trtnode.serving.service.inference_service import InferenceService
from trtnode.serving.service.rpc_table import INFER_RPC, SERVICE_NAME, messages_of
from trtnode.serving.service.unary_rpcs import Method, UnaryRpcs
from trtnode.serving.telemetry.metrics import Metrics
from trtnode.serving.threads.cpu_affinity import PortCores, placed
from trtnode.serving.threads.request_pool import RequestPool, inference_threads

Handler = Callable[[Any, Any], Any]
"""Request and context to response."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM."""
    path, place = sys.argv[1:] if argv is None else argv
    config = load_config(pathlib.Path(path))
    cores = PortCores(config.server.grpc.cores, int(place))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before there are threads: they inherit it
    server = make_server(config, cores)
    with cores.kept():
        server.start()
    signal.sigwait({signal.SIGTERM})
    server.stop(None).wait()
    return 0


def make_server(config: ServableConfig, cores: PortCores) -> grpc.Server:
    """Return the server, not started, with its model loaded.

    Every RPC but ModelInfer and ModelStatistics is that of the real server.
    """
    loaded: list[ServedExecutable] = []
    load = engine_loader(config)

    def keep(model: Any) -> ServedExecutable:
        loaded.append(load(model))
        return loaded[-1]

    repository = ModelRepository(config.models, keep, Metrics())
    repository.load(config.models[0].name, None, {})
    pool = BareExecutor(RequestPool(inference_threads(config.models[0].instances), settle=cores.settle))
    rpcs = UnaryRpcs(InferenceService(repository, Metrics(), config.server, RequestPool(1)))
    model = BareModel(loaded[0])
    handlers: dict[str, Handler] = {name: _without_context(method) for name, method in rpcs.methods.items()}
    handlers.update({INFER_RPC: model.infer, "ModelStatistics": model.statistics})
    grpc_port = config.server.grpc
    with cores.kept():
        server = grpc.server(pool, options=channel_options(config.server, shares_port=grpc_port.workers > 1))
    methods = {name: _in_messages(name, handler) for name, handler in handlers.items()}
    server.add_registered_method_handlers(SERVICE_NAME, methods)
    server.add_insecure_port(f"{grpc_port.host}:{grpc_port.port}")
    return server


def _in_messages(rpc: str, handler: Handler) -> grpc.RpcMethodHandler:
    request, response = messages_of(rpc)
    return grpc.unary_unary_rpc_method_handler(handler, parser_of(request), response.SerializeToString)


def _without_context(method: Method) -> Handler:
    return lambda request, _context: method(request, ANYONE)


class BareExecutor(ThreadPoolExecutor):
    """Runs gRPC's handlers in a pool. Its futures are done from the start: gRPC only counts them, under a lock."""

    def __init__(self, pool: RequestPool) -> None:
        super().__init__(1)
        self._pool = pool
        self._done: Future[Any] = Future()
        self._done.set_result(None)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a handler."""
        self._pool.run(functools.partial(fn, *args, **kwargs))
        return self._done


class BareModel:
    """Parses requests with raw contents, runs the model, and writes the answers.

    Runs are serialized, as in a server with one instance.
    """

    def __init__(self, executable: ServedExecutable) -> None:
        self._run = placed(executable.run)
        self._inputs = {spec.name: DATATYPES[spec.dtype].numpy for spec in executable.inputs if spec.dtype is not None}
        self._outputs = {spec.name: DATATYPES[spec.dtype].name for spec in executable.outputs if spec.dtype is not None}
        self._running = threading.Lock()
        self._answered = 0

    def infer(self, request: ModelInferRequest, _context: object) -> ModelInferResponse:
        """Run the model."""
        feeds = {
            tensor.name: np.frombuffer(data, self._inputs[tensor.name]).reshape(tensor.shape)
            for tensor, data in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        with self._running:
            results = self._run(feeds)
        response = ModelInferResponse(model_name=request.model_name, id=request.id)
        for name, array in results.items():
            response.outputs.add(name=name, datatype=self._outputs[name], shape=array.shape)
            response.raw_output_contents.append(array.tobytes())
        self._answered += 1
        return response

    def statistics(self, request: ModelStatisticsRequest, _context: object) -> ModelStatisticsResponse:
        """Return the number of requests: perf_analyzer stops if it doesn't grow."""
        count = StatisticDuration(count=self._answered)
        stats = ModelStatistics(
            name=request.name,
            version=request.version or "1",
            inference_count=self._answered,
            execution_count=self._answered,
            inference_stats=InferStatistics(success=count, queue=count),
        )
        return ModelStatisticsResponse(model_stats=[stats])


if __name__ == "__main__":
    sys.exit(main())
