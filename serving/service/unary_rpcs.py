"""Every unary RPC but ModelInfer: protocol messages to calls of the service and back, for all transports."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trtnode.protos import (
    ModelConfigRequest,
    ModelConfigResponse,
    ModelMetadataRequest,
    ModelMetadataResponse,
    ModelReadyRequest,
    ModelReadyResponse,
    ModelStatisticsRequest,
    ModelStatisticsResponse,
    ServerLiveRequest,
    ServerLiveResponse,
    ServerMetadataRequest,
    ServerMetadataResponse,
    ServerReadyRequest,
    ServerReadyResponse,
)
from trtnode.serving.protocol.wire_signature import WireTensor
from trtnode.serving.service.inference_service import InferenceService
from trtnode.serving.service.model_messages import model_config, model_statistics
from trtnode.serving.service.repository_rpcs import repository_methods
from trtnode.serving.service.rpc_table import BROADCAST_RPCS
from trtnode.serving.service.settings_rpcs import settings_methods
from trtnode.serving.service.shared_memory_rpcs import memory_methods

Method = Callable[[Any], Any]
"""Request message to response message."""

Broadcast = Callable[[str, Any], Any]
"""Answers an RPC, given its name and request, for all processes that share a port."""


class UnaryRpcs:
    """Answers the unary RPCs of ``inference.GRPCInferenceService`` but ModelInfer.

    Attributes:
        methods: The answer of this process to each, by name.
        shared_methods: The answer of all processes that share the port to each, by name.
        is_broadcast: Whether several processes share the port.
    """

    def __init__(self, service: InferenceService, broadcast: Broadcast | None = None) -> None:
        """Answer for a service.

        Args:
            service: Answers.
            broadcast: Where several processes share the port, answers ``BROADCAST_RPCS`` for all of them.
        """
        self._service = service
        self.is_broadcast = broadcast is not None
        self.methods: Mapping[str, Method] = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._model_statistics,
            **repository_methods(service),
            **memory_methods(service.shared_memory),
            **settings_methods(service),
        }
        self.shared_methods: Mapping[str, Method] = self.methods
        if broadcast is not None:
            self.shared_methods = {
                **self.methods,
                **{rpc: functools.partial(broadcast, rpc) for rpc in BROADCAST_RPCS},
            }

    def _server_live(self, _request: ServerLiveRequest) -> ServerLiveResponse:
        return ServerLiveResponse(live=True)

    def _server_ready(self, _request: ServerReadyRequest) -> ServerReadyResponse:
        return ServerReadyResponse(ready=self._service.ready())

    def _server_metadata(self, _request: ServerMetadataRequest) -> ServerMetadataResponse:
        service = self._service
        return ServerMetadataResponse(name=service.name, version=service.version, extensions=service.extensions)

    def _model_ready(self, request: ModelReadyRequest) -> ModelReadyResponse:
        return ModelReadyResponse(ready=self._service.model_ready(request.name, request.version))

    def _model_metadata(self, request: ModelMetadataRequest) -> ModelMetadataResponse:
        model = self._service.describe_model(request.name, request.version)
        return ModelMetadataResponse(
            name=model.name,
            versions=model.versions,
            platform=model.platform,
            inputs=_tensor_metadata(model.inputs),
            outputs=_tensor_metadata(model.outputs),
        )

    def _model_config(self, request: ModelConfigRequest) -> ModelConfigResponse:
        return ModelConfigResponse(config=model_config(self._service.find(request.name, request.version)))

    def _model_statistics(self, request: ModelStatisticsRequest) -> ModelStatisticsResponse:
        servables = self._service.find_all(request.name, request.version)
        return ModelStatisticsResponse(model_stats=map(model_statistics, servables))


def _tensor_metadata(wire: Iterable[WireTensor]) -> list[ModelMetadataResponse.TensorMetadata]:
    return [
        ModelMetadataResponse.TensorMetadata(
            name=tensor.name,
            datatype=tensor.datatype.name,
            shape=(-1,) if tensor.shape is None else tensor.shape,
        )
        for tensor in wire
    ]
