"""The routes of the HTTP port: REST V2, probes, metrics and the status page.

Probes need no token, and neither does the status page, which holds nothing until it has asked for it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from trtnode.serving.errors import InvalidRequestError, NotFoundError
from trtnode.serving.models.loader import engine_cache
from trtnode.serving.pages.served_explanation import Explanations
from trtnode.serving.pages.status_page import Facts, render_status_page, server_facts
from trtnode.serving.rest.body import read_body
from trtnode.serving.rest.inference import error_answer, infer, peer_of, unless_gone
from trtnode.serving.rest.ops import NOT_STORED, OpsApp
from trtnode.serving.rest.routes import EXPLANATIONS, INFERENCE, METHODS, STATUS, STATUS_PAGES, RestMethod
from trtnode.serving.rest.text_endpoints import (
    EMBEDDINGS,
    MODELS,
    RERANK,
    Asked,
    Embeddings,
    Rerank,
    described_model,
    infer_texts,
    model_of,
    parse,
    text_models,
)
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.security.tokens import Grant
from trtnode.serving.service.call import Call, FutureWriter
from trtnode.serving.service.host import ModelHost
from trtnode.serving.service.rpc_table import INFER_RPC, pool_of
from trtnode.serving.telemetry.prometheus import exposition

SHORT_BYTES = 1 << 14
"""JSON up to this size is read in the event loop, which takes it less time than to ask a thread."""

MOST_DIGITS = 19
"""Of the number of a slot."""


class HttpApp(OpsApp):
    """The routes of a process that runs models."""

    def __init__(
        self,
        config: ServableConfig,
        host: ModelHost,
        notes: Callable[[], Sequence[str]],
        *,
        metrics: Callable[[str], tuple[bytes, str]] | None = None,
        facts: Callable[[Grant, int], Facts] | None = None,
    ) -> None:
        """Prepare.

        Args:
            config: Of the server and its models.
            host: Answers.
            notes: Lines for /readyz about what should be mended.
            metrics: Writes those of the server, see ``exposition``; None where it is this process alone.
            facts: Returns those of the status page, as ``server_facts`` does; None where this process is the server.
        """
        service, pools = host.service, host.pools
        write = metrics or (lambda accept: exposition(host.metrics.registry, accept))
        super().__init__(
            host.authorizer,
            metrics=lambda accept: asyncio.wrap_future(pools.control.call(functools.partial(write, accept))),
            not_ready=service.not_ready,
            notes=lambda: [*service.models_building(), *notes()],
        )
        self._facts = facts or functools.partial(server_facts, service)
        self._service = service
        self._rpcs = host.rpcs
        self._pools = pools
        self._explain = Explanations(engine_cache(config), config.server.custom_op_libraries).page
        self._max_bytes = config.server.grpc.max_message_mb << 20

    def routes(self) -> list[Route]:
        """Return the paths and what answers them."""
        explain = self.guarded("ModelConfig", self._show_explanation)
        inference = self.guarded(INFER_RPC, self._infer)
        return [
            *super().routes(),
            *(Route(path, show_page) for path in STATUS_PAGES),
            Route(STATUS, self.guarded(STATUS, self._show_status)),
            *(Route(path, explain) for path in EXPLANATIONS),
            *(Route(method.path, self._method(method), methods=[method.verb]) for method in METHODS),
            *(Route(path, inference, methods=["POST"]) for path in INFERENCE),
            Route(EMBEDDINGS, self.guarded(EMBEDDINGS, self._embed), methods=["POST"]),
            *(Route(path, self.guarded(path, self._rerank), methods=["POST"]) for path in RERANK),
            *(Route(path, self.guarded(MODELS, self._list_models)) for path in (MODELS, MODELS + "/{model}")),
        ]

    def _method(self, method: RestMethod) -> Callable[[Request], Awaitable[Response]]:
        rpc = self._rpcs.shared_methods[method.rpc]
        pool = pool_of(method.rpc, self._pools, is_broadcast=self._rpcs.is_broadcast)

        def respond(message: Any, grant: Grant) -> Response:
            status, facts = method.write(rpc(message, grant))
            return JSONResponse(facts, status)

        def work(message: Any, grant: Grant, call: Call, writer: FutureWriter) -> Any:
            self._authorizer.check_request(grant, method.rpc, message)
            call.answer_rpc(method.rpc, message, lambda: respond(message, grant))
            return writer.answer.result()

        async def handle(request: Request, grant: Grant) -> Response:
            body = await read_body(request, self._max_bytes)
            names, writer = request.path_params, FutureWriter(error_answer)
            call = Call(writer, peer_of(request))
            answered = pool.call(lambda: work(method.read(names, body.unpacked()), grant, call, writer))
            return await unless_gone(asyncio.wrap_future(answered), request.receive, call.leave)

        return self.guarded(method.rpc, handle)

    async def _infer(self, request: Request, grant: Grant) -> Response:
        answer: Any = await infer(self._service, self._max_bytes, request, grant)  # an application, as responses are
        return answer  # type: ignore[no-any-return]

    async def _embed(self, request: Request, grant: Grant) -> Response:
        return await self._answer_texts(Embeddings, request, grant)

    async def _rerank(self, request: Request, grant: Grant) -> Response:
        return await self._answer_texts(Rerank, request, grant)

    async def _answer_texts(self, kind: type[Asked], request: Request, grant: Grant) -> Response:
        body = await read_body(request, self._max_bytes)
        parsing = functools.partial(parse, kind, body)
        is_short = not body.packed and sum(map(len, body.chunks)) <= SHORT_BYTES
        asked = parsing() if is_short else await asyncio.wrap_future(self._pools.control.call(parsing))
        name = model_of(self._service, asked, grant)
        self._authorizer.check_model(grant, name)
        answer: Any = await infer_texts(self._service, name, asked, request, grant)  # an application, as responses are
        return answer  # type: ignore[no-any-return]

    async def _list_models(self, request: Request, grant: Grant) -> Response:
        names = [name for name, _ in text_models(self._service, grant)]
        name = request.path_params.get("model")
        if name is None:
            return JSONResponse({"object": "list", "data": [described_model(one) for one in names]})
        if name not in names:
            raise NotFoundError(f"there is no model of texts {name[:255]!r}; there are {', '.join(names) or 'none'}")
        return JSONResponse(described_model(name))

    async def _show_status(self, request: Request, grant: Grant) -> Response:
        since = request.query_params.get("since", "0")
        if not (since.isdecimal() and len(since) < MOST_DIGITS):
            raise InvalidRequestError(f"since={since[:MOST_DIGITS]} is no slot; take a slot's number, or leave it out")
        facts = await asyncio.wrap_future(self._pools.control.call(functools.partial(self._facts, grant, int(since))))
        return JSONResponse(facts, headers=NOT_STORED)

    async def _show_explanation(self, request: Request, _grant: Grant) -> Response:
        names = request.path_params
        servable = self._service.find(names["model"], names.get("version", ""))
        page = await asyncio.wrap_future(self._pools.loading.call(functools.partial(self._explain, servable)))
        return HTMLResponse(page, headers=NOT_STORED)


async def show_page(_request: Request) -> Response:
    """Answer with the status page."""
    return HTMLResponse(render_status_page(), headers=NOT_STORED)
