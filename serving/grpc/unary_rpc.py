"""One RPC: who may call it, the bytes of its requests, and who answers them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from trtnode.serving.errors import ServingError, UnreadableMessageError
from trtnode.serving.grpc.codec import MOST_BYTES, UNREADABLE
from trtnode.serving.grpc.owed import Owed
from trtnode.serving.protocol.packing import is_packed, unpack
from trtnode.serving.protocol.wire_format import LONG_BYTES, cut_field
from trtnode.serving.security.authorization import Authorizer
from trtnode.serving.service.call import Call
from trtnode.serving.service.status import status_of

Parse = Callable[[bytes], Any]
Answer = Callable[[Any, Call], None]
"""Has a request answered: at once, or in another thread."""


class UnaryRpc:
    """An RPC that calls and streams of both paths through grpcio are offered to: first ``admit``, then ``take``."""

    def __init__(
        self,
        name: str,
        parse: Parse,
        answer: Answer,
        authorizer: Authorizer | None = None,
        raw_field: int = 0,
        most: int = MOST_BYTES,
    ) -> None:
        """Describe an RPC.

        Args:
            name: Without its service.
            parse: Reads requests.
            answer: Answers them.
            authorizer: Decides about callers; None for an RPC that is open to all.
            raw_field: Number of the field that is cut out of long messages; 0 for none.
            most: Bytes that a compressed request may stand for.
        """
        self._name = name
        self._parse = parse
        self._answer = answer
        self._raw_field = raw_field
        self._most = most
        self._authorizer = authorizer if authorizer is not None and not authorizer.lets_all(name) else None

    def admit(self, call: Call) -> bool:
        """Return whether a caller may use the RPC, before its request is read; tell one that may not."""
        if self._authorizer is not None:
            try:
                call.grant = self._authorizer.authenticate(call.header("authorization"))
                self._authorizer.check_right(call.grant, self._name)
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
                call.fail(*status_of(error, self._name))
                return
        call.size = len(message)
        if self._raw_field and call.size > LONG_BYTES:
            message, call.raw = cut_field(message, self._raw_field)
        request = self._parse(message)
        if request is UNREADABLE:
            call.fail(*status_of(UnreadableMessageError(self._name), self._name))
            return
        call.request = request
        if self._authorizer is not None:
            try:
                self._authorizer.check_request(call.grant, self._name, request)
            except ServingError as error:
                self._refuse(call, self._authorizer, error)
                return
        self._answer(request, call)

    def handler(self, owed: Owed, pool: ThreadPoolExecutor | None = None) -> grpc.RpcMethodHandler:
        """Return what answers calls on the ordinary path, where a thread of a pool waits for each of them."""
        handle: Any = functools.partial(self._handle, owed)
        handle.experimental_thread_pool = pool
        return grpc.unary_unary_rpc_method_handler(handle)

    def _handle(self, owed: Owed, message: bytes, context: grpc.ServicerContext) -> bytes:
        call = OrdinaryCall(context, owed)
        if self.admit(call):
            self.take(call, message)
        return call.wait()

    def _refuse(self, call: Call, authorizer: Authorizer, error: ServingError) -> None:
        authorizer.count_refusal(error, self._name, call.peer())
        call.fail(*status_of(error, self._name))


class OrdinaryCall(Call):
    """A call that a handler of grpcio answers: its thread waits for the answer."""

    __slots__ = ("_answered", "_context", "_details", "_owed", "_response")

    def __init__(self, context: grpc.ServicerContext, owed: Owed) -> None:
        super().__init__(metadata=context.invocation_metadata())
        self._context = context
        self._owed = owed
        self._answered = threading.Event()
        self._response = b""
        self._details = ""
        if not context.add_callback(self.leave):
            self.leave()

    def peer(self) -> str:
        """Return the client's address."""
        return str(self._context.peer())

    def reply(self, response: bytes) -> None:
        """Answer the client."""
        self._response = response
        self._answered.set()

    def fail(self, code: grpc.StatusCode, details: str) -> None:
        """Tell the client that its request failed."""
        self.set_code(code)
        self._details = details
        self._answered.set()

    def wait(self) -> bytes:
        """Return the answer once it is there; a failure ends the handler."""
        self._answered.wait()
        code = self.code()
        if code is not None:
            self._context.abort(code, self._details)  # raises; gRPC sends the status
        self._owed.add(self, len(self._response))
        if not self._context.add_callback(functools.partial(self._owed.forget, self)):
            self._owed.forget(self)
        return self._response

    def drop(self) -> None:
        """End it without a word, since its client reads nothing."""
        self._context.cancel()
