"""What the HTTP port answers: REST V2, probes, metrics and the status page.

Probes need no token, and neither does the status page, which holds nothing until it has asked for it.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from serving.access import MODEL_FIELDS, Access
from serving.admission import InferencePool
from serving.errors import ForbiddenError, UnauthenticatedError, UnavailableError
from serving.logs import logged
from serving.metrics import Metrics
from serving.rest_body import read_body
from serving.rest_infer import INFER_RPC, Answer, Client, RestInference, error_answer, failed_answer, peer_of
from serving.rest_methods import METHODS, MODEL, VERSION, RestMethod
from serving.servable import Servable
from serving.service import InferenceService
from serving.servicer import GrpcServicer
from serving.status import status_of
from serving.status_page import render_status_page, server_facts
from serving.tokens import Grant

CONTROL_THREADS = 2
NOT_STORED = {"Cache-Control": "no-store"}

Result = TypeVar("Result")
Handler = Callable[[Request, Grant], Awaitable[Response]]
"""Answers a request that may come in, given what its sender may do."""


class HttpApp:
    """The routes, and what they share."""

    def __init__(
        self,
        service: InferenceService,
        access: Access,
        pool: InferencePool,
        *,
        metrics: Metrics,
        max_bytes: int,
        notes: Callable[[], Sequence[str]],
        explain: Callable[[Servable], str],
    ) -> None:
        """Prepare.

        Args:
            service: What is behind all answers.
            access: Who may call what.
            pool: The threads that run models.
            metrics: What /metrics tells.
            max_bytes: Largest body of a request.
            notes: Lines for /readyz about what should be mended.
            explain: Draws where the nodes of a model version run.
        """
        self._service = service
        self._access = access
        self._metrics = metrics
        self._notes = notes
        self._explain = explain
        self._max_bytes = max_bytes
        self._inference = RestInference(service, pool, max_bytes)
        self._rpcs = GrpcServicer(service, pool.waiting).methods()
        self._control = ThreadPoolExecutor(CONTROL_THREADS, thread_name_prefix="http-control")
        self._loading = ThreadPoolExecutor(1, thread_name_prefix="http-repository")  # where loads wait for each other

    def asgi(self) -> Starlette:
        """Return the ASGI application."""
        open_to_all = {"/": _page, "/status": _page, "/livez": _livez, "/readyz": self._readyz}
        routes = [Route(path, handler) for path, handler in open_to_all.items()]
        routes.append(Route("/metrics", self._guarded("/metrics", self._show_metrics)))
        routes.append(Route("/status.json", self._guarded("/status.json", self._show_status)))
        explain = self._guarded("ModelConfig", self._show_explanation)
        routes += [Route(path.removeprefix("/v2") + "/explain", explain) for path in (MODEL, VERSION)]
        routes += [Route(method.path, self._method(method), methods=[method.verb]) for method in METHODS]
        infer = self._guarded(INFER_RPC, self._infer)
        routes += [Route(path + "/infer", infer, methods=["POST"]) for path in (MODEL, VERSION)]
        return Starlette(routes=routes, exception_handlers={HTTPException: self._no_route})

    def close(self) -> None:
        """Let the threads end."""
        for pool in (self._control, self._loading):
            pool.shutdown(wait=False, cancel_futures=True)

    def _guarded(self, what: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
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

    def _method(self, method: RestMethod) -> Callable[[Request], Awaitable[Response]]:
        rpc = self._rpcs[method.rpc]
        threads = self._loading if method.rpc == "RepositoryModelLoad" else self._control

        def answer(message: Any, client: Client) -> Response | Answer:
            try:
                status, facts = method.answer(rpc(message))
            except Exception as error:
                return failed_answer(error, method.rpc, client)
            return JSONResponse(facts, status)

        answer_logged = logged(method.rpc, answer)

        async def handle(request: Request, _grant: Grant) -> Response:
            body = await read_body(request, self._max_bytes)
            names, client = request.path_params, Client(peer_of(request))
            return await _in(threads, lambda: answer_logged(method.request(names, body.unpacked()), client))

        return self._guarded(method.rpc, handle)

    async def _infer(self, request: Request, _grant: Grant) -> Response:
        return await self._inference.answer(request)  # type: ignore[return-value]  # an application, as responses are

    async def _readyz(self, _request: Request) -> Response:
        reasons = self._service.not_ready()
        return _text(503 if reasons else 200, *(reasons or ["ready"]), *self._notes())

    async def _show_metrics(self, request: Request, _grant: Grant) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        text = await _in(self._control, functools.partial(encode, self._metrics.registry))
        return Response(text, headers={**NOT_STORED, "Content-Type": content_type})

    async def _show_status(self, _request: Request, grant: Grant) -> Response:
        facts = await _in(self._control, functools.partial(server_facts, self._service, grant))
        return JSONResponse(facts, headers=NOT_STORED)

    async def _no_route(self, request: Request, error: Exception) -> Response:
        """Answer a request that no route takes, also only to those who may come in."""
        assert isinstance(error, HTTPException), "registered for it alone"
        path, status = request.url.path[:255], error.status_code
        known = "/v2/..., /metrics, /livez, /readyz and the status page /"
        text = f"{path} doesn't take {request.method}" if status == 405 else f"there is no {path}; there are {known}"

        async def refuse(_request: Request, _grant: Grant) -> Response:
            return JSONResponse({"error": text}, status, error.headers)

        return await self._guarded(path, refuse)(request)

    async def _show_explanation(self, request: Request, _grant: Grant) -> Response:
        names = request.path_params
        servable = self._service.find(names["model"], names.get("version", ""))
        return HTMLResponse(await _in(self._loading, functools.partial(self._explain, servable)), headers=NOT_STORED)


async def _in(threads: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(threads, work)


async def _livez(_request: Request) -> Response:
    return _text(200, "live")


async def _page(_request: Request) -> Response:
    return HTMLResponse(render_status_page(), headers=NOT_STORED)


def _failed(error: Exception, what: str) -> Response:
    answer = error_answer(*status_of(error, what))
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, UnauthenticatedError) else {}
    return Response(answer.facts, answer.status, headers, "application/json")


def _text(status: int, *lines: str) -> Response:
    return PlainTextResponse("".join(f"{line}\n" for line in lines), status, NOT_STORED)
