"""A simulated KServe V2 server, for tests of clients."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import pathlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np

from trtnode import protos
from trtnode.protos import ModelInferRequest, ModelInferResponse, ModelMetadataResponse

SERVICE = protos.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name

Tensor = ModelInferRequest.InferInputTensor | ModelInferRequest.InferRequestedOutputTensor


def open_port(handlers: Mapping[str, grpc.RpcMethodHandler]) -> tuple[grpc.Server, str]:
    """Start a gRPC server with some RPCs of the inference service; return it and its address."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    server.add_registered_method_handlers(SERVICE, handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"


class SimulatedServer:
    """A server with one model, ``plus``, that adds 1 to ``x``, float32[N, 3]; it also takes shared memory.

    Attributes:
        ready: False to refuse requests for the model's readiness.
        inputs: Name, datatype and shape of each input in the metadata.
        failure: Status of failed requests.
        fails: Return True to fail an inference request, by its number from 1.
        requests: Inference requests that were answered.
        regions: Registered shared memory by name.
        written: Results that were written to shared memory.
    """

    def __init__(self) -> None:
        self.ready = True
        self.inputs = [("x", "FP32", [-1, 3])]
        self.failure = grpc.StatusCode.RESOURCE_EXHAUSTED
        self.fails: Callable[[int], object] = lambda count: False
        self.requests: list[ModelInferRequest] = []
        self.regions: dict[str, protos.SystemSharedMemoryRegisterRequest] = {}
        self.written: list[np.ndarray] = []
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
        response.raw_output_contents.append(self._write(request, self._read(request) + np.float32(1)))
        return response

    def SystemSharedMemoryRegister(  # noqa: N802
        self, request: protos.SystemSharedMemoryRegisterRequest, context: grpc.ServicerContext
    ) -> protos.SystemSharedMemoryRegisterResponse:
        self.regions[request.name] = request
        return protos.SystemSharedMemoryRegisterResponse()

    def SystemSharedMemoryUnregister(  # noqa: N802
        self, request: protos.SystemSharedMemoryUnregisterRequest, context: grpc.ServicerContext
    ) -> protos.SystemSharedMemoryUnregisterResponse:
        del self.regions[request.name]
        return protos.SystemSharedMemoryUnregisterResponse()

    def _read(self, request: ModelInferRequest) -> np.ndarray:
        if request.raw_input_contents:
            return np.frombuffer(request.raw_input_contents[0], np.float32)
        with self._mapped(request.inputs[0]) as (memory, start, size):
            return np.frombuffer(memory[start : start + size], np.float32)

    def _write(self, request: ModelInferRequest, result: np.ndarray) -> bytes:
        if not (request.outputs and request.outputs[0].parameters):
            return result.tobytes()
        with self._mapped(request.outputs[0]) as (memory, start, size):
            memory[start : start + size] = result.tobytes()
        self.written.append(result)
        return b""

    @contextlib.contextmanager
    def _mapped(self, tensor: Tensor) -> Iterator[tuple[mmap.mmap, int, int]]:
        region = self.regions[tensor.parameters["shared_memory_region"].string_param]
        path = pathlib.Path("/dev/shm") / region.key.removeprefix("/")
        with path.open("r+b") as file, mmap.mmap(file.fileno(), region.byte_size) as memory:
            start = tensor.parameters["shared_memory_offset"].int64_param
            yield memory, start, tensor.parameters["shared_memory_byte_size"].int64_param
