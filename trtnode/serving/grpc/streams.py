"""Streams: many requests on one call, each answered when it is finished.

A stream holds no thread, and its requests run where all others do. A client that doesn't read its responses stops its
own requests and nothing else.
"""

from __future__ import annotations

import collections
import functools
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import grpc

from trtnode.protos import InferParameter, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse
from trtnode.serving.errors import UnavailableError
from trtnode.serving.grpc.backlog import ResponseBacklog
from trtnode.serving.grpc.calls import NO_FLAGS, NOTHING, UNEXPECTED, Finished, Received, operations, status
from trtnode.serving.grpc.rpc import Rpc
from trtnode.serving.protocol.wire_format import field_head
from trtnode.serving.service.call import Call, Writer
from trtnode.serving.service.rpc_table import INFER_RPC, STREAM_RPC
from trtnode.serving.service.status import status_of
from trtnode.serving.threads.request_pool import RequestPool

logger = logging.getLogger(__name__)

FINAL: bytes = ModelInferResponse(
    parameters={"triton_final_response": InferParameter(bool_param=True)}
).SerializeToString()
"""The bytes that mark the one response of a streamed request as its last."""
RESPONSE_FIELD = ModelStreamInferResponse.INFER_RESPONSE_FIELD_NUMBER

MAX_PENDING = 128
"""Requests of one stream that are read and whose answers are not written yet; further ones wait in the client."""
FIRST_PENDING = 4
"""The same before the first answer tells how large they are."""


