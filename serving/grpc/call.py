"""A request and the client that waits for its answer, whatever its path through grpcio."""

from __future__ import annotations

import abc
import functools
import threading
from collections.abc import Iterable, Sequence

import grpc

from trtnode.serving.grpc.owed import Owed
from trtnode.serving.security.authorization import ANYONE
from trtnode.serving.service.request_context import RequestContext


class Call(RequestContext, abc.ABC):
    """A unary call, or one request of a stream.

    ``reply`` or ``fail`` ends it, from any thread; only the first of them has an effect.

    Attributes:
        grant: The rights of its caller.
        size: Bytes of its request.
        raw: Raw contents that were cut out of its request.
    """

    __slots__ = ("grant", "raw", "size")

    def __init__(self, peer: str = "", metadata: Iterable[tuple[str, str | bytes]] = ()) -> None:
        super().__init__(peer, metadata)
        self.grant = ANYONE
        self.size = 0
        self.raw: Sequence[memoryview] = ()

    @abc.abstractmethod
    def reply(self, response: bytes) -> None:
        """Answer the client."""

    @abc.abstractmethod
    def fail(self, code: grpc.StatusCode, details: str) -> None:
        """Tell the client that its request failed."""


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
