"""Checks of the callers of streams, where tokens are needed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from serving.errors import ForbiddenError, ServingError
from serving.grpc.codec import UNREADABLE
from serving.grpc.streams import Refused
from serving.security.authorization import Authorizer
from serving.service.status import status_of

StreamHandler = Callable[[Iterator[Any], grpc.ServicerContext], Any]


class StreamChecks:
    """Wraps the handlers of streams; they start before the first message is there, so no body is waited for."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def authenticated(self, rpc: str, handler: StreamHandler) -> StreamHandler:
        """Return a handler that refuses callers without a token."""

        def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            try:
                self._authorizer.authenticate(_authorization(context))
            except ServingError as error:
                self._refuse(rpc, error, context)
            return handler(requests, context)

        return functools.update_wrapper(answer, handler)

    def watched(self, rpc: str, handler: StreamHandler) -> StreamHandler:
        """Return a handler that also checks token and model at each request.

        A request for a model that the token doesn't cover is answered with an error; a token that was withdrawn ends
        the stream.
        """

        def checked(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            for request in requests:
                try:
                    grant = self._authorizer.authenticate(_authorization(context))
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
            return handler(checked(requests, context), context)

        return self.authenticated(rpc, functools.update_wrapper(answer, handler))

    def _refuse(self, rpc: str, error: ServingError, context: grpc.ServicerContext) -> None:
        self._authorizer.count_refusal(error, rpc, context.peer())
        context.abort(*status_of(error, rpc))  # raises; gRPC sends the status


def _authorization(context: grpc.ServicerContext) -> str:
    return next((str(value) for key, value in context.invocation_metadata() if key == "authorization"), "")
