"""The handlers of gRPC's calls: inference, streams of it, and every other unary RPC."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import grpc
import numpy as np

from protos import ModelInferRequest, ModelInferResponse, ModelStreamInferResponse
from serving.errors import UnreadableMessageError
from serving.grpc.call import Call
from serving.grpc.codec import UNREADABLE, parser_of
from serving.grpc.streams import Refused, Stream
from serving.grpc.unary_rpc import Answer, UnaryRpc
from serving.protocol.request_cache import ParsedRequest, RequestCache
from serving.protocol.shared_memory import SharedMemory
from serving.service.host import ModelHost
from serving.service.request_context import RequestContext
from serving.service.rpc_handler import answer_inference, rpc_handler
from serving.service.rpc_table import INFER_RPC, STREAM_RPC, messages_of, pool_of
from serving.service.status import status_of
from serving.service.unary_rpcs import Method
from serving.threads.caller import answering


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
        self._pools = host.pools
        self._rpcs = host.rpcs
        self._authorizer = host.authorizer
        self._refuse = rpc_handler(INFER_RPC, self._raise_refusal, _fail)
        self._refuse_streamed = rpc_handler(STREAM_RPC, self._raise_refusal, _fail_streamed)

    def unary_rpcs(self) -> dict[str, UnaryRpc]:
        """Return each unary RPC, by its name."""
        answers = {rpc: self._in_pool(rpc, method) for rpc, method in self._rpcs.shared_methods.items()}
        answers[INFER_RPC] = self._take
        return {
            rpc: UnaryRpc(rpc, parser_of(messages_of(rpc)[0]), answer, self._authorizer)
            for rpc, answer in answers.items()
        }

    def accept_streamed(self, stream: Stream, request: ModelInferRequest | Refused, context: RequestContext) -> None:
        """Let a request of a stream be answered, in the thread of a model where it is to run."""
        if isinstance(request, Refused):
            answer = rpc_handler(STREAM_RPC, functools.partial(_raise, request.error), _fail_streamed)
            stream.answer(answer(request.request, context), context)
        elif self._pool.admits():
            self._pool.enter()
            self._pool.run(functools.partial(self._infer_streamed, stream, request, context))
        else:
            stream.answer(self._refuse_streamed(request, context), context)

    def _in_pool(self, rpc: str, method: Method) -> Answer:
        handler = rpc_handler(rpc, functools.partial(_answer_unary, rpc, method), _fail)
        pool = pool_of(rpc, self._pools, is_broadcast=self._rpcs.is_broadcast)

        def answer(request: Any, call: Call) -> None:
            call.watch()
            pool.run(lambda: _send(handler(request, call), call))

        return answer

    def _take(self, request: ModelInferRequest, call: Call) -> None:
        """Have an inference request answered: in this thread if that takes a moment."""
        if not self._pool.admits():
            _send(self._refuse(request, call), call)
        elif request is UNREADABLE:
            call.fail(*status_of(UnreadableMessageError(INFER_RPC), INFER_RPC))
        elif self._service.answers_at_once(request.model_name, request.model_version, call.size):
            self._infer(request, call, _nothing)
        else:
            call.watch()
            self._pool.enter()
            self._pool.run(functools.partial(self._infer, request, call, self._pool.leave))

    def _infer(self, request: ModelInferRequest, call: Call, leave: Callable[[], None]) -> None:
        response = ModelInferResponse()

        def reply() -> None:
            call.reply(response.SerializeToString())
            leave()

        def fail(code: grpc.StatusCode, details: str) -> None:
            call.fail(code, details)
            leave()

        answer_inference(self._service, INFER_RPC, GrpcExchange(request, response, call.size), call, reply, fail)

    def _infer_streamed(self, stream: Stream, request: ModelInferRequest, context: RequestContext) -> None:
        answer = ModelStreamInferResponse()

        def reply() -> None:
            stream.answer(_finished(answer), context)
            self._pool.leave()

        def fail(code: grpc.StatusCode, details: str) -> None:
            stream.answer(_fail_streamed(code, details, request, context), context)
            self._pool.leave()

        if stream.left:
            self._pool.leave()
        else:
            exchange = GrpcExchange(request, answer.infer_response)
            answer_inference(self._service, STREAM_RPC, exchange, context, reply, fail)

    def _raise_refusal(self, request: ModelInferRequest, _context: RequestContext) -> NoReturn:
        if request is UNREADABLE:
            raise UnreadableMessageError(INFER_RPC)
        raise self._service.refuse(request.model_name)


def _nothing() -> None:
    """End a request that is not counted as in flight."""


_Answer = bytes | tuple[grpc.StatusCode, str]
"""A response, or code and details of a failure."""


def _answer_unary(rpc: str, method: Method, request: Any, call: Call) -> _Answer:
    if request is UNREADABLE:
        raise UnreadableMessageError(rpc)
    with answering(call):
        return bytes(method(request).SerializeToString())


def _fail(code: grpc.StatusCode, details: str, _request: Any, call: Call) -> _Answer:
    call.set_code(code)
    return code, details


def _send(answer: _Answer, call: Call) -> None:
    if isinstance(answer, bytes):
        call.reply(answer)
    else:
        call.fail(*answer)


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
