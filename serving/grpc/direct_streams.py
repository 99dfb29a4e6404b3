"""Inference streams past grpcio's Python layer: no thread waits for a message or for an answer. See ``direct``."""

from __future__ import annotations

import collections
import functools
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from trtnode.serving.grpc.direct import MOST_METADATA, NO_FLAGS, NOTHING, Finished, operations
from trtnode.serving.grpc.streams import EndError, Stream, StreamedCall, Streams
from trtnode.serving.protocol.packing import is_packed

logger = logging.getLogger(__name__)


class DirectStream(Stream):
    """A stream from its arrival until gRPC lets go of it.

    Its first message and the client's leaving are asked for at once. After each message the next one is asked for,
    unless too many wait for their answers. gRPC takes one answer at a time.
    """

    def __init__(self, streams: Streams, unpacking: ThreadPoolExecutor, event: Any) -> None:
        """Describe a stream that has come.

        Args:
            streams: Those that are open.
            unpacking: The thread that reads compressed requests.
            event: The call.
        """
        metadata = event.invocation_metadata or ()
        self._crowded = len(metadata) > MOST_METADATA
        peer = str(event.call.peer().decode(errors="replace"))
        super().__init__(streams, peer, () if self._crowded else metadata)
        self._call = event.call
        self._streams = streams
        self._unpacking = unpacking
        self._outbox: collections.deque[bytes | EndError] = collections.deque()
        self._due = 0
        self._reads = self._writes = self._half_closed = self._ended = self._gone = False

    def begin(self) -> None:
        """Wait for the first message, if the caller may open a stream and there may be one more."""
        self._await(self._closed, operations.ReceiveCloseOnServerOperation(NO_FLAGS))
        self._await(self._began, operations.SendInitialMetadataOperation(None, NO_FLAGS))
        try:
            if self._crowded:
                code = grpc.StatusCode.RESOURCE_EXHAUSTED
                raise EndError(code, f"the call has more than {MOST_METADATA} entries of metadata")
            if self._rpc.admit(StreamedCall(self)):
                self._streams.enter(self)
                self._read_next()
        except EndError as end:
            self.put(end)

    def put(self, item: bytes | EndError) -> None:
        """Let an answer be written, or the stream end with an error, after what was put before."""
        with self._changed:
            if self._ended:
                return
            self._outbox.append(item)
            if isinstance(item, bytes):
                self._owed.add(self, len(item))
            if self._writes:
                return
            self._writes = True
        self._write_next()

    def drop(self) -> None:
        """End it without a word, since its client reads nothing."""
        self._call.cancel()

    def _write_next(self) -> None:
        """Write what is next in the outbox; the one thread that has set ``_writes`` does."""
        with self._changed:
            item = self._outbox.popleft() if self._outbox and not self._ended else None
            self._writes = isinstance(item, bytes)
            is_done = item is None and self._half_closed and not self._pending
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
        status = operations.SendStatusFromServerOperation(
            None, code.value[0], details.encode(errors="replace"), NO_FLAGS
        )
        self._await(self._began, status)

    def _await(self, then: Callable[[Any], None], *batch: Any) -> None:
        """Begin operations, unless gRPC has let go of the stream; ``then`` gets their event."""
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

    def _take_event(self, then: Callable[[Any], None], event: Any) -> Finished:
        self._do(then, event)
        with self._changed:
            self._due -= 1
            self._gone = not self._due
            return (self, ()) if self._gone else NOTHING

    def _do(self, step: Callable[[Any], None], what: Any) -> None:
        try:
            step(what)
        except BaseException:
            logger.exception("A stream failed")
            self._fail(EndError(grpc.StatusCode.INTERNAL, "the server failed unexpectedly; its log says why"))

    def _fail(self, end: EndError) -> None:
        """Let the stream end; an exception here would end the serving thread."""
        try:
            self.put(end)
        except BaseException:
            logger.exception("A stream could not be ended")

    def _began(self, _event: Any) -> None:
        """Note that the metadata, or the status, has left."""

    def _received(self, event: Any) -> None:
        message = event.batch_operations[0].message()
        with self._changed:
            self._half_closed = message is None
            is_done = self._half_closed and not self._pending
        if is_done:
            self._end(grpc.StatusCode.OK, "")
        elif message is not None and is_packed(message):
            self._unpacking.submit(self._do, self._take_message, message)
        elif message is not None:
            self._take_message(message)

    def _take_message(self, message: bytes) -> None:
        self.take(message)
        self._reads = False  # not before: an end that is read meanwhile would end the stream without this answer
        self._read_next()

    def _written(self, size: int, _event: Any) -> None:
        self._owed.settle(self, size)
        with self._changed:
            self._pending -= 1
        self._write_next()
        self._read_next()

    def _closed(self, _event: Any) -> None:
        with self._changed:
            self._ended = True
            self._outbox.clear()
        self.leave()
        self._streams.discard(self)
