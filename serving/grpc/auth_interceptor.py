"""Refuses gRPC calls without the right to them, before their requests are read or wait for a thread."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from serving.errors import ForbiddenError, ServingError
from serving.grpc import health
from serving.grpc.codec import UNREADABLE
from serving.grpc.streams import Refused
from serving.security.authorization import MODEL_FIELDS, Authorizer
from serving.security.tokens import Grant
from serving.service.rpc_table import SERVICE_NAME
from serving.service.status import status_of

OPEN_SERVICES = frozenset({health.SERVICE_NAME})
"""Services that need no token: an orchestrator's probes have none."""


class AuthInterceptor(grpc.ServerInterceptor):  # type: ignore[misc]  # grpcio has no types
    """Checks each call where tokens are needed. Where they aren't, RPCs are open or closed once and for all."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def closed(self, rpc: str) -> grpc.RpcMethodHandler | None:
        """Return the handler of an RPC that is off, where no call needs a token; None of all others."""
        if self._authorizer.has_tokens:
            return None
        try:
            self._authorizer.check_right(self._authorizer.authenticate(""), rpc)
        except ServingError as error:
            return self._refusal(rpc, error)
        return None

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """Return the call's handler, with a check of the model where the caller may not use all, or a refusal."""
        service, _, rpc = handler_call_details.method[1:].rpartition("/")
        if service in OPEN_SERVICES:
            return continuation(handler_call_details)
        authorization = _authorization(handler_call_details)
        try:
            grant = self._authorizer.authenticate(authorization)
            if service == SERVICE_NAME:
                self._authorizer.check_right(grant, rpc)
        except ServingError as error:
            return self._refusal(rpc, error)
        handler = continuation(handler_call_details)
        if handler is None or service != SERVICE_NAME or rpc not in MODEL_FIELDS:
            return handler
        if handler.request_streaming:
            return self._watched(handler, rpc, authorization)
        return handler if "*" in grant.models else self._guarded(handler, rpc, grant)

    def _guarded(self, handler: grpc.RpcMethodHandler, rpc: str, grant: Grant) -> grpc.RpcMethodHandler:
        """Return the handler of a unary RPC with a check of the model that the request names."""

        def answer(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                if request is not UNREADABLE:
                    self._authorizer.check_model(grant, getattr(request, MODEL_FIELDS[rpc]))
            except ServingError as error:
                self._refuse(rpc, error, context)
            return handler.unary_unary(request, context)

        # The update keeps the marks that tell gRPC which threads to use.
        return grpc.unary_unary_rpc_method_handler(
            functools.update_wrapper(answer, handler.unary_unary),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _watched(self, handler: grpc.RpcMethodHandler, rpc: str, authorization: str) -> grpc.RpcMethodHandler:
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
                    self._authorizer.count_refusal(error, rpc, context.peer())
                    yield Refused(request, error)
                except ServingError as error:
                    self._refuse(rpc, error, context)
                else:
                    yield request

        def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            return handler.stream_stream(checked(requests, context), context)

        return grpc.stream_stream_rpc_method_handler(
            functools.update_wrapper(answer, handler.stream_stream),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _refusal(self, rpc: str, error: ServingError) -> grpc.RpcMethodHandler:
        # A handler of streams starts before the first message is there, so a body is never waited for.
        return grpc.stream_unary_rpc_method_handler(functools.partial(self._refuse_stream, rpc, error))

    def _refuse(self, rpc: str, error: ServingError, context: grpc.ServicerContext) -> None:
        self._authorizer.count_refusal(error, rpc, context.peer())
        context.abort(*status_of(error, rpc))  # raises; gRPC sends the status

    def _refuse_stream(
        self, rpc: str, error: ServingError, _requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> None:
        self._refuse(rpc, error, context)


def _authorization(details: grpc.HandlerCallDetails) -> str:
    return next((str(value) for key, value in details.invocation_metadata if key == "authorization"), "")
