"""Inference over HTTP: requests wait and run in the same threads as those of gRPC."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn, TypeVar

import grpc
import numpy as np
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from serving.protocol.classification import classified
from serving.protocol.parameters import queue_wishes
from serving.protocol.request_cache import ParsedRequest, RequestCache
from serving.protocol.shared_memory import SharedMemory
from serving.rest.body import JSON_LENGTH, Body, read_body
from serving.rest.json_messages import infer_parameters
from serving.rest.tensors import OutputFormats, parse_request, read_inputs, write_outputs
from serving.service.inference_service import InferenceService
from serving.service.request_context import RequestContext
from serving.service.rpc_handler import answer_inference, rpc_handler
from serving.service.rpc_table import INFER_RPC
from serving.service.status import HTTP_STATUSES
from serving.threads.request_pool import RequestPool

JOINED_BYTES = 1 << 16
"""Answers up to this size are sent in one piece, larger ones tensor by tensor, without a copy."""

Result = TypeVar("Result")


class RestExchange:
    """An inference request and its response as HTTP bodies; see ``Exchange``.

    Attributes:
        answer: The response, once it is written.
    """

    __slots__ = ("_body", "_formats", "answer", "id", "model_name", "model_version", "size")

    def __init__(self, model_name: str, model_version: str, body: Body) -> None:
        self.model_name = model_name
        self.model_version = model_version
        self.id = ""
        self.size = 0
        self.answer: Answer | None = None
        self._body = body
        self._formats: OutputFormats | None = None

    def read(self, cache: RequestCache, memory: SharedMemory) -> ParsedRequest:
        """Return the request as arrays that fit the model."""
        text, binary = self._body.split()
        request = parse_request(text)
        self.id = request.id
        priority, timeout_us = queue_wishes(infer_parameters(request.parameters))
        feeds = read_inputs(request, binary, cache.signature, memory)
        outputs = cache.signature.select(request.output_names)
        self._formats = formats = OutputFormats.of(request, outputs, memory)
        return ParsedRequest(feeds, outputs, formats.windows, priority, timeout_us, formats.classes)

    def write(self, cache: RequestCache, request: ParsedRequest, arrays: Sequence[np.ndarray]) -> None:
        """Make the answer."""
        assert self._formats is not None, "a request is read before its response is written"
        given, arrays = classified(request.outputs, arrays, request.classes, is_batched=cache.is_batched)
        outputs, raw = write_outputs(given, arrays, self._formats)
        facts: dict[str, Any] = {"model_name": self.model_name, "model_version": cache.version}
        if self.id:
            facts["id"] = self.id
        if request.variant:
            facts["parameters"] = request.response_parameters()
        self.answer = Answer(200, json.dumps({**facts, "outputs": outputs}).encode(), raw)


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A response of JSON and the tensors behind it. Also the ASGI application that sends it."""

    status: int
    facts: bytes
    tensors: Sequence[memoryview] = ()

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send it."""
        size = len(self.facts) + sum(map(len, self.tensors))
        headers = [(b"content-length", b"%d" % size)]
        if self.tensors:
            headers += [(b"content-type", b"application/octet-stream"), (JSON_LENGTH.encode(), b"%d" % len(self.facts))]
        else:
            headers.append((b"content-type", b"application/json"))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        parts = [self.facts, *self.tensors] if size > JOINED_BYTES else [b"".join((self.facts, *self.tensors))]
        for index, part in enumerate(parts):
            await send({"type": "http.response.body", "body": part, "more_body": index + 1 < len(parts)})


def error_answer(code: grpc.StatusCode, details: str) -> Answer:
    """Return the answer that tells a client of an error, of which ``status_of`` made a code and details."""
    return Answer(HTTP_STATUSES[code], json.dumps({"error": details}).encode())


def fail(code: grpc.StatusCode, details: str, _request: Any, context: RequestContext) -> Answer:
    """Return the answer that tells a client of an error; the log gets its code from the context."""
    context.set_code(code)
    return error_answer(code, details)


class RestInference:
    """Answers inference requests."""

    def __init__(self, service: InferenceService, pool: RequestPool, max_bytes: int) -> None:
        """Prepare.

        Args:
            service: Runs the models.
            pool: The threads for it.
            max_bytes: Largest body.
        """
        self._service = service
        self._pool = pool
        self._max_bytes = max_bytes
        self._refusal_handler = rpc_handler(INFER_RPC, self._refuse, fail)

    async def answer(self, request: Request) -> Answer:
        """Return the answer to a request; what goes wrong stands in it.

        Raises:
            InvalidRequestError: The body doesn't come as its headers say.
            TooLargeError: It is too large.
            UnsupportedError: It is compressed in a way that this server doesn't know.
            ClientDisconnect: The client left before its request was there, or before its answer.
        """
        body = await read_body(request, self._max_bytes)
        names = request.path_params
        exchange = RestExchange(names["model"], names.get("version", ""), body)
        context = RequestContext(peer_of(request), request.headers.items())
        answer: Future[Answer] = Future()
        if self._pool.admits():
            self._pool.enter()
            self._pool.run(functools.partial(self._begin, exchange, context, answer))
        else:
            answer.set_result(self._refusal_handler(exchange, context))
        return await unless_gone(asyncio.wrap_future(answer), request.receive, context.leave)

    def _begin(self, exchange: RestExchange, context: RequestContext, answer: Future[Answer]) -> None:
        def end(result: Answer) -> None:
            if answer.set_running_or_notify_cancel():
                answer.set_result(result)
            self._pool.leave()

        def reply() -> None:
            assert exchange.answer is not None, "the service has written it"
            end(exchange.answer)

        def tell(code: grpc.StatusCode, details: str) -> None:
            end(fail(code, details, exchange, context))

        answer_inference(self._service, INFER_RPC, exchange, context, reply, tell)

    def _refuse(self, exchange: RestExchange, _context: RequestContext) -> NoReturn:
        raise self._service.refuse(exchange.model_name)


def peer_of(request: Request) -> str:
    """Return a client's address."""
    return f"{request.client.host}:{request.client.port}" if request.client else "unknown"


async def unless_gone(work: asyncio.Future[Result], receive: Receive, leave: Callable[[], Any]) -> Result:
    """Wait for an answer. If the client leaves first, call ``leave``, and wait no longer.

    Raises:
        ClientDisconnect: The client has left.
    """
    gone = asyncio.ensure_future(_disconnection(receive))
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            leave()
            raise ClientDisconnect
        return work.result()
    finally:
        gone.cancel()


async def _disconnection(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
