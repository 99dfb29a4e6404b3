"""Protocol messages to calls of the service and back, and nothing else."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import grpc

import protos
from protos import (
    DESCRIPTOR,
    ModelConfigRequest,
    ModelConfigResponse,
    ModelInferRequest,
    ModelInferResponse,
    ModelMetadataRequest,
    ModelMetadataResponse,
    ModelReadyRequest,
    ModelReadyResponse,
    ModelStatisticsRequest,
    ModelStatisticsResponse,
    ModelStreamInferResponse,
    ServerLiveRequest,
    ServerLiveResponse,
    ServerMetadataRequest,
    ServerMetadataResponse,
    ServerReadyRequest,
    ServerReadyResponse,
)
from serving.access import ADMIN_RIGHTS
from serving.errors import ServingError
from serving.forms import read_request, write_response
from serving.memory_rpcs import memory_methods
from serving.model_messages import model_config, model_statistics
from serving.parsing import UNREADABLE
from serving.queue_terms import QueueTerms
from serving.repository_rpcs import repository_methods
from serving.service import SERVER_NAME, InferenceService
from serving.settings_rpcs import settings_methods
from serving.signature import WireTensor
from serving.status import status_of
from serving.streams import StreamedRequest

SERVICE_NAME = DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
STREAM_RPC = "ModelStreamInfer"

Handler = Callable[[Any, grpc.ServicerContext], Any]
"""Request and context to response."""

Spread = Callable[[str, Any], Any]
"""Answers an RPC, given its name and request, for all processes that share a port."""

SPREAD_RPCS = (*ADMIN_RIGHTS, "ModelStatistics", "RepositoryIndex")
"""RPCs whose effect or answer is about all processes that share a port."""

Message = Any
"""The class of a protocol message."""


class CallContext(Protocol):
    """What an inference request needs of the call that it came with, be it one of its own or a stream's."""

    def add_callback(self, leave: Callable[[], None]) -> bool:
        """Register what to call when the client leaves; return False if it has left already."""
        ...

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]]:
        """Return the call's metadata."""
        ...


def messages_of(rpc: str) -> tuple[Message, Message]:
    """Return the classes of an RPC's request and response."""
    method = DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name[rpc]
    return getattr(protos, method.input_type.name), getattr(protos, method.output_type.name)


