"""A request and the client that waits for its answer, whatever the transport is."""

from __future__ import annotations

import abc
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import grpc

from trtnode.serving.security.authorization import ANYONE
from trtnode.serving.service.rpc_table import INFER_RPC
from trtnode.serving.service.status import status_of
from trtnode.serving.telemetry import logs
from trtnode.serving.threads.caller import answering


class Call(abc.ABC):
    """A unary call, a request over REST, or one request of a stream.

    ``reply`` or ``fail`` ends it, from any thread; only the first of them has an effect.

    Attributes:
        rpc: The RPC that brings its inference request.
        grant: The rights of its caller.
        size: Bytes of its message; 0 where another thread should answer it, however short it takes.
        raw: Raw contents that were cut out of its message.
        request: Its message, once it is parsed; None before, and for one that can't be.
    """

    __slots__ = ("_callbacks", "_code", "_left", "_metadata", "_peer", "grant", "raw", "request", "size")
    rpc: ClassVar[str] = INFER_RPC

    def __init__(self, peer: str = "", metadata: Iterable[tuple[str, str | bytes]] = ()) -> None:
        """Describe a client.

        Args:
            peer: Its address.
            metadata: Names in lower case and values of what came with the request.
        """
        self._peer = peer
        self._metadata = metadata
        self._code: grpc.StatusCode | None = None
        self._left = False
        self._callbacks: list[Callable[[], None]] = []
        self.grant = ANYONE
        self.size = 0
        self.raw: Sequence[memoryview] = ()
        self.request: Any = None

    @abc.abstractmethod
    def reply(self, response: Any) -> None:
        """Answer the client, in the form of its transport."""

    @abc.abstractmethod
    def fail(self, code: grpc.StatusCode, details: str) -> None:
        """Tell the client that its request failed."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Register what to call when the client leaves; return False if it has left already."""
        self._callbacks.append(callback)  # before the look, and `leave` marks before it calls: one sees the other
        return not self._left

    @property
    def has_left(self) -> bool:
        """True once the client waits no more."""
        return self._left

    def watch(self) -> None:  # noqa: B027  (most calls notice it anyway)
        """Notice from now on when the client leaves. A call that is answered at once can do without."""

    def leave(self) -> None:
        """Note that the client has left, and call who asked for it."""
        self._left = True
        for callback in self._callbacks:
            callback()

    def peer(self) -> str:
        """Return the client's address."""
        return self._peer

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]]:
        """Return what came with the request."""
        return self._metadata

    def header(self, name: str) -> str:
        """Return one value of what came with the request; empty if it isn't there."""
        return next((str(value) for key, value in self.invocation_metadata() if key == name), "")

    def code(self) -> grpc.StatusCode | None:
        """Return the status with which the request failed; None if it didn't."""
        return self._code

    def set_code(self, code: grpc.StatusCode) -> None:
        """Note the status with which the request failed."""
        self._code = code

    def answer_rpc(self, rpc: str, request: Any, work: Callable[[], Any]) -> None:
        """Answer with what ``work`` returns, or tell why it failed. Lines that are logged meanwhile name the request.

        Args:
            rpc: Name of the RPC.
            request: Its message.
            work: Makes the response, in the form of the transport.
        """
        before = logs.CURRENT_REQUEST.set(request)
        started_s = time.perf_counter()
        response, failure = None, None
        try:
            with answering(self):
                response = work()
        except Exception as error:
            failure = status_of(error, rpc)
            self.set_code(failure[0])
        finally:
            if logs.logger.isEnabledFor(logging.DEBUG):
                logs.log_answer(rpc, self, started_s)
            logs.CURRENT_REQUEST.reset(before)
        if failure is None:
            self.reply(response)
        else:
            self.fail(*failure)
