"""Protocol messages of the inference service, in a descriptor pool of their own."""

from protos.inference_pb2 import (
    DESCRIPTOR,
    InferParameter,
    InferTensorContents,
    ModelInferRequest,
    ModelInferResponse,
    ModelMetadataRequest,
    ModelMetadataResponse,
    ModelReadyRequest,
    ModelReadyResponse,
    ServerLiveRequest,
    ServerLiveResponse,
    ServerMetadataRequest,
    ServerMetadataResponse,
    ServerReadyRequest,
    ServerReadyResponse,
)

__all__ = [
    "DESCRIPTOR",
    "InferParameter",
    "InferTensorContents",
    "ModelInferRequest",
    "ModelInferResponse",
    "ModelMetadataRequest",
    "ModelMetadataResponse",
    "ModelReadyRequest",
    "ModelReadyResponse",
    "ServerLiveRequest",
    "ServerLiveResponse",
    "ServerMetadataRequest",
    "ServerMetadataResponse",
    "ServerReadyRequest",
    "ServerReadyResponse",
]
