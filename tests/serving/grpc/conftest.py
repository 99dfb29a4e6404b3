"""Requests and streams as clients hold them."""

from __future__ import annotations

import queue

import grpc
import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import given
from trtnode.protos import ModelInferRequest, ModelStreamInferResponse

WAIT_S = 120
METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"


def inputs(value: float = 0, size: int = 1) -> list[triton.InferInput]:
    return [given("x", np.full(size, value, np.float32))]


def message(value: float = 0, name: str = "fake", **fields) -> ModelInferRequest:
    request = ModelInferRequest(model_name=name, raw_input_contents=[np.float32(value).tobytes()], **fields)
    request.inputs.add(name="x", datatype="FP32", shape=[1])
    return request


class Stream:
    """A stream of tritonclient's, with its answers in the order of their arrival."""

    def __init__(self, client: triton.InferenceServerClient, **options) -> None:
        self.client = client
        self.answers: queue.Queue = queue.Queue()
        client.start_stream(lambda result, error: self.answers.put((result, error)), **options)

    def send(self, value: float = 0, model: str = "fake", **options) -> None:
        self.client.async_stream_infer(model, inputs(value), **options)

    def next(self) -> triton.InferResult:
        result, error = self.answers.get(timeout=WAIT_S)
        assert error is None, error
        return result

    def error(self) -> InferenceServerException:
        result, error = self.answers.get(timeout=WAIT_S)
        assert result is None
        return error


class RawStream:
    """A stream without any library between it and the server."""

    def __init__(self, channel: grpc.Channel, **options) -> None:
        self._requests: queue.Queue = queue.Queue()
        call = channel.stream_stream(METHOD, ModelInferRequest.SerializeToString, ModelStreamInferResponse.FromString)
        self.call = call(iter(self._requests.get, None), **options)

    def send(self, request: ModelInferRequest) -> None:
        self._requests.put(request)

    def close(self) -> None:
        self._requests.put(None)

    def __next__(self) -> ModelStreamInferResponse:
        return next(self.call)


def take(stream: Stream, count: int) -> list[triton.InferResult]:
    return [stream.next() for _ in range(count)]


def triton_inputs(**arrays: np.ndarray) -> list[triton.InferInput]:
    return [given(name, array) for name, array in arrays.items()]
