"""The ceiling: the same front, with a handler that only runs the model.

``python -m benchmarks.serving.ceiling servable.yaml 0`` serves the first model of a configuration on grpcio's threaded
server, with the options and the threads of ``serving/front.py``. Nothing stands before the handler, and it neither
checks, counts, logs nor batches. What the real server loses against it is what its features cost. Several such
processes may share a port where the configuration has workers.
"""

from __future__ import annotations

import pathlib
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np

from engines import Executable
from protos import (
    InferStatistics,
    ModelInferRequest,
    ModelInferResponse,
    ModelStatistics,
    ModelStatisticsRequest,
    ModelStatisticsResponse,
    StatisticDuration,
)
from serving.admission import InferencePool, inference_threads
from serving.config import load_config
from serving.cores import FrontCores, placed
from serving.front import channel_options, codec
from serving.loader import engine_loader
from serving.metrics import Metrics
from serving.repository import ModelRepository
from serving.schema import ServableConfig
from serving.service import InferenceService
from serving.servicer import SERVICE_NAME, GrpcServicer
from serving.signature import DATATYPES


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM."""
    path, place = sys.argv[1:] if argv is None else argv
    config = load_config(pathlib.Path(path))
    cores = FrontCores(config.server.grpc.cores, int(place))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before there are threads: they inherit it
    server = ceiling(config, cores)
    with cores.kept():
        server.start()
    signal.sigwait({signal.SIGTERM})
    server.stop(None).wait()
    return 0


def ceiling(config: ServableConfig, cores: FrontCores) -> grpc.Server:
    """Return the server, not started, with its model loaded. Every RPC but ModelInfer is that of the real server."""
    loaded: list[Executable] = []
    load = engine_loader(config)

    def keep(model: Any) -> Executable:
        loaded.append(load(model))
        return loaded[-1]

    repository = ModelRepository(config.models, keep, Metrics(), "wait")
    repository.load(config.models[0].name, None, {})
    pool = InferencePool(inference_threads(config.models[0].instances), settle=cores.settle)
    servicer = GrpcServicer(InferenceService(repository, Metrics(), config.server), pool.waiting)
    model = BareModel(loaded[0])
    handlers = {**servicer.handlers(), "ModelInfer": model.infer, "ModelStatistics": model.statistics}
    grpc_port = config.server.grpc
    with cores.kept():
        server = grpc.server(pool, options=channel_options(config.server, shares_port=grpc_port.workers > 1))
    methods = {name: grpc.unary_unary_rpc_method_handler(handler, **codec(name)) for name, handler in handlers.items()}
    server.add_registered_method_handlers(SERVICE_NAME, methods)
    server.add_insecure_port(f"{grpc_port.host}:{grpc_port.port}")
    return server


class BareModel:
    """Answers requests with raw contents: parse, run, write.

    Runs come one after the other, as in a server with one instance.
    """

    def __init__(self, executable: Executable) -> None:
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
        """Return how many requests there were: perf_analyzer stops where they don't become more."""
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
