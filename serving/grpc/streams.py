"""Inference streams: many requests on one call, each answered when it is finished.

A stream holds no thread (``direct_streams``), and its requests run where all others do. A client that doesn't read its
answers stops its own requests and nothing else.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Sequence

import grpc

from trtnode.protos import InferParameter, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse
from trtnode.serving.errors import UnavailableError
from trtnode.serving.grpc.owed import Owed
from trtnode.serving.grpc.unary_rpc import UnaryRpc
from trtnode.serving.protocol.wire_format import field_head
from trtnode.serving.service.call import Call
from trtnode.serving.service.rpc_table import STREAM_RPC
from trtnode.serving.service.status import status_of

FINAL: bytes = ModelInferResponse(
    parameters={"triton_final_response": InferParameter(bool_param=True)}
).SerializeToString()
"""The bytes that mark the one response of a streamed request as its last."""
RESPONSE_FIELD = ModelStreamInferResponse.INFER_RESPONSE_FIELD_NUMBER

MAX_PENDING = 128
"""Requests of one stream that are read and whose answers are not written yet; further ones wait in the client."""
FIRST_PENDING = 8
"""The same before the first answer tells how large they are."""


class EndError(Exception):
    """Ends a stream with a status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(code, details)
        self.code = code
        self.details = details


class Streams:
    """The open streams of a server."""

    def __init__(self, rpc: UnaryRpc, most: int, owed: Owed) -> None:
        self.rpc = rpc
        """Checks their requests and has them answered."""
        self.owed = owed
        """What clients have to take."""
        self._most = most
        self._lock = threading.Lock()
        self._open: set[Stream] = set()
        self._stopping = False

    def end(self) -> None:
        """Let each stream write the answers that it has, and end; refuse new ones."""
        with self._lock:
            self._stopping = True
            streams = list(self._open)
        for stream in streams:
            stream.put(_stopping())

    def enter(self, stream: Stream) -> None:
        """Count a stream that opens, until ``discard``.

        Raises:
            EndError: The server stops, or as many streams are open as may.
        """
        with self._lock:
            if self._stopping:
                raise _stopping()
            if len(self._open) >= self._most:
                raise _end(f"{self._most} streams are open, the most (server.limits.streams); close one, or try later")
            self._open.add(stream)

    def discard(self, stream: Stream) -> None:
        """Count a stream no longer."""
        with self._lock:
            self._open.discard(stream)


class StreamedCall(Call):
    """One request of a stream."""

    __slots__ = ("_stream",)
    rpc = STREAM_RPC

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream.peer, stream.metadata)
        self._stream = stream

    def reply(self, response: bytes) -> None:
        """Let the stream write the response, which is the last one to the request."""
        self._stream.answer(streamed(response), self)

    def fail(self, code: grpc.StatusCode, details: str) -> None:
        """Let the stream write an error, or end with it: for its caller, or for what is no request."""
        if self.request is None:
            self._stream.put(EndError(code, details))
            return
        self.set_code(code)
        self._stream.answer(streamed_error(self.request, details), self, details)


class Stream(abc.ABC):
    """One open stream: its requests and answers, apart from the calls of gRPC that carry them.

    Attributes:
        left: Whether the client has left.
        peer: The client's address.
        metadata: Names in lower case and values of what came with the stream.
    """

    def __init__(self, streams: Streams, peer: str, metadata: Sequence[tuple[str, str | bytes]]) -> None:
        self.left = False
        self._rpc = streams.rpc
        self._owed = streams.owed
        self.peer = peer
        self.metadata = metadata
        # The first error is to end the stream, as clients of Triton can ask for.
        self._strict = ("triton_grpc_error", "true") in metadata
        self._changed = threading.RLock()
        self._pending = 0
        self._largest = 0  # of its answers
        self._unanswered: set[StreamedCall] = set()

    def answer(self, response: bytes, call: StreamedCall, details: str = "") -> None:
        """Let the answer of a request be written; nobody wants it if the client has left.

        Args:
            response: A ``ModelStreamInferResponse``.
            call: The request; it has a code if the answer is an error.
            details: Of the error.
        """
        code = call.code()
        with self._changed:
            self._unanswered.discard(call)
            self._largest = max(self._largest, len(response))
        self.put(EndError(code, details) if code and self._strict else response)

    def leave(self) -> None:
        """Drop what is unanswered, since nobody waits for it any more."""
        with self._changed:
            self.left = True
            # Kept, they would keep the stream: gRPC counts it as open until the garbage collector comes by.
            unanswered, self._unanswered = self._unanswered, set()
        for call in unanswered:
            call.leave()
        self._owed.forget(self)

    @abc.abstractmethod
    def drop(self) -> None:
        """End it without a word, since its client reads nothing."""

    def _takes_more(self) -> bool:
        """Return whether there is room for the answer of one request more; call it with the lock."""
        if not self._pending:
            return True
        most = MAX_PENDING if self._largest else FIRST_PENDING
        return self._pending < most and self._owed.has_room(self._largest * (len(self._unanswered) + 1))

    @abc.abstractmethod
    def put(self, item: bytes | EndError) -> None:
        """Let an answer be written, or the stream end with an error, after what was put before."""

    def take(self, message: bytes) -> None:
        """Have a request answered, if its caller may still send one."""
        call = StreamedCall(self)
        with self._changed:
            self._pending += 1
            self._unanswered.add(call)
        if self.left:
            call.leave()
        if self._rpc.admit(call):
            self._rpc.take(call, message)


def streamed(response: bytes) -> bytes:
    """Return the bytes of a ``ModelInferResponse`` as an answer of a stream, the last one to its request."""
    return b"".join((field_head(RESPONSE_FIELD, len(response) + len(FINAL)), response, FINAL))


def streamed_error(request: ModelInferRequest, details: str) -> bytes:
    """Return an error as an answer of a stream, the last one to its request."""
    answer = ModelStreamInferResponse(error_message=details)
    answer.infer_response.MergeFromString(FINAL)
    answer.infer_response.model_name, answer.infer_response.id = request.model_name, request.id
    return bytes(answer.SerializeToString())


def _stopping() -> EndError:
    return _end("the server is stopping; send requests to another one")


def _end(reason: str) -> EndError:
    return EndError(*status_of(UnavailableError(reason), STREAM_RPC))
