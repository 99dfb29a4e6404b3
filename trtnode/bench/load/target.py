"""The server and the model to measure, by calls that every KServe V2 server answers."""

from __future__ import annotations

import dataclasses
from typing import Any

import grpc

from trtnode import protos
from trtnode.bench.load.errors import ModelNotReadyError, UnknownModelError, UnreachableError, WrongProtocolError
from trtnode.protos import ModelMetadataRequest, ModelMetadataResponse, ModelReadyRequest, ServerLiveRequest
from trtnode.serving.service.rpc_table import INFER_RPC, SERVICE_NAME

INFER_METHOD = f"/{SERVICE_NAME}/{INFER_RPC}"

ANSWER_S = 10.0
"""Time limit of calls that describe server and model."""

NO_ANSWER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A model that is ready on a server.

    Attributes:
        address: HOST:PORT.
        model: The model's name.
        metadata: The model's metadata from the server.
        channel: To the server.
    """

    address: str
    model: str
    metadata: ModelMetadataResponse
    channel: grpc.Channel

    def call(self, rpc: str, request: Any, timeout_s: float = ANSWER_S) -> Any:
        """Call a method of the service, such as ``ModelInfer``, and return its response message.

        Raises:
            grpc.RpcError: The server answers with an error, or not at all.
        """
        return call(self.channel, rpc, request, timeout_s)


def call(channel: grpc.Channel, rpc: str, request: Any, timeout_s: float = ANSWER_S) -> Any:
    """Call a method of the inference service once; see `Target.call`."""
    method = channel.unary_unary(
        f"/{SERVICE_NAME}/{rpc}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=getattr(protos, f"{rpc}Response").FromString,
    )
    return method(request, timeout=timeout_s)


def find_target(channel: grpc.Channel, address: str, model: str) -> Target:
    """Find a model on a server.

    Args:
        channel: To the server.
        address: HOST:PORT, for messages.
        model: The model's name there.

    Raises:
        TargetError: Nothing answers, it is no KServe V2 server, or the model is unknown or not ready.
    """
    try:
        call(channel, "ServerLive", ServerLiveRequest())
    except grpc.RpcError as error:
        unreachable = error.code() in NO_ANSWER
        raise (UnreachableError if unreachable else WrongProtocolError)(address, error.details()) from error
    try:
        metadata = call(channel, "ModelMetadata", ModelMetadataRequest(name=model))
        ready = call(channel, "ModelReady", ModelReadyRequest(name=model)).ready
    except grpc.RpcError as error:
        if error.code() in NO_ANSWER:
            raise ModelNotReadyError(address, model) from error
        raise UnknownModelError(address, model, error.details()) from error
    if not ready:
        raise ModelNotReadyError(address, model)
    return Target(address=address, model=model, metadata=metadata, channel=channel)
