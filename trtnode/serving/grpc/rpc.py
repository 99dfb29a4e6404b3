"""One RPC: who may call it, the bytes of its requests, and who answers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from trtnode.serving.errors import ServingError, UnreadableMessageError
from trtnode.serving.protocol.packing import is_packed, unpack
from trtnode.serving.protocol.wire_format import LONG_BYTES, MOST_PARTS, cut_field, is_bounded, layout_of
from trtnode.serving.security.authorization import Authorizer
from trtnode.serving.security.tokens import Grant
from trtnode.serving.service.call import Call
from trtnode.serving.service.status import status_of
from trtnode.serving.threads.request_pool import RequestPool

UNREADABLE: Any = object()
"""Stands for a message that can't be parsed, or whose objects would take too much memory."""
MOST_METADATA = 500
"""Entries of a call's metadata. A few bytes on the wire may stand for megabytes of them, so they are not kept."""

MOST_BYTES = 4 << 20
"""Bytes that a compressed message may stand for where nothing else says so."""

Parse = Callable[[bytes], Any]
Handler = Callable[[Any, Call], None]
"""Has a request answered: at once, or in another thread."""


class Rpc:
    """An RPC that unary calls and streams are offered to: first ``admit``, then ``take``.

    Attributes:
        name: Without its service.
    """

    def __init__(
        self,
        name: str,
        parse: Parse,
        handle: Handler,
        authorizer: Authorizer | None = None,
        raw_field: int = 0,
        most: int = MOST_BYTES,
    ) -> None:
        """Describe an RPC.

        Args:
            name: Without its service.
            parse: Reads requests.
            handle: Answers them.
            authorizer: Decides about callers; None for an RPC that is open to all.
            raw_field: Number of the field that is cut out of long messages; 0 for none.
            most: Bytes that a compressed request may stand for.
        """
        self.name = name
        self._parse = parse
        self._handle = handle
        self._raw_field = raw_field
        self._most = most
        self._authorizer = authorizer if authorizer is not None and not authorizer.lets_all(name) else None

    def admit(self, call: Call) -> bool:
        """Return whether a caller may use the RPC, before its request is read; a call that may not fails."""
        if len(call.metadata) > MOST_METADATA:
            call.metadata = ()
            call.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, f"the call has more than {MOST_METADATA} entries of metadata")
            return False
        if self._authorizer is not None:
            try:
                call.grant = self._authorizer.authenticate(call.header("authorization"))
                self._authorizer.check_right(call.grant, self.name)
            except ServingError as error:
                self._refuse(call, self._authorizer, error)
                return False
        return True

    def take(self, call: Call, message: bytes) -> None:
        """Have a request answered, if its caller may have done what it asks for; it may be compressed."""
        if is_packed(message):
            try:
                message = unpack(message, self._most)
            except ServingError as error:
                call.fail(*status_of(error, self.name))
                return
        call.size = len(message)
        if self._raw_field and call.size > LONG_BYTES:
            message, call.raw = cut_field(message, self._raw_field)
        request = self._parse(message)
        if request is UNREADABLE:
            call.fail(*status_of(UnreadableMessageError(self.name, MOST_PARTS), self.name))
            return
        call.request = request
        if self._authorizer is not None:
            try:
                self._authorizer.check_request(call.grant, self.name, request)
            except ServingError as error:
                self._refuse(call, self._authorizer, error)
                return
        self._handle(request, call)

    def _refuse(self, call: Call, authorizer: Authorizer, error: ServingError) -> None:
        authorizer.count_refusal(error, self.name, call.peer())
        call.fail(*status_of(error, self.name))


def answering_in(pool: RequestPool, rpc: str, method: Callable[[Any, Grant], Any]) -> Handler:
    """Return what has requests answered in a pool, by a method from their messages and callers to responses."""

    def handle(request: Any, call: Call) -> None:
        call.watch()
        pool.run(lambda: call.answer_rpc(rpc, request, lambda: method(request, call.grant).SerializeToString()))

    return handle


def parser_of(kind: Any, instead: Any = UNREADABLE) -> Parse:
    """Return a parser of one kind of message, which gives ``instead`` for bytes that are no such message."""
    layout = layout_of(kind.DESCRIPTOR)

    def parse(data: bytes) -> Any:
        try:
            return kind.FromString(data) if is_bounded(data, layout) else instead
        except DecodeError:
            return instead

    return parse
