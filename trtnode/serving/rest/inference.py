"""Inference over HTTP: requests wait and run in the same threads as those of gRPC."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc
import numpy as np
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from trtnode.serving.protocol.classification import classified
from trtnode.serving.protocol.parameters import (
    NO_SEQUENCE,
    SEQUENCE_KEYS,
    SequenceMark,
    queue_options,
    take_sequence,
)
from trtnode.serving.protocol.request_cache import ParsedRequest, RequestCache
from trtnode.serving.protocol.shared_memory import SharedMemory
from trtnode.serving.protocol.wire_signature import WireSignature
from trtnode.serving.rest.body import JSON_LENGTH, Body, read_body
from trtnode.serving.rest.json_messages import infer_parameters
from trtnode.serving.rest.tensors import (
    OutputFormats,
    RestRequest,
    parse_request,
    raw_request,
    read_inputs,
    write_outputs,
)
from trtnode.serving.security.tokens import Grant
from trtnode.serving.service.call import Call, FutureWriter
from trtnode.serving.service.inference import Inference
from trtnode.serving.service.inference_service import InferenceService
from trtnode.serving.service.status import HTTP_STATUSES

JOINED_BYTES = 1 << 16
"""Answers up to this size are sent in one piece, larger ones tensor by tensor, without a copy."""

Result = TypeVar("Result")


class RestInference(Inference):
    """An inference request and its response as HTTP bodies; see ``Inference``."""

    __slots__ = ("_body", "_formats", "_parsed")

    is_parsed = False

    def __init__(self, call: Call, model_name: str, model_version: str, body: Body) -> None:
        super().__init__(call, model_name, model_version)
        self._body = body
        self._formats: OutputFormats
        self._parsed: RestRequest | None = None

    def sequence_mark(self, signature: Callable[[], WireSignature]) -> SequenceMark:
        """Take what the request says of its sequence out of it."""
        text, binary = self._body.split()
        if binary and not text:
            return NO_SEQUENCE
        self._parsed = parse_request(text, signature())
        self.id = self._parsed.id or ""
        parameters = self._parsed.parameters or {}
        mark = take_sequence(infer_parameters(parameters))
        self._parsed.parameters = {key: value for key, value in parameters.items() if key not in SEQUENCE_KEYS}
        return mark

    def read(self, cache: RequestCache, memory: SharedMemory) -> ParsedRequest:
        """Return the request as arrays that fit the model."""
        text, binary = self._body.split()
        if self._parsed is not None:
            request = self._parsed
        elif text or not binary:
            request = parse_request(text, cache.signature)
        else:
            request, binary = raw_request(binary, cache.signature, is_batched=cache.is_batched)
        self.id = request.id or ""
        priority, timeout_us = queue_options(infer_parameters(request.parameters))
        feeds = read_inputs(request, binary, cache.signature, memory)
        outputs = cache.signature.select(request.output_names)
        self._formats = formats = OutputFormats.of(request, outputs, memory)
        return ParsedRequest(feeds, outputs, formats.windows, priority, timeout_us, formats.classes)

    def write(self, cache: RequestCache, request: ParsedRequest, arrays: Sequence[np.ndarray]) -> Answer:
        """Return the response."""
        given, arrays = classified(request.outputs, arrays, request.classes, is_batched=cache.is_batched)
        outputs, raw = write_outputs(given, arrays, self._formats)
        facts: dict[str, Any] = {"model_name": self.model_name, "model_version": cache.version}
        if self.id:
            facts["id"] = self.id
        if cache.parameters:
            facts["parameters"] = cache.parameters
        return Answer(200, json.dumps({**facts, "outputs": outputs}).encode(), raw)


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


async def infer(service: InferenceService, max_bytes: int, request: Request, grant: Grant) -> Answer:
    """Return the answer to an inference request; what goes wrong stands in it.

    Args:
        service: Runs the models.
        max_bytes: Largest body.
        request: The request.
        grant: The rights of its caller.

    Raises:
        InvalidRequestError: The body doesn't come as its headers say.
        TooLargeError: It is too large.
        UnsupportedError: It is compressed in a way that this server doesn't know.
        ClientDisconnect: The client left before its request was there, or before its answer.
    """
    body = await read_body(request, max_bytes)
    names = request.path_params
    writer = FutureWriter(error_answer)
    call = Call(writer, peer_of(request), request.headers.items())
    call.grant = grant
    service.accept(RestInference(call, names["model"], names.get("version", ""), body))
    return await unless_gone(asyncio.wrap_future(writer.answer), request.receive, call.leave)


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
