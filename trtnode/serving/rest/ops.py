"""The routes of every HTTP port: probes and metrics, and the check of rights before all others.

Probes need no token.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from trtnode.serving.errors import ForbiddenError, TooLargeError, UnauthenticatedError, UnavailableError
from trtnode.serving.rest.inference import error_answer, peer_of
from trtnode.serving.rest.routes import LIVEZ, METRICS, READYZ
from trtnode.serving.rest.text_endpoints import has_openai_errors, openai_error
from trtnode.serving.security.authorization import MODEL_FIELDS, Authorizer
from trtnode.serving.security.tokens import Grant
from trtnode.serving.service.status import status_of
from trtnode.serving.telemetry.prometheus import of_models

NOT_STORED = {"Cache-Control": "no-store"}


Handler = Callable[[Request, Grant], Awaitable[Response]]
"""Answers a request that may come in, given what its sender may do."""


ALL_MODELS = ""
"""The name that stands for all of them."""

PROBES = (LIVEZ, READYZ, "/v2/health/live", "/v2/health/ready")
"""The paths that also answer while every connection has a request that runs."""

KNOWN = "/v2/..., /v1/..., /rerank, /metrics, /livez, /readyz and the status page /"
"""The paths that there are."""


class OpsApp:
    """The routes that every HTTP port has."""

    def __init__(
        self,
        authorizer: Authorizer,
        *,
        metrics: Callable[[str], Awaitable[tuple[bytes, str]]],
        not_ready: Callable[[], Sequence[str]],
        notes: Callable[[], Sequence[str]],
    ) -> None:
        """Prepare.

        Args:
            authorizer: Decides about calls.
            metrics: Writes the metrics, see ``exposition``.
            not_ready: Returns what the server waits for, one line a reason; nothing if it is ready.
            notes: Lines for /readyz about what should be mended.
        """
        self._authorizer = authorizer
        self._metrics = metrics
        self._not_ready = not_ready
        self._notes = notes

    def asgi(self) -> Starlette:
        """Return the ASGI application."""
        return Starlette(routes=self.routes(), exception_handlers={HTTPException: self._no_route})

    def routes(self) -> list[Route]:
        """Return the paths and what answers them."""
        return [
            Route(LIVEZ, _livez),
            Route(READYZ, self._readyz),
            Route(METRICS, self.guarded(METRICS, self._show_metrics)),
        ]

    def guarded(self, what: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler's answer, or the error's, once it is clear that the request may come in."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request, self._admit(what, request))
            except ClientDisconnect:
                return Response(status_code=499)  # which nobody reads
            except asyncio.CancelledError:  # the port closes, and waits no longer
                return _failed(UnavailableError("the server is stopping; send the request to another one"), what)
            except (UnauthenticatedError, ForbiddenError) as error:
                self._authorizer.count_refusal(error, what, peer_of(request))
                return _failed(error, what)
            except Exception as error:
                return _failed(error, what)

        return answer

    def _admit(self, what: str, request: Request) -> Grant:
        grant = self._authorizer.authenticate(request.headers.get("authorization", ""))
        self._authorizer.check_right(grant, what)
        if what in MODEL_FIELDS:
            self._authorizer.check_model(grant, request.path_params.get("model", ""))
        return grant

    async def _readyz(self, _request: Request) -> Response:
        reasons = self._not_ready()
        return _text(503 if reasons else 200, *(reasons or ["ready"]), *self._notes())

    async def _show_metrics(self, request: Request, grant: Grant) -> Response:
        text, content_type = await self._metrics(request.headers.get("accept", ""))
        if not grant.covers(ALL_MODELS):
            text = await asyncio.to_thread(of_models, text, grant.covers)
        return Response(text, headers={**NOT_STORED, "Content-Type": content_type})

    async def _no_route(self, request: Request, error: Exception) -> Response:
        """Answer a request that no route takes, also only to those who may come in."""
        assert isinstance(error, HTTPException), "registered for it alone"
        path, status = request.url.path[:255], error.status_code
        text = f"{path} doesn't take {request.method}" if status == 405 else f"there is no {path}; there are {KNOWN}"

        async def refuse(_request: Request, _grant: Grant) -> Response:
            body = openai_error(status, text).facts if has_openai_errors(path) else json.dumps({"error": text})
            return Response(body, status, error.headers, "application/json")

        return await self.guarded(path, refuse)(request)


def only_probes(app: ASGIApp) -> ASGIApp:
    """Return an application that answers the probes as another does, and refuses everything else."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            await app(scope, receive, send)
            return
        error = UnavailableError("every HTTP connection has a request that runs (server.limits.http_connections)")
        await _failed(error, scope["path"])(scope, receive, send)

    return answer


async def _livez(_request: Request) -> Response:
    return _text(200, "live")


def _failed(error: Exception, what: str) -> Response:
    code, details = status_of(error, what)
    answer = error_answer(code, details)
    if has_openai_errors(what):
        answer = openai_error(answer.status, details, getattr(error, "parameter", None))
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, UnauthenticatedError) else {}
    if isinstance(error, TooLargeError):  # the client still sends, and shall stop
        headers["Connection"] = "close"
    return Response(answer.facts, answer.status, headers, "application/json")


def _text(status: int, *lines: str) -> Response:
    return PlainTextResponse("".join(f"{line}\n" for line in lines), status, NOT_STORED)
