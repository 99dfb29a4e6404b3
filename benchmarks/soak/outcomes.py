"""What came of each request, and which statuses it may have."""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Sequence

import grpc
from google.protobuf.message import DecodeError

from protos import ModelInferRequest

MOST_EXAMPLES = 20
"""Faults that are kept with their text; all are counted."""

REFUSALS = {
    grpc.StatusCode.UNAVAILABLE: ("the server is stopping", "failed to connect", "Connection refused"),
    grpc.StatusCode.CANCELLED: ("CANCELLED",),
}
"""How a request ends that a stopping server didn't accept. gRPC cancels those that arrive while it closes the port."""

_CODES = grpc.StatusCode
_MAY_BE_ASKED = frozenset(
    {_CODES.OK, _CODES.INVALID_ARGUMENT, _CODES.NOT_FOUND, _CODES.UNIMPLEMENTED, _CODES.UNAVAILABLE}
)
"""For a request that can be parsed: answered, at fault, about what isn't there, or too late in a queue."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """How one request ended.

    Attributes:
        status: Its gRPC or HTTP status.
        fault: What should not have happened; empty if all went as it should.
        refused: Whether a stopping server said that it doesn't accept it.
    """

    status: str
    fault: str = ""
    refused: bool = False


class Tally:
    """Counts outcomes. Thread-safe."""

    def __init__(self, *, may_refuse: bool = False) -> None:
        """Begin at zero.

        Args:
            may_refuse: Whether it is no fault that the server stops and says so.
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

    @property
    def requests(self) -> int:
        """How many were counted."""
        return sum(self.counts.values())


def outcome_of(code: grpc.StatusCode, details: str, *expected: grpc.StatusCode) -> Outcome:
    """Return the outcome of a call that may end with one of some statuses."""
    refused = any(text in details for text in REFUSALS.get(code, ()))
    return Outcome(code.name, "" if code in expected else details or "unexpected status", refused)


def outcome_of_mutated(data: bytes, code: grpc.StatusCode, details: str) -> Outcome:
    """Return the outcome of a ModelInfer call with any bytes.

    Bytes that are no message are INTERNAL, as gRPC has it. So is an output that is larger than its place in shared
    memory, as clients know it from Triton. Everything else is the request's fault, and DEADLINE_EXCEEDED a hang.
    """
    if not is_message(data):
        return outcome_of(code, details, _CODES.INTERNAL)
    if code is _CODES.INTERNAL and "are there for it in the shared memory region" in details:
        return Outcome(code.name)
    return outcome_of(code, details, *_MAY_BE_ASKED)


def outcome_of_mutated_stream(bodies: Sequence[bytes], answered: int, code: grpc.StatusCode) -> Outcome:
    """Return the outcome of a stream of any bytes: all are answered, unless some are no message, which end it."""
    if not all(map(is_message, bodies)):
        return outcome_of(code, "", _CODES.INTERNAL)
    complete = code is _CODES.OK and answered == len(bodies)
    return Outcome(code.name, "" if complete else f"{answered} of {len(bodies)} requests were answered")


def is_message(data: bytes) -> bool:
    """Whether bytes can be parsed as a request."""
    try:
        ModelInferRequest.FromString(data)
    except DecodeError:
        return False
    return True
