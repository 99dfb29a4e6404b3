"""The HTTP port of several workers: each request goes to one of them, over a Unix socket of its own, and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import httpx
import prometheus_client
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from trtnode.serving.errors import UnavailableError
from trtnode.serving.rest.app import show_page
from trtnode.serving.rest.body import read_body
from trtnode.serving.rest.inference import peer_of, unless_gone
from trtnode.serving.rest.ops import NOT_STORED, OpsApp
from trtnode.serving.rest.routes import STATUS, STATUS_PAGES
from trtnode.serving.security.authorization import Authorizer
from trtnode.serving.security.tokens import Grant
from trtnode.serving.workers.merged_status import merge_status

STATUS_S = 3.0
"""The longest time that workers may take to send their status. Those that take longer are left out."""

RELAYED = ("/v2", "/v2/{rest:path}", "/models/{rest:path}")
"""The paths that workers answer."""

PER_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"content-length")
)
"""Headers about a connection rather than what travels over it (RFC 9110, section 7.6.1), and the length, set anew."""

SENDER = b"x-forwarded-for"
"""The header that tells a worker the client's address."""


class HttpProxy(OpsApp):
    """The routes of a server whose models run in other processes."""

    def __init__(
        self,
        authorizer: Authorizer,
        *,
        registry: Callable[[], prometheus_client.CollectorRegistry],
        not_ready: Callable[[], Sequence[str]],
        notes: Callable[[], Sequence[str]],
        workers: Callable[[], Sequence[pathlib.Path]],
        max_bytes: int,
    ) -> None:
        """Prepare.

        Args:
            authorizer: Decides who may come in. What they may do there is for the workers to say.
            registry: Returns that of the metrics.
            not_ready: Returns what the server waits for, one line a reason; nothing if it is ready.
            notes: Lines for /readyz about what should be mended.
            workers: Returns the sockets of the workers that take requests now.
            max_bytes: Largest body of a request.
        """
        super().__init__(authorizer, registry=registry, not_ready=not_ready, notes=notes)
        self._workers = workers
        self._max_bytes = max_bytes
        self._turns = itertools.count()
        self._transports: dict[pathlib.Path, httpx.AsyncHTTPTransport] = {}

    def routes(self) -> list[Route]:
        """Return the paths and what answers them."""
        relay = self.guarded("REST", self._relay)
        return [
            *super().routes(),
            *(Route(page.path, show_page) for page in STATUS_PAGES),
            Route(STATUS.path, self.guarded(STATUS.path, self._show_status)),
            *(Route(path, relay, methods=["GET", "POST"]) for path in RELAYED),
        ]

    async def _relay(self, request: Request, _grant: Grant) -> Response:
        body = await read_body(request, self._max_bytes)
        workers = self._workers()
        if not workers:
            raise UnavailableError("no worker process takes requests yet; try later")
        worker = workers[next(self._turns) % len(workers)]
        asked = asyncio.ensure_future(self._ask(worker, _outgoing(request, b"".join(body.chunks))))
        answer = await unless_gone(asked, request.receive, asked.cancel)
        return Relayed(answer)  # type: ignore[return-value]  # an application, as responses are

    async def _show_status(self, request: Request, _grant: Grant) -> Response:
        outgoing = _outgoing(request, b"")
        asked = [asyncio.ensure_future(self._read_json(worker, outgoing)) for worker in self._workers()]
        if asked:
            _, late = await asyncio.wait(asked, timeout=STATUS_S)
            for one in late:
                one.cancel()
        parts = [one.result() for one in asked if one.done() and not one.cancelled() and one.exception() is None]
        if not parts:
            raise UnavailableError("no worker process tells its status; try later")
        return JSONResponse(merge_status(parts, self._not_ready()), headers=NOT_STORED)

    async def _read_json(self, worker: pathlib.Path, outgoing: httpx.Request) -> Any:
        answer = await self._ask(worker, outgoing)
        try:
            return json.loads(await answer.aread())
        finally:
            await answer.aclose()

    async def _ask(self, worker: pathlib.Path, outgoing: httpx.Request) -> httpx.Response:
        """Send a request to a worker, and return its answer, whose body is yet to be read.

        Raises:
            UnavailableError: The worker ends before it answers.
        """
        await self._forget_ended()
        transport = self._transports.get(worker)
        if transport is None:
            limits = httpx.Limits(max_connections=None)
            transport = httpx.AsyncHTTPTransport(verify=False, limits=limits, uds=str(worker))
            self._transports[worker] = transport
        try:
            return await transport.handle_async_request(outgoing)
        except httpx.TransportError:
            raise UnavailableError("the worker process ended before it answered; send the request again") from None

    async def _forget_ended(self) -> None:
        ended = [self._transports.pop(worker) for worker in self._transports.keys() - set(self._workers())]
        for transport in ended:
            with contextlib.suppress(httpx.TransportError):
                await transport.aclose()


class Relayed:
    """A worker's answer. Also the ASGI application that sends it on."""

    def __init__(self, answer: httpx.Response) -> None:
        self._answer = answer

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send it."""
        answer = self._answer
        try:
            headers = [(name.lower(), value) for name, value in answer.headers.raw]
            await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
            async for part in answer.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body"})
        finally:
            await answer.aclose()


def _outgoing(request: Request, body: bytes) -> httpx.Request:
    """Return a client's request as a worker gets it."""
    url = httpx.URL(scheme="http", host="worker", raw_path=request.scope["raw_path"] + _query(request))
    headers = [*_travelling(request.headers.raw), (SENDER, peer_of(request).encode())]
    return httpx.Request(request.method, url, headers=headers, content=body or None)


def _query(request: Request) -> bytes:
    query: bytes = request.scope["query_string"]
    return b"?" + query if query else b""


def _travelling(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
    return ((name, value) for name, value in headers if name not in PER_CONNECTION and name != SENDER)
