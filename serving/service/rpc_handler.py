"""The wrappers around the answers to RPCs, for every transport."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import grpc

from trtnode.serving.service.status import status_of
from trtnode.serving.telemetry import logs

Handler = Callable[[Any, Any], Any]
"""Request and context to response. The context is gRPC's own or a ``Call``."""

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
