"""Refuses the calls without a right to them that grpcio's Python layer handles, before their requests are read.

These are calls of reflection and of unknown methods. ``UnaryRpc`` checks others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import grpc

from trtnode.serving.errors import ServingError
from trtnode.serving.grpc import health
from trtnode.serving.security.authorization import Authorizer
from trtnode.serving.service.rpc_table import SERVICE_NAME
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
        """Return the call's handler, or a refusal."""
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
            return grpc.stream_unary_rpc_method_handler(functools.partial(self._refuse, rpc, error))
        return continuation(handler_call_details)

    def _refuse(self, rpc: str, error: ServingError, _requests: Iterator[bytes], context: grpc.ServicerContext) -> None:
        self._authorizer.count_refusal(error, rpc, context.peer())
        context.abort(*status_of(error, rpc))  # raises; gRPC sends the status
