"""Calls on grpcio's own server without its Python layer.

grpcio's serving thread calls the tag of each event that it doesn't know as its own: ``state, callbacks = tag(event)``.
So calls of a method that are requested with a tag of ours come here as bytes, and cost neither a condition nor a
thread while they wait. This is private API of grpcio: ``missing_parts`` tells whether the installed version has it.

An exception that leaves a tag would end the serving thread and with it the port, so none does.
"""

from __future__ import annotations

import abc
import functools
import logging
from collections.abc import Callable
from typing import Any

import grpc

from trtnode.serving.grpc.backlog import ResponseBacklog
from trtnode.serving.grpc.rpc import Rpc
from trtnode.serving.protocol.packing import is_packed
from trtnode.serving.service.call import Call, Writer
from trtnode.serving.threads.request_pool import RequestPool

try:
    from grpc import _server
    from grpc._cython import cygrpc
except ImportError:
    _server = cygrpc = None

logger = logging.getLogger(__name__)

operations: Any = cygrpc
"""The module that has grpcio's operations on calls; None where there is none."""

PARTS: dict[str, tuple[str, ...]] = {
    "state": ("completion_queue", "due", "lock", "rpc_states", "server", "stage"),
    "state.server": ("register_method", "request_registered_call"),
    "grpc._server": ("_ServerStage.STARTED", "_process_event_and_continue"),
    "cygrpc": (
        "Call.cancel", "Call.start_server_batch", "ReceiveCloseOnServerOperation", "ReceiveMessageOperation",
        "SendInitialMetadataOperation", "SendMessageOperation", "SendStatusFromServerOperation",
    ),
}  # fmt: skip
"""Parts of grpcio that this module uses, by the object that has them."""

COUNTED_BYTES = 4 << 10
"""Answers up to this size take no more memory than gRPC needs for their calls, and aren't counted."""

UNEXPECTED = grpc.StatusCode.INTERNAL, "the server failed unexpectedly; its log says why"

Finished = tuple[Any, tuple[()]]
"""The object that grpcio may forget, or None, and no callbacks."""
NOTHING: Finished = (None, ())
"""grpcio keeps its objects."""
NO_FLAGS = 0
"""The flags of every operation."""


def missing_parts(server: grpc.Server) -> list[str]:
    """Return what this module needs of grpcio and the installed version doesn't have."""
    state = getattr(server, "_state", None)
    owners = {
        "state": state,
        "state.server": getattr(state, "server", None),
        "grpc._server": _server,
        "cygrpc": cygrpc,
    }
    return [f"{owner}.{part}" for owner, parts in PARTS.items() for part in parts if not _has(owners[owner], part)]


def has_unread_calls(server: grpc.Server) -> bool:
    """Return whether unary calls have come whose requests are still on their way."""
    state: Any = server._state
    with state.lock:
        return any(isinstance(one, UnaryCall) and one.is_unread for one in state.rpc_states)


class Received(abc.ABC):
    """A call that has come. grpcio keeps it until the tag of its last event gives it back."""

    __slots__ = ("_backlog", "_call", "_rpc", "_unpacking")

    def __init__(self, rpc: Rpc, backlog: ResponseBacklog, unpacking: RequestPool, event: Any) -> None:
        """Describe a call.

        Args:
            rpc: Checks its requests and has them answered.
            backlog: Counts responses until they are read.
            unpacking: Has the thread that reads compressed requests.
            event: Of the call.
        """
        self._call = event.call
        self._rpc = rpc
        self._backlog = backlog
        self._unpacking = unpacking

    @abc.abstractmethod
    def begin(self) -> None:
        """Begin to read its request, or its first one."""

    def drop(self) -> None:
        """End it without a status, since its client reads nothing."""
        self._call.cancel()

    def _receive(self, message: bytes) -> None:
        """Have a request answered; one that is compressed is read in another thread."""
        if is_packed(message):
            self._unpacking.run(functools.partial(self._take, message))
        else:
            self._take(message)

    @abc.abstractmethod
    def _take(self, message: bytes) -> None:
        """Have a request answered. Nothing is raised."""


