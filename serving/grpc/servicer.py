"""The handlers of gRPC's calls: inference, streams of it, and every other unary RPC."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NoReturn

import grpc
import numpy as np

from protos import ModelInferRequest, ModelInferResponse, ModelStreamInferResponse
from serving.errors import UnreadableMessageError
from serving.grpc.codec import UNREADABLE, parser_of
from serving.grpc.direct import DirectCall
from serving.grpc.streams import Refused, Stream
from serving.protocol.request_cache import ParsedRequest, RequestCache
from serving.protocol.shared_memory import SharedMemory
from serving.service.host import ModelHost
from serving.service.request_context import RequestContext
from serving.service.rpc_handler import Handler, rpc_handler
from serving.service.rpc_table import INFER_RPC, STREAM_RPC
from serving.service.unary_rpcs import Method
from serving.threads.caller import answering

parse_infer = parser_of(ModelInferRequest)


class GrpcExchange:
    """An inference request and its response as protocol messages; see ``Exchange``."""

    __slots__ = ("_request", "_response", "id", "model_name", "model_version", "size")

    def __init__(self, request: ModelInferRequest, response: ModelInferResponse, size: int = 0) -> None:
        self.size = size
        self.model_name = request.model_name
        self.model_version = request.model_version
        self.id = request.id
        self._request = request
        self._response = response

    def read(self, cache: RequestCache, memory: SharedMemory) -> ParsedRequest:
        """Return the request as arrays that fit the model."""
        return cache.read(self._request, memory)

    def write(self, cache: RequestCache, request: ParsedRequest, arrays: Sequence[np.ndarray]) -> None:
        """Fill in the response."""
        cache.write(self._response, request, arrays)
        if self.id:
            self._response.id = self.id


class GrpcServicer:
    """Makes the handlers of ``inference.GRPCInferenceService``."""

    def __init__(self, host: ModelHost) -> None:
        self._service = host.service
        self._pool = host.pools.inference
        self._methods = host.rpcs.shared_methods
        self._answer_streamed = rpc_handler(STREAM_RPC, self._infer_streamed, _fail_streamed)
        self._refuse_streamed = rpc_handler(STREAM_RPC, self._refuse, _fail_streamed)
        self._answer_direct = rpc_handler(INFER_RPC, self._infer_direct, _fail_direct)
        self._refuse_direct = rpc_handler(INFER_RPC, self._refuse, _fail_direct)
        self._begin_direct = self._pool.begins(self._answer_direct, self._refuse_direct)

    def unary_handlers(self) -> dict[str, Handler]:
        """Return the handler of each unary RPC but ModelInfer, by its name."""
        return {
            rpc: rpc_handler(rpc, functools.partial(_answer_unary, rpc, method), _abort)
            for rpc, method in self._methods.items()
        }

    def infer_handler(self) -> Handler:
        """Return the handler of inference requests."""
        return rpc_handler(INFER_RPC, self._infer, _abort)

    def refusal_handler(self) -> Handler:
        """Return the handler of inference requests that there is no room or time for."""
        return rpc_handler(INFER_RPC, self._refuse, _abort)

    def take(self, call: DirectCall, message: bytes) -> None:
        """Answer an inference request that came past grpcio's Python layer: at once, or in a thread of a model."""
        request = parse_infer(message)
        if not self._pool.admits():
            self._refuse_direct(request, call)
        elif request is UNREADABLE or self._service.answers_at_once(
            request.model_name, request.model_version, call.size
        ):
            self._answer_direct(request, call)
        else:
            call.watch()
            self._pool.submit(self._begin_direct, request, call)

    def accept_streamed(self, stream: Stream, request: ModelInferRequest | Refused, context: RequestContext) -> None:
        """Let a request of a stream be answered, in the thread of a model where it is to run."""
        if isinstance(request, Refused):
            answer = rpc_handler(STREAM_RPC, functools.partial(_raise, request.error), _fail_streamed)
            stream.run(answer, request.request, context)
        elif self._pool.admits():
            self._pool.accept(self._pool.begins(stream.run), self._answer_streamed, request, context)
        else:
            stream.run(self._refuse_streamed, request, context)

    def _infer(self, request: ModelInferRequest, context: Any, size: int = 0) -> ModelInferResponse:
        if request is UNREADABLE:
            raise UnreadableMessageError(INFER_RPC)
        response = ModelInferResponse()
        self._service.infer(GrpcExchange(request, response, size), context)
        return response

    def _infer_direct(self, request: ModelInferRequest, call: DirectCall) -> None:
        call.reply(self._infer(request, call, call.size).SerializeToString())

    def _refuse(self, request: ModelInferRequest, _context: Any) -> NoReturn:
        if request is UNREADABLE:
            raise UnreadableMessageError(INFER_RPC)
        raise self._service.refuse(request.model_name)

    def _infer_streamed(self, request: ModelInferRequest, context: RequestContext) -> ModelStreamInferResponse:
        answer = ModelStreamInferResponse()
        self._service.infer(GrpcExchange(request, answer.infer_response), context)
        return _finished(answer)


def _answer_unary(rpc: str, method: Method, request: Any, context: grpc.ServicerContext) -> Any:
    if request is UNREADABLE:
        raise UnreadableMessageError(rpc)
    with answering(context):
        return method(request)


def _abort(code: grpc.StatusCode, details: str, _request: Any, context: grpc.ServicerContext) -> Any:
    context.abort(code, details)  # raises; gRPC sends the status


def _fail_direct(code: grpc.StatusCode, details: str, _request: Any, call: DirectCall) -> None:
    call.fail(code, details)


def _raise(error: Exception, _request: Any, _context: Any) -> NoReturn:
    raise error


def _fail_streamed(
    code: grpc.StatusCode, details: str, request: ModelInferRequest, context: RequestContext
) -> ModelStreamInferResponse:
    context.set_code(code)
    failed = ModelInferResponse(model_name=request.model_name, id=request.id)
    return _finished(ModelStreamInferResponse(error_message=details, infer_response=failed))


def _finished(answer: ModelStreamInferResponse) -> ModelStreamInferResponse:
    answer.infer_response.parameters["triton_final_response"].bool_param = True
    return answer