class EndError(Exception):
    """Ends a stream with a status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(code, details)
        self.code = code
        self.details = details


class Streams:
    """The open streams of one RPC."""

    def __init__(self, rpc: Rpc, backlog: ResponseBacklog, unpacking: RequestPool, most: int = sys.maxsize) -> None:
        """Open none yet.

        Args:
            rpc: Checks their requests and has them answered. Responses to inference requests are those of a stream.
            backlog: Counts responses until they are read.
            unpacking: Has the thread that reads compressed requests.
            most: How many may be open.
        """
        self.receive = functools.partial(Stream, self, rpc, backlog, unpacking)
        """Makes a stream of the event of a call."""
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


class Stream(Received, Writer):
    """A stream from its arrival until gRPC lets go of it. It writes the answers of its requests.

    Its first message and the client's leaving are asked for at once. After each message the next one is asked for,
    unless too many wait for their answers. gRPC takes one answer at a time.
    """

    def __init__(
        self, streams: Streams, rpc: Rpc, backlog: ResponseBacklog, unpacking: RequestPool, event: Any
    ) -> None:
        super().__init__(rpc, backlog, unpacking, event)
        self._streams = streams
        self._infers = rpc.name == INFER_RPC
        self._metadata = event.invocation_metadata or ()
        # The first error is to end the stream, as clients of Triton can ask for.
        self._strict = not self._infers or ("triton_grpc_error", "true") in self._metadata
        self._changed = threading.RLock()
        self._outbox: collections.deque[bytes | EndError] = collections.deque()
        self._unanswered: set[Call] = set()
        self._largest = self._expected = 0  # bytes of its answers
        self._due = 0
        self._reads = self._writes = self._half_closed = self._ended = self._gone = False

    def begin(self) -> None:
        """Wait for the first message, if the caller may open a stream and there may be one more."""
        self._await(self._closed, operations.ReceiveCloseOnServerOperation(NO_FLAGS))
        self._await(None, operations.SendInitialMetadataOperation(None, NO_FLAGS))
        if not self._rpc.admit(self._new_call()):
            self._metadata = ()
            return
        try:
            self._streams.enter(self)
        except EndError as end:
            self.put(end)
        else:
            self._read_next()

    def reply(self, call: Call, response: bytes) -> None:
        """Write a response, the last one to its request."""
        self.put(streamed(response) if self._infers else response, call)
        self._read_next()  # now that it is known how large answers are

    def fail(self, call: Call, code: grpc.StatusCode, details: str) -> None:
        """Write an error, or end with it: for its caller, for what is no request, and where the client wants it."""
        if call.request is None or self._strict:
            self.put(EndError(code, details), call)
        else:
            self.put(streamed_error(call.request, details), call)

    def send(self, response: bytes) -> None:
        """Write one of several responses to a request."""
        self._do(self.put, response)

    def put(self, item: bytes | EndError, call: Call | None = None) -> None:
        """Write an answer, or end with an error, after what was put before.

        Args:
            item: The answer.
            call: The request that it ends.
        """
        with self._changed:
            if call is not None:
                self._unanswered.discard(call)
            if self._ended:
                return
            self._outbox.append(item)
            if isinstance(item, bytes):
                self._largest = max(self._largest, len(item))
                self._backlog.add(self, len(item))
            self._expect()
            if self._writes:
                return
            self._writes = True
        self._write_next()

    def _new_call(self) -> Call:
        return Call(self, self._call.peer, self._metadata, STREAM_RPC)

    def _is_done(self) -> bool:
        return self._half_closed and not self._pending()

    def _pending(self) -> int:
        """Return how many requests are read and their answers not written; call it with the lock."""
        return len(self._unanswered) + len(self._outbox) + self._writes

    def _takes_more(self) -> bool:
        """Return whether there is room for the answer of one request more; call it with the lock."""
        pending = self._pending()
        if not pending:
            return True
        most = MAX_PENDING if self._largest else FIRST_PENDING
        return pending < most and self._backlog.has_room(self._largest)

    def _expect(self) -> None:
        """Keep room for the answers that will come; call it with the lock."""
        expected = self._largest * len(self._unanswered)
        self._backlog.expect(expected - self._expected)
        self._expected = expected

    def _write_next(self) -> None:
        """Write what is next in the outbox; the one thread that has set ``_writes`` does."""
        with self._changed:
            item = self._outbox.popleft() if self._outbox and not self._ended else None
            self._writes = isinstance(item, bytes)
            is_done = item is None and self._is_done()
        if isinstance(item, bytes):
            self._await(functools.partial(self._written, len(item)), operations.SendMessageOperation(item, NO_FLAGS))
        elif item is not None:
            self._end(item.code, item.details)
        elif is_done:
            self._end(grpc.StatusCode.OK, "")

    def _read_next(self) -> None:
        """Ask for the next message, unless one is asked for or enough wait for their answers."""
        with self._changed:
            if self._reads or self._ended or self._half_closed or not self._takes_more():
                return
            self._reads = True
        self._await(self._received, operations.ReceiveMessageOperation(NO_FLAGS))

    def _end(self, code: grpc.StatusCode, details: str) -> None:
        with self._changed:
            if self._ended:
                return
            self._ended = True
        self._await(None, status(code, details))

    def _await(self, then: Callable[[Any], None] | None, *batch: Any) -> None:
        """Begin operations, unless gRPC has let go of the stream; ``then`` gets their event, if it is given."""
        with self._changed:
            if self._gone:
                return
            self._due += 1
        try:
            self._call.start_server_batch(batch, functools.partial(self._take_event, then))
        except BaseException:
            with self._changed:
                self._due -= 1
            raise

    def _take_event(self, then: Callable[[Any], None] | None, event: Any) -> Finished:
        if then is not None:
            self._do(then, event)
        with self._changed:
            self._due -= 1
            self._gone = not self._due
            return (self, ()) if self._gone else NOTHING

    def _do(self, step: Callable[[Any], None], what: Any) -> None:
        try:
            step(what)
        except BaseException:  # it would end the serving thread
            logger.exception("A stream failed")
            try:
                self.put(EndError(*UNEXPECTED))
            except BaseException:
                logger.exception("A stream could not be ended")

    def _received(self, event: Any) -> None:
        message = event.batch_operations[0].message()
        if message is not None:
            self._receive(message)
            return
        with self._changed:
            self._half_closed = True
            is_done = self._is_done()
        if is_done:
            self._end(grpc.StatusCode.OK, "")

    def _take(self, message: bytes) -> None:
        self._do(self._answer, message)

    def _answer(self, message: bytes) -> None:
        """Have a request answered, if its caller may still send one; then read on."""
        call = self._new_call()
        with self._changed:
            if self._ended:
                return
            self._unanswered.add(call)
            self._expect()
        if self._rpc.admit(call):
            self._rpc.take(call, message)
        self._reads = False  # not before: an end that is read meanwhile would end the stream without this answer
        self._read_next()

    def _written(self, size: int, _event: Any) -> None:
        self._backlog.settle(self, size)
        self._write_next()
        self._read_next()

    def _closed(self, _event: Any) -> None:
        with self._changed:
            self._ended = True
            self._outbox.clear()
            # Kept, they would keep the stream: gRPC counts it as open until the garbage collector comes by.
            unanswered, self._unanswered = self._unanswered, set()
            self._expect()
        for call in unanswered:
            call.leave()
        self._backlog.forget(self)
        self._streams.discard(self)


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