class Method:
    """Takes the calls of one method. It is the tag with which the next call is requested."""

    def __init__(self, server: grpc.Server, method: str, receive: Callable[[Any], Received]) -> None:
        """Register the method; the server hasn't started yet, and has no handler of it.

        Args:
            server: One with no ``missing_parts``.
            method: ``/service/name``.
            receive: Makes an object of the event of a call, in the serving thread.
        """
        self._state = server._state
        self._method = method
        self._receive = receive
        self._held: list[Received] | None = None
        self._state.server.register_method(self._method)

    def open(self) -> None:
        """Let calls come, once the server has started."""
        with self._state.lock:
            self._request()

    def hold(self) -> None:
        """Begin no further call until ``release``."""
        self._held = []

    @property
    def held(self) -> int:
        """The number of calls that wait for that."""
        return len(self._held or ())

    def release(self) -> None:
        """Begin the calls that were held back."""
        with self._state.lock:
            held, self._held = self._held, None
        for call in held or ():
            call.begin()

    def __call__(self, event: Any) -> Finished:
        """Let the next call come, and begin to read this one's request."""
        state = self._state
        try:
            with state.lock:
                state.due.discard(self)
                if not event.success:  # the server stops, and looks whether it was the last to wait for
                    state.rpc_states.add(self)
                    return self, ()
                if state.stage is _server._ServerStage.STARTED:
                    self._request()
                call = self._receive(event)
                state.rpc_states.add(call)
                held = self._held
                if held is not None:
                    held.append(call)
            if held is None:
                call.begin()
        except BaseException:
            logger.exception("A call could not be taken")
        return NOTHING

    def _request(self) -> None:
        state = self._state
        state.server.request_registered_call(state.completion_queue, state.completion_queue, self._method, self)
        state.due.add(self)


class UnaryCall(Received, Writer):
    """A unary call, from its arrival until gRPC lets go of it. It writes its own answer."""

    __slots__ = ("_client", "_due", "_is_counted", "_watches")

    def __init__(self, rpc: Rpc, backlog: ResponseBacklog, unpacking: RequestPool, event: Any) -> None:
        super().__init__(rpc, backlog, unpacking, event)
        self._client = Call(self, event.call.peer, event.invocation_metadata or ())
        self._due = 1
        self._watches = self._is_counted = False

    @property
    def is_unread(self) -> bool:
        """True until its request is there, or it has failed."""
        return self._client.request is None and self._client.writer is not None

    def begin(self) -> None:
        """Wait for the request, if the caller may send one."""
        if self._rpc.admit(self._client):
            self._call.start_server_batch((cygrpc.ReceiveMessageOperation(NO_FLAGS),), self._received)

    def watch(self) -> None:
        """Notice from now on when the client leaves."""
        self._due, self._watches = 2, True
        self._call.start_server_batch((cygrpc.ReceiveCloseOnServerOperation(NO_FLAGS),), self._closed)

    def reply(self, _call: Call, response: bytes) -> None:
        """Send the response."""
        if len(response) > COUNTED_BYTES:
            self._is_counted = True
            self._backlog.add(self, 2 * len(response))  # grpcio keeps a copy
        self._end(status(grpc.StatusCode.OK, ""), cygrpc.SendMessageOperation(response, NO_FLAGS))

    def fail(self, _call: Call, code: grpc.StatusCode, details: str) -> None:
        """Send the status."""
        self._end(status(code, details))

    def _end(self, ending: Any, *message: Any) -> None:
        head = cygrpc.SendInitialMetadataOperation(None, NO_FLAGS)
        close = () if self._watches else (cygrpc.ReceiveCloseOnServerOperation(NO_FLAGS),)
        self._call.start_server_batch((head, *message, ending, *close), self._sent)

    def _received(self, event: Any) -> Finished:
        try:
            message = event.batch_operations[0].message()
            if message is None:
                self._client.fail(grpc.StatusCode.CANCELLED, "the request never came")
            else:
                self._receive(message)
        except BaseException:
            self._fail_unexpectedly()
        return NOTHING

    def _take(self, message: bytes) -> None:
        try:
            self._rpc.take(self._client, message)
        except BaseException:
            self._fail_unexpectedly()

    def _fail_unexpectedly(self) -> None:
        logger.exception("A call ended without an answer")
        self._client.fail(*UNEXPECTED)

    def _closed(self, _event: Any) -> Finished:
        if self._client.writer is not None:
            try:
                self._client.leave()
            except BaseException:
                logger.exception("A client's leaving was not noted everywhere")
        return self._let_go()

    def _sent(self, _event: Any) -> Finished:
        if self._is_counted:
            self._backlog.forget(self)
        return self._let_go()

    def _let_go(self) -> Finished:
        self._due -= 1
        return NOTHING if self._due else (self, ())


def status(code: grpc.StatusCode, details: str) -> Any:
    """Return the operation that ends a call with a status."""
    return cygrpc.SendStatusFromServerOperation(None, code.value[0], details.encode(errors="replace"), NO_FLAGS)


def _has(owner: Any, part: str) -> bool:
    for name in part.split("."):
        owner = getattr(owner, name, None)
    return owner is not None
