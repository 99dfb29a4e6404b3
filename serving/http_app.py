"""What the HTTP port answers: REST V2, probes, metrics and the status page.

Probes need no token, and neither does the status page, which holds nothing until it has asked for it.
"""

import functools
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from serving.loader import engine_cache
from serving.logs import logged
from serving.ops_app import CONTROL_THREADS, NOT_STORED, OpsApp, run_in
from serving.rest_body import read_body
from serving.rest_infer import INFER_RPC, Answer, Client, RestInference, failed_answer, peer_of
from serving.rest_methods import METHODS, MODEL, VERSION, RestMethod
from serving.schema import ServableConfig
from serving.served_explanation import Explanations
from serving.servicer import SPREAD_RPCS, GrpcServicer, Spread
from serving.station import Station
from serving.status_page import render_status_page, server_facts
from serving.tokens import Grant

PAGES = ("/", "/status")
"""Where the status page is."""


class HttpApp(OpsApp):
    """The routes of a server that runs models."""

    def __init__(
        self, config: ServableConfig, station: Station, notes: Callable[[], Sequence[str]], spread: Spread | None = None
    ) -> None:
        """Prepare.

        Args:
            config: What is served.
            station: What is behind all answers.
            notes: Lines for /readyz about what should be mended.
            spread: For one of several processes that answer as one: see ``GrpcServicer``.
        """
        service, pool = station.service, station.pool
        # What explains a model, or loads one, may start threads of an engine, which are to run everywhere.
        everywhere = station.cores.leave
        super().__init__(
            station.access,
            registry=station.metrics.registry,
            not_ready=service.not_ready,
            notes=notes,
            begin=everywhere,
        )
        self._service = service
        self._explain = Explanations(engine_cache(config)).page
        self._max_bytes = config.server.grpc.max_message_mb << 20
        self._inference = RestInference(service, pool, self._max_bytes)
        self._rpcs = GrpcServicer(service, pool.waiting, spread).shared_methods()
        # Where loads wait for each other, and calls wait that all processes answer.
        self._loading = ThreadPoolExecutor(1, thread_name_prefix="http-repository", initializer=everywhere)
        self._spreading = ThreadPoolExecutor(CONTROL_THREADS, thread_name_prefix="http-spread")
        pools = dict.fromkeys(SPREAD_RPCS, self._spreading) if spread is not None else {}
        self._pools = {**pools, "RepositoryModelLoad": self._loading}

    def routes(self) -> list[Route]:
        """Return the paths and what answers them."""
        explain, infer = self.guarded("ModelConfig", self._show_explanation), self.guarded(INFER_RPC, self._infer)
        return [
            *super().routes(),
            *(Route(path, show_page) for path in PAGES),
            Route("/status.json", self.guarded("/status.json", self._show_status)),
            *(Route(path.removeprefix("/v2") + "/explain", explain) for path in (MODEL, VERSION)),
            *(Route(method.path, self._method(method), methods=[method.verb]) for method in METHODS),
            *(Route(path + "/infer", infer, methods=["POST"]) for path in (MODEL, VERSION)),
        ]

    def close(self) -> None:
        """Let the threads end."""
        super().close()
        for threads in (self._loading, self._spreading):
            threads.shutdown(wait=False, cancel_futures=True)

    def _method(self, method: RestMethod) -> Callable[[Request], Awaitable[Response]]:
        rpc = self._rpcs[method.rpc]
        threads = self._pools.get(method.rpc, self.control)

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
            return await run_in(threads, lambda: answer_logged(method.request(names, body.unpacked()), client))

        return self.guarded(method.rpc, handle)

    async def _infer(self, request: Request, _grant: Grant) -> Response:
        return await self._inference.answer(request)  # type: ignore[return-value]  # an application, as responses are

    async def _show_status(self, _request: Request, grant: Grant) -> Response:
        facts = await run_in(self.control, functools.partial(server_facts, self._service, grant))
        return JSONResponse(facts, headers=NOT_STORED)

    async def _show_explanation(self, request: Request, _grant: Grant) -> Response:
        names = request.path_params
        servable = self._service.find(names["model"], names.get("version", ""))
        return HTMLResponse(await run_in(self._loading, functools.partial(self._explain, servable)), headers=NOT_STORED)


async def show_page(_request: Request) -> Response:
    """Answer with the status page."""
    return HTMLResponse(render_status_page(), headers=NOT_STORED)
