"""The wrappers around the answers to RPCs, for every transport."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import grpc

from serving.service.exchange import Exchange
from serving.service.inference_service import InferenceService
from serving.service.request_context import RequestContext
from serving.service.status import status_of
from serving.telemetry import logs

Handler = Callable[[Any, Any], Any]
"""Request and context to response. The context is gRPC's own or a ``RequestContext``."""

Fail = Callable[[grpc.StatusCode, str, Any, Any], Any]
"""Status code, details, request and context of a failed request to its response."""


def rpc_handler(rpc: str, answer: Handler, fail: Fail) -> Handler:
    """Return the handler of an RPC: lines that it logs name the request, and errors become statuses.

    Args:
        rpc: Name of the RPC.
        answer: Answers a request, or raises.
        fail: Tells the client of a failure, as its transport has it.
    """

    def handle(request: Any, context: Any) -> Any:
        before = logs.CURRENT_REQUEST.set(request)
        started = time.perf_counter() if logs.logger.isEnabledFor(logging.DEBUG) else None
        try:
            try:
                return answer(request, context)
            except Exception as error:
                code, details = status_of(error, rpc)
            return fail(code, details, request, context)
        finally:
            if started is not None:
                logs.log_answer(rpc, context, started)
            logs.CURRENT_REQUEST.reset(before)

    return handle


def answer_inference(
    service: InferenceService,
    rpc: str,
    exchange: Exchange,
    context: RequestContext,
    reply: Callable[[], None],
    fail: Callable[[grpc.StatusCode, str], None],
) -> None:
    """Have an inference request answered: lines that it logs name the request, and errors become statuses.

    Args:
        service: Answers.
        rpc: Name of the RPC.
        exchange: The request.
        context: Its client.
        reply: Sends the response, once it is written; from whatever thread.
        fail: Sends code and details of an error instead; the context has the code already.
    """
    started = time.perf_counter() if logs.logger.isEnabledFor(logging.DEBUG) else None

    def done(error: BaseException | None) -> None:
        before = logs.CURRENT_REQUEST.set(exchange)
        try:
            failure = status_of(error, rpc) if error is not None else None
            if failure is not None:
                context.set_code(failure[0])
            if started is not None:
                logs.log_answer(rpc, context, started)
            try:
                fail(*failure) if failure is not None else reply()
            except Exception as unexpected:
                fail(*status_of(unexpected, rpc))
        finally:
            logs.CURRENT_REQUEST.reset(before)

    before = logs.CURRENT_REQUEST.set(exchange)
    try:
        service.infer(exchange, context, done)
    finally:
        logs.CURRENT_REQUEST.reset(before)
