"""A request and the client that waits for its answer, whatever the transport is."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any

import grpc

from trtnode.serving.security.authorization import ANYONE
from trtnode.serving.service.rpc_table import INFER_RPC
from trtnode.serving.service.status import status_of
from trtnode.serving.telemetry import logs
from trtnode.serving.threads.caller import answering

Metadata = Collection[tuple[str, str | bytes]]
"""Names in lower case and values of what came with a call."""


class Writer(abc.ABC):
    """Writes the answers of calls to one transport, from any thread; it never waits for a client."""

    __slots__ = ()

    @abc.abstractmethod
    def reply(self, call: Call, response: Any) -> None:
        """Write a call's response, in the form of the transport."""

    @abc.abstractmethod
    def fail(self, call: Call, code: grpc.StatusCode, details: str) -> None:
        """Write the status of a call that failed."""

    def watch(self) -> None:  # noqa: B027  (most transports notice it anyway)
        """Notice from now on when the client leaves."""


class FutureWriter(Writer):
    """Puts an answer into a future.

    Attributes:
        answer: The response, or what ``describe`` makes of a status.
    """

    __slots__ = ("_describe", "answer")

    def __init__(self, describe: Callable[[grpc.StatusCode, str], Any]) -> None:
        self.answer: Future[Any] = Future()
        self._describe = describe

    def reply(self, _call: Call, response: Any) -> None:
        """Set the response, if anyone waits for it."""
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_result(response)

    def fail(self, call: Call, code: grpc.StatusCode, details: str) -> None:
        """Set what describes the status."""
        self.reply(call, self._describe(code, details))


class Call:
    """A unary call, a request over REST, or one request of a stream.

    ``reply`` or ``fail`` ends it, from any thread; only the first of them has an effect.

    Attributes:
        rpc: The RPC that brings its inference request.
        writer: Writes its answer; None once it has one.
        grant: The rights of its caller.
        size: Bytes of its message; 0 where another thread should answer it, however short it takes.
        raw: Raw contents that were cut out of its message.
        request: Its message, once it is parsed; None before, and for one that can't be.
        metadata: What came with the request.
        code: The status with which it failed; None if it didn't.
        has_left: True once the client waits no more.
    """

    __slots__ = (
        "_callbacks", "_peer", "code", "grant", "has_left", "metadata", "raw", "request", "rpc", "size", "writer",
    )  # fmt: skip

    def __init__(
        self, writer: Writer, peer: str | Callable[[], bytes] = "", metadata: Metadata = (), rpc: str = INFER_RPC
    ) -> None:
        """Describe a client.

        Args:
            writer: Writes the answer.
            peer: Its address, or what returns that.
            metadata: What came with the request.
            rpc: The RPC that brings its inference request.
        """
        self.writer: Writer | None = writer
        self.rpc = rpc
        self.metadata = metadata
        self._peer = peer
        self.code: grpc.StatusCode | None = None
        self.has_left = False
        self._callbacks: list[Callable[[], None]] = []
        self.grant = ANYONE
        self.size = 0
        self.raw: Sequence[memoryview] = ()
        self.request: Any = None

    def reply(self, response: Any) -> None:
        """Answer the client, in the form of its transport."""
        writer, self.writer = self.writer, None  # a writer may lead here, and a circle would keep both
        if writer is not None:
            try:
                writer.reply(self, response)
            except BaseException:
                self.writer = writer  # the client still waits
                raise

    def fail(self, code: grpc.StatusCode, details: str) -> None:
        """Tell the client that its request failed."""
        self.code = code
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.fail(self, code, details)

    def fail_with(self, error: BaseException, rpc: str, started_s: float) -> None:
        """Tell the client the error of a request that began at a time of ``time.perf_counter``."""
        self.code, details = status_of(error, rpc)
        logs.log_answer(rpc, self, started_s)
        self.fail(self.code, details)

    def watch(self) -> None:
        """Notice from now on when the client leaves. A call that is answered at once can do without."""
        if self.writer is not None:
            self.writer.watch()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Register what to call when the client leaves; return False if it has left already."""
        self._callbacks.append(callback)  # before the look, and `leave` marks before it calls: one sees the other
        return not self.has_left

    def leave(self) -> None:
        """Note that the client has left, and call who asked for it."""
        self.has_left = True
        for callback in self._callbacks:
            callback()

    def peer(self) -> str:
        """Return the client's address."""
        return self._peer if isinstance(self._peer, str) else self._peer().decode(errors="replace")

    def header(self, name: str) -> str:
        """Return one value of what came with the request; empty if it isn't there."""
        return next((str(value) for key, value in self.metadata if key == name), "")

    def answer_rpc(self, rpc: str, request: Any, work: Callable[[], Any]) -> None:
        """Answer with what ``work`` returns, or tell why it failed. Lines that are logged meanwhile name the request.

        Args:
            rpc: Name of the RPC.
            request: Its message.
            work: Makes the response, in the form of the transport.
        """
        before = logs.CURRENT_REQUEST.set(request)
        started_s = time.perf_counter()
        try:
            with answering(self):
                response = work()
            logs.log_answer(rpc, self, started_s)
            self.reply(response)
        except Exception as error:
            self.fail_with(error, rpc, started_s)
        finally:
            logs.CURRENT_REQUEST.reset(before)
