"""Changes that clients made to a running server, replayed to each worker that joins later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trtnode.protos import LogSettingsRequest
from trtnode.serving.security.authorization import ADMIN_RIGHTS, READING_TOO

_Thing = tuple[str, str]


class Changes:
    """The last change of each thing that clients can change, in the order in which they came."""

    def __init__(self) -> None:
        self._last: dict[_Thing, tuple[str, bytes]] = {}

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Yield the RPC and the serialized request of each."""
        yield from tuple(self._last.values())

    def record(self, rpc: str, request: Any, response: bytes) -> None:
        """Keep a change that the workers have followed, in place of an older one about the same thing.

        Args:
            rpc: One of ``ADMIN_RIGHTS``.
            request: Its message.
            response: Their answer.
        """
        if rpc in READING_TOO and not request.settings:
            return
        if rpc.endswith("SharedMemoryUnregister"):
            self._forget_regions(rpc.replace("Unregister", "Register"), request.name)
            return
        if rpc == "LogSettings":  # the answer has the same form, and tells all that is in effect
            request = LogSettingsRequest.FromString(response)
        thing = _thing(rpc, request)
        self._last.pop(thing, None)
        self._last[thing] = (rpc, request.SerializeToString())

    def _forget_regions(self, rpc: str, name: str) -> None:
        gone = [thing for thing in self._last if thing[0] == rpc and name in ("", thing[1])]
        for thing in gone:
            del self._last[thing]


def _thing(rpc: str, request: Any) -> _Thing:
    kind = "model" if ADMIN_RIGHTS[rpc] == "repository" else rpc  # a load and an unload are about one thing
    return kind, getattr(request, "model_name", "") or getattr(request, "name", "")
