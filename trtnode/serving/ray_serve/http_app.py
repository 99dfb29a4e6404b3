"""The routes of the HTTP port of a cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import grpc
import prometheus_client
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trtnode.serving.ray_serve.cluster import Cluster
from trtnode.serving.ray_serve.messages import Caller, Failure, HttpAnswer, HttpRequest
from trtnode.serving.ray_serve.metrics import labelled, registry_of
from trtnode.serving.rest.body import read_body
from trtnode.serving.rest.inference import peer_of
from trtnode.serving.rest.ops import OpsApp
from trtnode.serving.rest.routes import EXPLANATIONS, INFERENCE, METHODS, RestMethod
from trtnode.serving.schema.server import ServerConfig
from trtnode.serving.security.authorization import Authorizer
from trtnode.serving.security.tokens import Grant
from trtnode.serving.service.rpc_table import INFER_RPC, messages_of
from trtnode.serving.service.status import HTTP_STATUSES
from trtnode.serving.telemetry.prometheus import exposition


class ClusterHttpApp(OpsApp):
    """The routes of a server whose models run in replicas of Ray's."""

    def __init__(
        self,
        config: ServerConfig,
        cluster: Cluster,
        authorizer: Authorizer,
        *,
        name: str,
        registry: Callable[[], prometheus_client.CollectorRegistry],
    ) -> None:
        """Prepare.

        Args:
            config: Of the server.
            cluster: Answers.
            authorizer: Decides about calls.
            name: Of this ingress.
            registry: Returns that of the metrics of this process.
        """
        super().__init__(authorizer, metrics=self._exposed, not_ready=lambda: cluster.state.reasons, notes=list)
        self._registry = registry
        self._cluster = cluster
        self._name = name
        self._max_bytes = config.grpc.max_message_mb << 20

    def routes(self) -> list[Route]:
        """Return the paths and what answers them."""
        infer, explain = self.guarded(INFER_RPC, self._relay), self.guarded("ModelConfig", self._relay)
        return [
            *super().routes(),
            *(Route(path, explain) for path in EXPLANATIONS),
            *(Route(method.path, self._method(method), methods=[method.verb]) for method in METHODS),
            *(Route(path, infer, methods=["POST"]) for path in INFERENCE),
        ]

    def _method(self, method: RestMethod) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request, _grant: Grant) -> Response:
            body = await read_body(request, self._max_bytes)
            message = method.read(request.path_params, body.unpacked()).SerializeToString()
            reply = await self._cluster.answer(method.rpc, message, Caller(peer_of(request), ()))
            if isinstance(reply, Failure):
                return JSONResponse({"error": reply.details}, HTTP_STATUSES[grpc.StatusCode[reply.code]])
            status, facts = method.write(messages_of(method.rpc)[1].FromString(reply))
            return JSONResponse(facts, status)

        return self.guarded(method.rpc, handle)

    async def _exposed(self, accept: str) -> tuple[bytes, str]:
        own = labelled(self._registry().collect(), self._name)
        return exposition(registry_of([*await self._cluster.metrics(), own]), accept)

    async def _relay(self, request: Request, _grant: Grant) -> Response:
        body = await read_body(request, self._max_bytes)
        whole = HttpRequest.of(request.scope, b"".join(body.chunks))
        return response_of(await self._cluster.answer_http(request.path_params["model"], whole))


def response_of(answer: HttpAnswer) -> Response:
    """Return the answer of an application as a response."""
    response = Response(answer.body, answer.status)
    response.raw_headers = list(answer.headers)
    return response