class GrpcServicer:
    """The RPCs of ``inference.GRPCInferenceService``.

    Attributes:
        methods: What answers each unary RPC but ModelInfer for this process, by its name: request to response.
    """

    def __init__(
        self,
        service: InferenceService,
        waiting: contextlib.AbstractContextManager[None],
        spread: Spread | None = None,
    ) -> None:
        """Serve a service.

        Args:
            service: Answers.
            waiting: Is entered while a request waits for others.
            spread: Where several processes share the port, answers ``SPREAD_RPCS`` for all of them.
        """
        self._service = service
        self._waiting = waiting
        self._spread = spread
        self.methods: Mapping[str, Callable[[Any], Any]] = {
            "ServerLive": self.server_live,
            "ServerReady": self.server_ready,
            "ServerMetadata": self.server_metadata,
            "ModelReady": self.model_ready,
            "ModelMetadata": self.model_metadata,
            "ModelConfig": self.model_config,
            "ModelStatistics": self.model_statistics,
            **repository_methods(self._service),
            **memory_methods(self._service.shared_memory),
            **settings_methods(self._service),
        }

    def shared_methods(self) -> dict[str, Callable[[Any], Any]]:
        """Return what answers each unary RPC but ModelInfer for all processes that share the port, by its name."""
        methods = dict(self.methods)
        if self._spread is not None:
            methods.update((name, functools.partial(self._spread, name)) for name in SPREAD_RPCS)
        return methods

    def handlers(self) -> dict[str, Handler]:
        """Return what answers each unary RPC, by its name; errors become statuses."""
        handlers: dict[str, Handler] = {
            name: functools.partial(_answer, name, method) for name, method in self.shared_methods().items()
        }
        return {**handlers, "ModelInfer": self.model_infer}

    def refusal(self) -> Handler:
        """Return what answers an inference request that there is no room or time for."""
        return functools.partial(_answer, "ModelInfer", self.refuse_infer)

    def server_live(self, _request: ServerLiveRequest) -> ServerLiveResponse:
        """Say that the process answers."""
        return ServerLiveResponse(live=True)

    def server_ready(self, _request: ServerReadyRequest) -> ServerReadyResponse:
        """Say whether the server can work."""
        return ServerReadyResponse(ready=self._service.ready())

    def server_metadata(self, _request: ServerMetadataRequest) -> ServerMetadataResponse:
        """Say what the server is and can do."""
        return ServerMetadataResponse(
            name=SERVER_NAME, version=self._service.version, extensions=self._service.extensions
        )

    def model_ready(self, request: ModelReadyRequest) -> ModelReadyResponse:
        """Say whether a model can answer."""
        return ModelReadyResponse(ready=self._service.model_ready(request.name, request.version))

    def model_metadata(self, request: ModelMetadataRequest) -> ModelMetadataResponse:
        """Describe a model."""
        model = self._service.describe_model(request.name, request.version)
        return ModelMetadataResponse(
            name=model.name,
            versions=model.versions,
            platform=model.platform,
            inputs=_tensor_metadata(model.inputs),
            outputs=_tensor_metadata(model.outputs),
        )

    def model_config(self, request: ModelConfigRequest) -> ModelConfigResponse:
        """Say how a model is served."""
        return ModelConfigResponse(config=model_config(self._service.find(request.name, request.version)))

    def model_statistics(self, request: ModelStatisticsRequest) -> ModelStatisticsResponse:
        """Say what happened to models so far."""
        servables = self._service.find_all(request.name, request.version)
        return ModelStatisticsResponse(model_stats=map(model_statistics, servables))

    def model_infer(self, request: ModelInferRequest, context: grpc.ServicerContext) -> Any:
        """Run a model once and return the response; errors become statuses."""
        _check_readable("ModelInfer", request, context)
        response = ModelInferResponse()
        try:
            self._infer(request, response, context)
        except Exception as error:
            code, details = status_of(error, "ModelInfer")
        else:
            return response
        return context.abort(code, details)  # raises; gRPC sends the status

    def refuse_infer(self, request: ModelInferRequest) -> ModelInferResponse:
        """Refuse a request whatever it asks for."""
        raise self._service.refuse(request.model_name)

    def stream_infer(self, request: ModelInferRequest, context: StreamedRequest) -> ModelStreamInferResponse:
        """Run a model once for a request of a stream; what goes wrong stands in the response."""
        return self._answer_streamed(self._infer, request, context)

    def refuse_streamed(self, request: ModelInferRequest, context: StreamedRequest) -> ModelStreamInferResponse:
        """Refuse a request of a stream whatever it asks for."""
        return self._answer_streamed(self._refuse, request, context)

    def fail_streamed(
        self, error: ServingError, request: ModelInferRequest, context: StreamedRequest
    ) -> ModelStreamInferResponse:
        """Answer a request of a stream with an error that is known already."""

        def fail(_request: ModelInferRequest, _response: ModelInferResponse, _context: CallContext) -> None:
            raise error

        return self._answer_streamed(fail, request, context)

    def _infer(self, request: ModelInferRequest, response: ModelInferResponse, context: "CallContext") -> None:
        memory = self._service.shared_memory
        name, identity, headers = request.model_name, request.id, context.invocation_metadata
        with self._service.call(name, request.model_version, request_id=identity, headers=headers) as call:
            asked = read_request(request, call.signature, memory)
            terms = QueueTerms(asked.priority, asked.timeout_us, context.add_callback, self._waiting)
            outputs, arrays = call.infer(asked.feeds, asked.names, terms)
            write_response(response, call.signature, call.servable.version, outputs, arrays, asked.windows)
            if identity:
                response.id = identity

    def _refuse(self, request: ModelInferRequest, _response: ModelInferResponse, _context: "CallContext") -> None:
        raise self._service.refuse(request.model_name)

    def _answer_streamed(
        self,
        fill: Callable[[ModelInferRequest, ModelInferResponse, "CallContext"], None],
        request: ModelInferRequest,
        context: StreamedRequest,
    ) -> ModelStreamInferResponse:
        answer = ModelStreamInferResponse()
        try:
            fill(request, answer.infer_response, context)
        except Exception as error:
            code, details = status_of(error, STREAM_RPC)
            context.set_code(code)
            answer = ModelStreamInferResponse(
                error_message=details, infer_response=ModelInferResponse(model_name=request.model_name, id=request.id)
            )
        answer.infer_response.parameters["triton_final_response"].bool_param = True
        return answer


def _check_readable(name: str, request: Any, context: grpc.ServicerContext) -> None:
    if request is UNREADABLE:
        context.abort(grpc.StatusCode.INTERNAL, f"the message is no {name}Request")


def _answer(name: str, method: Callable[[Any], Any], request: Any, context: grpc.ServicerContext) -> Any:
    _check_readable(name, request, context)
    try:
        return method(request)
    except Exception as error:
        code, details = status_of(error, name)
    return context.abort(code, details)  # raises; gRPC sends the status


def _tensor_metadata(wire: Iterable[WireTensor]) -> list[ModelMetadataResponse.TensorMetadata]:
    return [
        ModelMetadataResponse.TensorMetadata(
            name=tensor.name,
            datatype=tensor.datatype.name,
            shape=(-1,) if tensor.shape is None else tensor.shape,
        )
        for tensor in wire
    ]
