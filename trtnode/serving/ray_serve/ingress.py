"""The ingress of a cluster: it takes every call from Ray's proxies and finds the model by its name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from trtnode.protos import ModelInferRequest
from trtnode.serving.errors import ServingError, TooLargeError, UnavailableError
from trtnode.serving.grpc.rpc import parser_of
from trtnode.serving.grpc.streams import MAX_PENDING, streamed, streamed_error
from trtnode.serving.ray_serve.cluster import Cluster, read_request
from trtnode.serving.ray_serve.http_app import ClusterHttpApp, response_of
from trtnode.serving.ray_serve.messages import Caller, Failure, HttpRequest, Reply, ask
from trtnode.serving.ray_serve.replica import write_logs
from trtnode.serving.ray_serve.state import FRESH_S, ClusterState
from trtnode.serving.rest.ops import PROBES
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.security.authorization import READING_TOO, Authorizer
from trtnode.serving.security.tokens import Tokens
from trtnode.serving.service.rpc_table import INFER_RPC, SERVICE_NAME, STREAM_RPC, UNARY_RPCS
from trtnode.serving.service.status import status_of
from trtnode.serving.telemetry.metrics import Metrics


class Message:
    """A message that is written already, as Ray takes the responses of RPCs."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def SerializeToString(self) -> bytes:  # noqa: N802  # protobuf's name for it
        """Return its bytes."""
        return self._content


class StreamEndedError(ServingError):
    """A stream ends with the status that its context has."""


class Ingress:
    """The deployment that Ray's proxies call. It also has a method for each RPC, of that name."""

    def __init__(self, config: ServableConfig, replicas: Mapping[str, Any], run: str) -> None:
        """Read the tokens.

        Args:
            config: What is served.
            replicas: The deployment handle of each model, by its name.
            run: Names who deployed it.

        Raises:
            ConfigError: The tokens file can't be used.
        """
        write_logs(config)
        self._run = run
        server, metrics = config.server, Metrics()
        self._max_bytes = server.grpc.max_message_mb << 20
        self._streams, self._most_streams = 0, server.limits.streams
        tokens = Tokens(server.auth.tokens_file) if server.auth else None
        self._authorizer = Authorizer(server.admin, tokens, metrics)
        context = serve.get_replica_context()
        self._state = ClusterState(context.app_name, config.models)
        self._cluster = Cluster(replicas, self._state, server.name)
        name = context.replica_id.unique_id
        http = ClusterHttpApp(server, self._cluster, self._authorizer, name=name, registry=lambda: metrics.registry)
        self._http = http.asgi()

    async def __call__(self, request: Request) -> Response:
        """Answer a request of the HTTP port."""
        if request.url.path in PROBES:
            await self._state.refresh()
        return response_of(await ask(self._http, HttpRequest.of(request.scope, await request.body())))

    async def answer(self, rpc: str, message: bytes, caller: Caller) -> Reply:
        """Answer a unary RPC, if its caller may use it."""
        try:
            self._admit(rpc, message, caller)
        except ServingError as error:
            return _failure(error, rpc)
        return await self._cluster.answer(rpc, message, caller)

    async def deployed_by(self) -> str:
        """Return the name of who deployed the application."""
        return self._run

    async def ModelStreamInfer(  # noqa: N802  # the name of the RPC
        self, requests: AsyncIterator[bytes], grpc_context: Any
    ) -> AsyncIterator[Message]:
        """Answer each request of a stream when it is finished."""
        if self._streams >= self._most_streams:
            most = f"{self._most_streams} streams are open, the most (server.limits.streams); close one, or try later"
            refusal = _failure(UnavailableError(most), STREAM_RPC)
            _fail(grpc_context, refusal)
            raise StreamEndedError(refusal.details)
        caller = _caller(grpc_context)
        strict = ("triton_grpc_error", "true") in caller.metadata
        answers: asyncio.Queue[tuple[bytes, Reply] | None] = asyncio.Queue()
        room = asyncio.Semaphore(MAX_PENDING)
        reading = asyncio.create_task(self._read(requests, caller, answers, room))
        self._streams += 1
        try:
            while (answered := await answers.get()) is not None:
                message, reply = answered
                if not isinstance(reply, Failure):
                    yield Message(streamed(reply))
                elif strict:
                    _fail(grpc_context, reply)
                    raise StreamEndedError(reply.details)
                else:
                    yield Message(streamed_error(_parse(message), reply.details))
                room.release()
        finally:
            self._streams -= 1
            reading.cancel()

    async def Check(self, message: bytes, grpc_context: Any) -> Message:  # noqa: N802  # the name of the RPC
        """Answer a health check, which needs no token."""
        service = HealthCheckRequest.FromString(message).service
        if service not in ("", SERVICE_NAME):
            _fail(grpc_context, Failure("NOT_FOUND", f"there is no service {service[:200]!r} here"))
            return Message(b"")
        return Message(await self._health())

    async def Watch(self, message: bytes, grpc_context: Any) -> AsyncIterator[Message]:  # noqa: ARG002, N802
        """Tell a watcher the status of a service, and each change of it."""
        known = HealthCheckRequest.FromString(message).service in ("", SERVICE_NAME)
        sent = b""
        while True:
            status = await self._health() if known else _status("SERVICE_UNKNOWN")
            if status != sent:
                yield Message(status)
                sent = status
            await asyncio.sleep(FRESH_S)

    async def _health(self) -> bytes:
        return _status("NOT_SERVING" if await self._state.not_ready() else "SERVING")

    async def _read(
        self,
        requests: AsyncIterator[bytes],
        caller: Caller,
        answers: asyncio.Queue[tuple[bytes, Reply] | None],
        room: asyncio.Semaphore,
    ) -> None:
        async def answer_one(message: bytes) -> None:
            reply = await self.answer(INFER_RPC, message, caller)
            answers.put_nowait((message, reply))

        try:
            async with asyncio.TaskGroup() as unanswered:
                async for message in requests:
                    await room.acquire()
                    unanswered.create_task(answer_one(message))
        finally:
            answers.put_nowait(None)

    def _admit(self, rpc: str, message: bytes, caller: Caller) -> None:
        if len(message) > self._max_bytes:
            raise TooLargeError(self._max_bytes)
        try:
            grant = self._authorizer.authenticate(caller.header("authorization"))
            self._authorizer.check_right(grant, rpc)
            if "*" not in grant.models or rpc in READING_TOO:
                self._authorizer.check_request(grant, rpc, read_request(rpc, message))
        except ServingError as error:
            self._authorizer.count_refusal(error, rpc, caller.peer)
            raise


def _unary(rpc: str) -> Callable[[Ingress, bytes, Any], Awaitable[Message]]:
    async def method(self: Ingress, message: bytes, grpc_context: Any) -> Message:
        reply = await self.answer(rpc, message, _caller(grpc_context))
        if isinstance(reply, Failure):
            _fail(grpc_context, reply)
            return Message(b"")
        return Message(reply)

    return method


for _rpc in UNARY_RPCS:
    setattr(Ingress, _rpc, _unary(_rpc))


_parse = parser_of(ModelInferRequest, instead=ModelInferRequest())


def _caller(context: Any) -> Caller:
    return Caller(context.peer(), tuple(context.invocation_metadata()))


def _failure(error: ServingError, rpc: str) -> Failure:
    code, details = status_of(error, rpc)
    return Failure(code.name, details)


def _fail(context: Any, failure: Failure) -> None:
    context.set_code(grpc.StatusCode[failure.code])
    context.set_details(failure.details)


def _status(name: str) -> bytes:
    return bytes(HealthCheckResponse(status=name).SerializeToString())
