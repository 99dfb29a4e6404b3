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


class HttpRequest(NamedTuple):
    """A request of the HTTP port, with its whole body."""

    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: Headers
    body: bytes
    client: tuple[str, int] | None

    @classmethod
    def of(cls, scope: Mapping[str, Any], body: bytes) -> HttpRequest:
        """Take from an ASGI scope what can travel."""
        client = tuple(scope["client"]) if scope.get("client") else None
        raw_path = scope.get("raw_path") or scope["path"].encode()
        query, headers = scope.get("query_string", b""), _pairs(scope["headers"])
        return cls(scope["method"], scope["path"], raw_path, query, headers, body, client)

    def scope(self) -> dict[str, Any]:
        """Return it as an ASGI scope."""
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "root_path": "",
            "method": self.method,
            "path": self.path,
            "raw_path": self.raw_path,
            "query_string": self.query,
            "headers": list(self.headers),
            "client": self.client,
            "server": None,
        }


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

    await app(request.scope(), receive, send)
    return HttpAnswer(*begun[0], b"".join(parts))


def _pairs(headers: Iterable[Iterable[bytes]]) -> Headers:
    return tuple((bytes(name), bytes(value)) for name, value in headers)
