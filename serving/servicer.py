"""Protocol messages to calls of the service and back, and nothing else."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc

from protos import (
    DESCRIPTOR,
    InferParameter,
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
from serving import tensors
from serving.errors import ServingError
from serving.memory_rpcs import memory_methods
from serving.model_messages import model_config, model_statistics
from serving.parameters import check_request_parameters, count_parameter
from serving.parsing import UNREADABLE
from serving.queue_terms import QueueTerms
from serving.repository_rpcs import repository_methods
from serving.service import SERVER_NAME, InferenceService
from serving.settings_rpcs import settings_methods
from serving.signature import WireTensor
from serving.status import status_of
from serving.streams import StreamedRequest

SERVICE_NAME = DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
INFER_METHOD = f"/{SERVICE_NAME}/ModelInfer"
STREAM_RPC = "ModelStreamInfer"

Handler = Callable[[Any, grpc.ServicerContext], Any]
"""Request and context to response."""

OnCancel = Callable[[Callable[[], None]], bool]
"""Registers what to call when the client leaves; returns False if it has left already."""


class GrpcServicer:
    """The RPCs of ``inference.GRPCInferenceService``."""

    def __init__(self, service: InferenceService, waiting: contextlib.AbstractContextManager[None]) -> None:
        self._service = service
        self._waiting = waiting

    def handlers(self) -> dict[str, Handler]:
        """Return what answers each unary RPC, by its name; errors become statuses."""
        methods: dict[str, Callable[[Any], Any]] = {
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
        handlers: dict[str, Handler] = {
            name: functools.partial(_answer, name, method) for name, method in methods.items()
        }
        return {**handlers, "ModelInfer": self._answer_infer}

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

    def model_infer(self, request: ModelInferRequest, on_cancel: OnCancel) -> ModelInferResponse:
        """Run a model once; ``on_cancel`` registers what to call when the client leaves."""
        response = ModelInferResponse()
        self._infer(request, response, on_cancel)
        return response

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

        def fail(_request: ModelInferRequest, _response: ModelInferResponse, _on_cancel: OnCancel) -> None:
            raise error

        return self._answer_streamed(fail, request, context)

    def _infer(self, request: ModelInferRequest, response: ModelInferResponse, on_cancel: OnCancel) -> None:
        memory = self._service.shared_memory
        with self._service.call(request.model_name, request.model_version) as call:
            terms = QueueTerms(*_wishes(request.parameters), on_cancel, self._waiting)
            feeds = tensors.read_inputs(request, call.signature, memory)
            windows = tensors.output_windows(request, memory)
            outputs, arrays = call.infer(feeds, [output.name for output in request.outputs], terms)
            response.model_name, response.model_version = request.model_name, call.servable.version
            response.id = request.id
            tensors.write_outputs(response, outputs, arrays, windows)

    def _refuse(self, request: ModelInferRequest, _response: ModelInferResponse, _on_cancel: OnCancel) -> None:
        raise self._service.refuse(request.model_name)

    def _answer_infer(self, request: ModelInferRequest, context: grpc.ServicerContext) -> Any:
        infer = functools.partial(self.model_infer, on_cancel=context.add_callback)
        return _answer("ModelInfer", infer, request, context)

    def _answer_streamed(
        self,
        fill: Callable[[ModelInferRequest, ModelInferResponse, OnCancel], None],
        request: ModelInferRequest,
        context: StreamedRequest,
    ) -> ModelStreamInferResponse:
        answer = ModelStreamInferResponse()
        try:
            fill(request, answer.infer_response, context.add_callback)
        except Exception as error:
            code, details = status_of(error, STREAM_RPC)
            context.set_code(code)
            answer = ModelStreamInferResponse(
                error_message=details, infer_response=ModelInferResponse(model_name=request.model_name, id=request.id)
            )
        answer.infer_response.parameters["triton_final_response"].bool_param = True
        return answer


def _answer(name: str, method: Callable[[Any], Any], request: Any, context: grpc.ServicerContext) -> Any:
    if request is UNREADABLE:
        context.abort(grpc.StatusCode.INTERNAL, f"the message is no {name}Request")
    try:
        return method(request)
    except Exception as error:
        code, details = status_of(error, name)
    return context.abort(code, details)  # raises; gRPC sends the status


def _wishes(parameters: Mapping[str, InferParameter]) -> tuple[int, int]:
    """Return a request's priority and timeout in microseconds, each 0 where it has none."""
    if not parameters:
        return 0, 0
    check_request_parameters(parameters)
    priority = count_parameter(parameters, "priority", "uint64_param", "int64_param")
    return priority, count_parameter(parameters, "timeout", "int64_param")


def _tensor_metadata(wire: Iterable[WireTensor]) -> list[ModelMetadataResponse.TensorMetadata]:
    return [
        ModelMetadataResponse.TensorMetadata(
            name=tensor.name,
            datatype=tensor.datatype.name,
            shape=(-1,) if tensor.shape is None else tensor.shape,
        )
        for tensor in wire
    ]
