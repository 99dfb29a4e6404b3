"""Refuses the calls without a right to them that grpcio's Python layer handles, before their requests are read.

These are streams, calls of unknown methods, and all calls of the ordinary path. ``UnaryRpc`` checks unary calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from trtnode.serving.errors import ForbiddenError, ServingError
from trtnode.serving.grpc import health
from trtnode.serving.grpc.codec import UNREADABLE
from trtnode.serving.grpc.streams import Refused
from trtnode.serving.security.authorization import Authorizer
from trtnode.serving.service.rpc_table import SERVICE_NAME, STREAM_RPC
from trtnode.serving.service.status import status_of

OPEN_SERVICES = frozenset({health.SERVICE_NAME})
"""Services that need no token: an orchestrator's probes have none."""


class AuthInterceptor(grpc.ServerInterceptor):  # type: ignore[misc]  # grpcio has no types
    """Checks each call where tokens are needed."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """Return the call's handler, for a stream with a check of each request, or a refusal."""
        service, _, rpc = handler_call_details.method[1:].rpartition("/")
        if service in OPEN_SERVICES:
            return continuation(handler_call_details)
        metadata = handler_call_details.invocation_metadata
        authorization = next((str(value) for key, value in metadata if key == "authorization"), "")
        try:
            grant = self._authorizer.authenticate(authorization)
            if service == SERVICE_NAME:
                self._authorizer.check_right(grant, rpc)
        except ServingError as error:
            # A handler of streams starts before the first message is there, so a body is never waited for.
            return grpc.stream_unary_rpc_method_handler(functools.partial(self._refuse_stream, rpc, error))
        handler = continuation(handler_call_details)
        return self._watched(handler, authorization) if rpc == STREAM_RPC and handler is not None else handler

    def _watched(self, handler: grpc.RpcMethodHandler, authorization: str) -> grpc.RpcMethodHandler:
        """Return the handler of a stream that checks token and model at each request.

        A request for a model that the token doesn't cover is answered with an error; a token that was withdrawn ends
        the stream.
        """

        def checked(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            for request in requests:
                try:
                    grant = self._authorizer.authenticate(authorization)
                    if request is not UNREADABLE:
                        self._authorizer.check_model(grant, request.model_name)
                except ForbiddenError as error:
                    self._authorizer.count_refusal(error, STREAM_RPC, context.peer())
                    yield Refused(request, error)
                except ServingError as error:
                    self._refuse(STREAM_RPC, error, context)
                else:
                    yield request

        def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            return handler.stream_stream(checked(requests, context), context)

        # The update keeps the mark that tells gRPC which threads to use.
        return grpc.stream_stream_rpc_method_handler(
            functools.update_wrapper(answer, handler.stream_stream),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _refuse(self, rpc: str, error: ServingError, context: grpc.ServicerContext) -> None:
        self._authorizer.count_refusal(error, rpc, context.peer())
        context.abort(*status_of(error, rpc))  # raises; gRPC sends the status

    def _refuse_stream(
        self, rpc: str, error: ServingError, _requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> None:
        self._refuse(rpc, error, context)
