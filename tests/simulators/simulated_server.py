"""A simulated KServe V2 server, for tests of clients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np

from trtnode import protos
from trtnode.protos import ModelInferRequest, ModelInferResponse, ModelMetadataResponse

SERVICE = protos.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name


def open_port(handlers: Mapping[str, grpc.RpcMethodHandler]) -> tuple[grpc.Server, str]:
    """Start a gRPC server with some RPCs of the inference service; return it and its address."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    server.add_registered_method_handlers(SERVICE, handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"


class SimulatedServer:
    """A server with one model, ``plus``, that adds 1 to ``x``, float32[N, 3].

    Attributes:
        ready: False to refuse requests for the model's readiness.
        inputs: Name, datatype and shape of each input in the metadata.
        failure: Status of failed requests.
        fails: Return True to fail an inference request, by its number from 1.
        requests: Inference requests that were answered.
    """

    def __init__(self) -> None:
        self.ready = True
        self.inputs = [("x", "FP32", [-1, 3])]
        self.failure = grpc.StatusCode.RESOURCE_EXHAUSTED
        self.fails: Callable[[int], object] = lambda count: False
        self.requests: list[ModelInferRequest] = []
        self._counter = itertools.count(1)
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                getattr(self, name),
                request_deserializer=getattr(protos, f"{name}Request").FromString,
                response_serializer=getattr(protos, f"{name}Response").SerializeToString,
            )
            for name in dir(self)
            if name[0].isupper()
        }
        self._server, self.address = open_port(handlers)

    def __enter__(self) -> SimulatedServer:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.stop(None).wait()

    def ServerLive(  # noqa: N802
        self, request: protos.ServerLiveRequest, context: grpc.ServicerContext
    ) -> protos.ServerLiveResponse:
        return protos.ServerLiveResponse(live=True)

    def ModelReady(  # noqa: N802
        self, request: protos.ModelReadyRequest, context: grpc.ServicerContext
    ) -> protos.ModelReadyResponse:
        return protos.ModelReadyResponse(ready=self.ready)

    def ModelMetadata(  # noqa: N802
        self, request: protos.ModelMetadataRequest, context: grpc.ServicerContext
    ) -> ModelMetadataResponse:
        tensor = ModelMetadataResponse.TensorMetadata
        return ModelMetadataResponse(
            name="plus",
            inputs=[tensor(name=name, datatype=datatype, shape=shape) for name, datatype, shape in self.inputs],
            outputs=[tensor(name="y", datatype="FP32", shape=[-1, 3])],
        )

    def ModelInfer(self, request: ModelInferRequest, context: grpc.ServicerContext) -> ModelInferResponse:  # noqa: N802
        if self.fails(next(self._counter)):
            context.abort(self.failure, "one too many")
        self.requests.append(request)
        response = ModelInferResponse(model_name="plus")
        response.outputs.add(name="y", datatype="FP32", shape=request.inputs[0].shape)
        x = np.frombuffer(request.raw_input_contents[0], np.float32)
        response.raw_output_contents.append((x + np.float32(1)).tobytes())
        return response
