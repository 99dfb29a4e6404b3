"""The HTTP port for operators: probes, metrics, and the door that all other paths are behind.

Probes need no token.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import prometheus_client
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from serving.access import MODEL_FIELDS, Access
from serving.errors import ForbiddenError, UnauthenticatedError, UnavailableError
from serving.rest_infer import error_answer, peer_of
from serving.status import status_of
from serving.tokens import Grant

CONTROL_THREADS = 2
NOT_STORED = {"Cache-Control": "no-store"}

Result = TypeVar("Result")
Handler = Callable[[Request, Grant], Awaitable[Response]]
"""Answers a request that may come in, given what its sender may do."""


KNOWN = "/v2/..., /metrics, /livez, /readyz and the status page /"
"""The paths that there are."""


class OpsApp:
    """The routes that every HTTP port has.

    Attributes:
        control: Threads for what takes a moment.
    """

    def __init__(
        self,
        access: Access,
        *,
        registry: prometheus_client.CollectorRegistry,
        not_ready: Callable[[], Sequence[str]],
        notes: Callable[[], Sequence[str]],
        begin: Callable[[], None] | None = None,
    ) -> None:
        """Prepare.

        Args:
            access: Who may call what.
            registry: What /metrics tells.
            not_ready: Says what the server waits for, one line a reason; nothing if it is ready.
            notes: Lines for /readyz about what should be mended.
            begin: What each thread for control does first.
        """
        self.control = ThreadPoolExecutor(CONTROL_THREADS, thread_name_prefix="http-control", initializer=begin)
        self._access = access
        self._registry = registry
        self._not_ready = not_ready
        self._notes = notes

    def asgi(self) -> Starlette:
        """Return the ASGI application."""
        return Starlette(routes=self.routes(), exception_handlers={HTTPException: self._no_route})

    def routes(self) -> list[Route]:
        """Return the paths and what answers them."""
        return [
            Route("/livez", _livez),
            Route("/readyz", self._readyz),
            Route("/metrics", self.guarded("/metrics", self._show_metrics)),
        ]

    def close(self) -> None:
        """Let the threads end."""
        self.control.shutdown(wait=False, cancel_futures=True)

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
                self._access.count_refusal(error, what, peer_of(request))
                return _failed(error, what)
            except Exception as error:
                return _failed(error, what)

        return answer

    def _admit(self, what: str, request: Request) -> Grant:
        grant = self._access.authenticate(request.headers.get("authorization", ""))
        self._access.check_right(grant, what)
        if what in MODEL_FIELDS:
            self._access.check_model(grant, request.path_params.get("model", ""))
        return grant

    async def _readyz(self, _request: Request) -> Response:
        reasons = self._not_ready()
        return _text(503 if reasons else 200, *(reasons or ["ready"]), *self._notes())

    async def _show_metrics(self, request: Request, _grant: Grant) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        text = await run_in(self.control, functools.partial(encode, self._registry))
        return Response(text, headers={**NOT_STORED, "Content-Type": content_type})

    async def _no_route(self, request: Request, error: Exception) -> Response:
        """Answer a request that no route takes, also only to those who may come in."""
        assert isinstance(error, HTTPException), "registered for it alone"
        path, status = request.url.path[:255], error.status_code
        text = f"{path} doesn't take {request.method}" if status == 405 else f"there is no {path}; there are {KNOWN}"

        async def refuse(_request: Request, _grant: Grant) -> Response:
            return JSONResponse({"error": text}, status, error.headers)

        return await self.guarded(path, refuse)(request)


async def run_in(threads: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
    """Work in another thread than the event loop's."""
    return await asyncio.get_running_loop().run_in_executor(threads, work)


async def _livez(_request: Request) -> Response:
    return _text(200, "live")


def _failed(error: Exception, what: str) -> Response:
    answer = error_answer(*status_of(error, what))
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, UnauthenticatedError) else {}
    return Response(answer.facts, answer.status, headers, "application/json")


def _text(status: int, *lines: str) -> Response:
    return PlainTextResponse("".join(f"{line}\n" for line in lines), status, NOT_STORED)
