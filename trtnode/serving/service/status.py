"""The status of each error, over gRPC and over HTTP, and its reason in the metrics."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import grpc

from trtnode.engines.errors import ExecutionError, MemoryLimitError, OutOfMemoryError, SystemLimitError
from trtnode.serving.errors import (
    AlreadyExistsError,
    CancelledRequestError,
    ForbiddenError,
    InvalidOutputError,
    InvalidRequestError,
    ModelChangeError,
    NotFoundError,
    PartlyDoneError,
    SequencesFullError,
    SharedMemoryError,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
    UnreadableMessageError,
    UnsupportedError,
)
from trtnode.serving.telemetry.request_stats import FailureReason

logger = logging.getLogger(__name__)

CODES: tuple[tuple[type[Exception], grpc.StatusCode], ...] = (
    (InvalidRequestError, grpc.StatusCode.INVALID_ARGUMENT),
    (UnauthenticatedError, grpc.StatusCode.UNAUTHENTICATED),
    (ForbiddenError, grpc.StatusCode.PERMISSION_DENIED),
    (NotFoundError, grpc.StatusCode.NOT_FOUND),
    (AlreadyExistsError, grpc.StatusCode.ALREADY_EXISTS),
    (TooLargeError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (SequencesFullError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (UnavailableError, grpc.StatusCode.UNAVAILABLE),
    (UnsupportedError, grpc.StatusCode.UNIMPLEMENTED),
    (CancelledRequestError, grpc.StatusCode.CANCELLED),
    (MemoryLimitError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (OutOfMemoryError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (SystemLimitError, grpc.StatusCode.UNAVAILABLE),
    (ExecutionError, grpc.StatusCode.INTERNAL),
    (InvalidOutputError, grpc.StatusCode.INTERNAL),
    (ModelChangeError, grpc.StatusCode.INTERNAL),  # as clients know it from Triton, also for an unknown model
    (SharedMemoryError, grpc.StatusCode.INTERNAL),
    (PartlyDoneError, grpc.StatusCode.INTERNAL),
    (UnreadableMessageError, grpc.StatusCode.INVALID_ARGUMENT),
)
"""The status of each error; the first entry whose class fits counts."""

HTTP_STATUSES: Mapping[grpc.StatusCode, int] = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 413,
    grpc.StatusCode.CANCELLED: 499,  # nginx' number; the client that it is meant for has left
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
}
"""The same over HTTP, for every code of ``CODES``."""

_REASONS: tuple[tuple[type[Exception], FailureReason], ...] = (
    (InvalidRequestError, FailureReason.OTHER),
    (UnsupportedError, FailureReason.OTHER),
    (NotFoundError, FailureReason.OTHER),
    (SharedMemoryError, FailureReason.OTHER),
    (TooLargeError, FailureReason.OTHER),
    (UnavailableError, FailureReason.REJECTED),
    (SequencesFullError, FailureReason.REJECTED),
    (CancelledRequestError, FailureReason.CANCELED),
)
"""The reason of each error in the metrics; that of others is the model."""

MAX_DETAILS = 1500
"""Characters of a message. It travels in a header, and clients refuse headers beyond a few kilobytes."""


def status_of(error: BaseException, method: str) -> tuple[grpc.StatusCode, str]:
    """Return the status code and message for a client; log what is the server's own fault.

    Args:
        error: What a handler raised.
        method: Name of the RPC, for the log.
    """
    for kind, code in CODES:
        if isinstance(error, kind):
            if code is grpc.StatusCode.INTERNAL:
                logger.error("%s failed: %s", method, error)
            return code, _shortened(str(error))
    logger.error("%s failed unexpectedly", method, exc_info=error)
    return grpc.StatusCode.INTERNAL, f"the server failed unexpectedly in {method}; its log says why"


def failure_reason(error: BaseException) -> FailureReason:
    """Return the reason that the metrics give for an inference request that ended with an error."""
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), FailureReason.BACKEND)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_DETAILS else f"{text[:MAX_DETAILS]}..."
