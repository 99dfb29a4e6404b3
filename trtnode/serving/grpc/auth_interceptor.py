"""Refuses calls of unknown methods without a token. ``Rpc`` checks those of methods that there are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import grpc

from trtnode.serving.errors import ServingError
from trtnode.serving.security.authorization import Authorizer
from trtnode.serving.service.status import status_of


class AuthInterceptor(grpc.ServerInterceptor):  # type: ignore[misc]  # grpcio has no types
    """Checks each call that grpcio's Python layer gets, where tokens are needed."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """Return the call's handler, or a refusal."""
        metadata = handler_call_details.invocation_metadata
        authorization = next((str(value) for key, value in metadata if key == "authorization"), "")
        try:
            self._authorizer.authenticate(authorization)
        except ServingError as error:
            rpc = handler_call_details.method.rpartition("/")[2]
            # A handler of streams starts before the first message is there, so a body is never waited for.
            return grpc.stream_unary_rpc_method_handler(functools.partial(self._refuse, rpc, error))
        return continuation(handler_call_details)

    def _refuse(self, rpc: str, error: ServingError, _requests: Iterator[bytes], context: grpc.ServicerContext) -> None:
        self._authorizer.count_refusal(error, rpc, context.peer())
        context.abort(*status_of(error, rpc))  # raises; gRPC sends the status
