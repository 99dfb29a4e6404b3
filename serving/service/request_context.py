"""The client of a request, as far as its answer depends on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import grpc


class RequestContext:
    """The client of a request over REST, or of one request of a stream.

    Its methods are those of gRPC's ``ServicerContext`` that answers use, so a gRPC call passes its own context.
    """

    __slots__ = ("_callbacks", "_code", "_left", "_metadata", "_peer")

    def __init__(self, peer: str, metadata: Iterable[tuple[str, str | bytes]] = ()) -> None:
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

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Register what to call when the client leaves; return False if it has left already."""
        self._callbacks.append(callback)  # before the look, and `leave` marks before it calls: one sees the other
        return not self._left

    @property
    def has_left(self) -> bool:
        """Whether the client waits no more."""
        return self._left

    def watch(self) -> None:
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
