"""Outcomes of requests, and the statuses that they may have."""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Sequence

import grpc
from google.protobuf.message import DecodeError

from trtnode.protos import ModelInferRequest

MOST_EXAMPLES = 20
"""Number of faults that are kept with their text; all are counted."""

REFUSALS = {
    grpc.StatusCode.UNAVAILABLE: ("the server is stopping", "failed to connect", "Connection refused"),
    grpc.StatusCode.CANCELLED: ("CANCELLED",),
}
"""Messages of a stopping server, by status. gRPC cancels requests that arrive while it closes the port."""

_CODES = grpc.StatusCode
_ALLOWED = frozenset({_CODES.OK, _CODES.INVALID_ARGUMENT, _CODES.NOT_FOUND, _CODES.UNIMPLEMENTED, _CODES.UNAVAILABLE})
"""Statuses of a mutated request that can be parsed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one request.

    Attributes:
        status: Its gRPC or HTTP status.
        fault: Description of an unexpected result; empty if there is none.
        refused: True if a stopping server refused it.
    """

    status: str
    fault: str = ""
    refused: bool = False


class Tally:
    """Counts outcomes. Thread-safe."""

    def __init__(self, *, may_refuse: bool = False) -> None:
        """Begin at zero.

        Args:
            may_refuse: True if a refusal by a stopping server is no fault.
        """
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        """Requests by the kind of client and by status."""
        self.faults = 0
        self.examples: list[str] = []
        self._may_refuse = may_refuse
        self._lock = threading.Lock()

    def add(self, kind: str, outcome: Outcome) -> None:
        """Count one request of a kind of client."""
        with self._lock:
            self.counts[kind, outcome.status] += 1
            if outcome.fault and not (outcome.refused and self._may_refuse):
                self.faults += 1
                if len(self.examples) < MOST_EXAMPLES:
                    self.examples.append(f"{kind}: {outcome.status}: {outcome.fault}")


def outcome_of(code: grpc.StatusCode, details: str, *expected: grpc.StatusCode) -> Outcome:
    """Return the outcome of a call; a status that is not expected is a fault."""
    refused = any(text in details for text in REFUSALS.get(code, ()))
    return Outcome(code.name, "" if code in expected else details or "unexpected status", refused)


def outcome_of_mutated(data: bytes, code: grpc.StatusCode, details: str) -> Outcome:
    """Return the outcome of a ModelInfer call with any bytes.

    The server, as Triton, answers with INTERNAL if an output is larger than its shared memory. DEADLINE_EXCEEDED is a
    fault: the server hangs.
    """
    if not is_message(data):
        return outcome_of(code, details, _CODES.INVALID_ARGUMENT)
    if code is _CODES.INTERNAL and "are there for it in the shared memory region" in details:
        return Outcome(code.name)
    if code is _CODES.RESOURCE_EXHAUSTED and "elements" in details:
        return Outcome(code.name)
    return outcome_of(code, details, *_ALLOWED)


def outcome_of_mutated_stream(bodies: Sequence[bytes], answered: int, code: grpc.StatusCode) -> Outcome:
    """Return the outcome of a stream of any bytes. All must be answered, unless one is no message and ends it."""
    if not all(map(is_message, bodies)):
        return outcome_of(code, "", _CODES.INVALID_ARGUMENT)
    complete = code is _CODES.OK and answered == len(bodies)
    return Outcome(code.name, "" if complete else f"{answered} of {len(bodies)} requests were answered")


def is_message(data: bytes) -> bool:
    """Return whether bytes can be parsed as a request."""
    try:
        ModelInferRequest.FromString(data)
    except DecodeError:
        return False
    return True
