"""The values that travel between ingress and replicas, and an ASGI application that is asked without a port."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from starlette.types import ASGIApp

Headers = tuple[tuple[bytes, bytes], ...]


class Caller(NamedTuple):
    """The client of a call.

    Attributes:
        peer: Its address.
        metadata: Names in lower case and values of what came with the call.
    """

    peer: str
    metadata: tuple[tuple[str, str | bytes], ...]

    def header(self, name: str) -> str:
        """Return one value of what came with the call; empty if it isn't there."""
        return next((str(value) for key, value in self.metadata if key == name), "")


class Failure(NamedTuple):
    """The status of a call that failed.

    Attributes:
        code: Name of the gRPC status code.
        details: For the client.
    """

    code: str
    details: str


Reply = bytes | Failure
"""A response message, or how its call failed."""


TRAVELLING = ("type", "asgi", "http_version", "scheme", "method", "path", "raw_path", "query_string", "client")
"""Keys of an ASGI scope that a request takes along as they are."""


class HttpRequest(NamedTuple):
    """A request of the HTTP port: what can travel of its ASGI scope, and its whole body."""

    scope: Mapping[str, Any]
    body: bytes

    @classmethod
    def of(cls, scope: Mapping[str, Any], body: bytes) -> HttpRequest:
        """Take from an ASGI scope what can travel. Ray's own path in front of the application stays behind."""
        kept = {key: scope[key] for key in TRAVELLING if key in scope}
        return cls({**kept, "root_path": "", "headers": _pairs(scope["headers"])}, body)


class HttpAnswer(NamedTuple):
    """The answer of an ASGI application."""

    status: int
    headers: Headers
    body: bytes


async def ask(app: ASGIApp, request: HttpRequest) -> HttpAnswer:
    """Return an application's whole answer to a request. Cancelled, the application learns that the client has left."""
    parts: list[bytes] = []
    begun: list[tuple[int, Headers]] = []
    coming = [{"type": "http.request", "body": request.body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not coming:
            await asyncio.Event().wait()  # the client is there as long as this call
        return coming.pop()

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            begun.append((message["status"], _pairs(message["headers"])))
        else:
            parts.append(message.get("body", b""))

    await app(dict(request.scope), receive, send)
    return HttpAnswer(*begun[0], b"".join(parts))


def _pairs(headers: Iterable[Iterable[bytes]]) -> Headers:
    return tuple((bytes(name), bytes(value)) for name, value in headers)
