"""Inference over HTTP: requests wait and run in the same threads as those of gRPC."""

import asyncio
import dataclasses
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from serving.admission import InferencePool
from serving.logs import logged
from serving.parameters import queue_wishes
from serving.queue_terms import QueueTerms
from serving.rest_body import JSON_LENGTH, Body, read_body
from serving.rest_messages import infer_parameters
from serving.rest_tensors import OutputForms, parse_request, read_inputs, write_outputs
from serving.service import InferenceService
from serving.status import HTTP_STATUSES, status_of

INFER_RPC = "ModelInfer"
"""The RPC that a request stands for, where rights and log lines name it."""

JOINED_BYTES = 1 << 16
"""Answers up to this size are sent in one piece, larger ones tensor by tensor, without a copy."""

Result = TypeVar("Result")


class Client:
    """Who waits for an answer, with what a handler may ask of the context of a gRPC call."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._code: grpc.StatusCode | None = None
        self._lock = threading.Lock()
        self._left = False
        self._leaves: list[Callable[[], None]] = []

    def add_callback(self, leave: Callable[[], None]) -> bool:
        """Register what to call when the client leaves; return False if it has left already."""
        with self._lock:
            self._leaves.append(leave)
            return not self._left

    def leave(self) -> None:
        """Say that the client has left."""
        with self._lock:
            self._left = True
        for leave in self._leaves:
            leave()

    def peer(self) -> str:
        """Return the client's address."""
        return self._peer

    def code(self) -> grpc.StatusCode | None:
        """Return how the request failed; None if it didn't."""
        return self._code

    def set_code(self, code: grpc.StatusCode) -> None:
        """Say how the request failed."""
        self._code = code


@dataclasses.dataclass(slots=True)
class RestCall:
    """One request.

    Attributes:
        model_name: The model's.
        version: Empty for the latest.
        body: As it came.
        headers: Names in lower case, and values.
        id: Known once the body is parsed.
    """

    model_name: str
    version: str
    body: Body
    headers: Sequence[tuple[str, str]]
    id: str = ""


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
    """Return what a client gets instead of an answer, from what ``status_of`` makes of an error."""
    return Answer(HTTP_STATUSES[code], json.dumps({"error": details}).encode())


def failed_answer(error: Exception, rpc: str, client: Client) -> Answer:
    """Return what a client gets instead of an answer, and note for the log how its request failed."""
    code, details = status_of(error, rpc)
    client.set_code(code)
    return error_answer(code, details)


class RestInference:
    """Answers inference requests."""

    def __init__(self, service: InferenceService, pool: InferencePool, max_bytes: int) -> None:
        """Prepare.

        Args:
            service: What runs the models.
            pool: The threads for it.
            max_bytes: Largest body.
        """
        self._service = service
        self._pool = pool
        self._max_bytes = max_bytes
        self._infer_logged = pool.begins(logged(INFER_RPC, self._infer))
        self._refuse_logged = logged(INFER_RPC, self._refuse)

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
        call = RestCall(names["model"], names.get("version", ""), body, request.headers.items())
        client = Client(peer_of(request))
        if not self._pool.admits():
            return self._refuse_logged(call, client)  # type: ignore[no-any-return]
        work = asyncio.wrap_future(self._pool.accept(self._infer_logged, call, client))
        return await unless_gone(work, request.receive, client.leave)

    def _infer(self, call: RestCall, client: Client) -> Answer:
        try:
            return self._run(call, client)
        except Exception as error:
            return failed_answer(error, INFER_RPC, client)

    def _refuse(self, call: RestCall, client: Client) -> Answer:
        return failed_answer(self._service.refuse(call.model_name), INFER_RPC, client)

    def _run(self, call: RestCall, client: Client) -> Answer:
        memory = self._service.shared_memory
        with self._service.call(call.model_name, call.version, headers=lambda: call.headers) as run:
            text, binary = call.body.split()
            request = parse_request(text)
            call.id = request.id
            if run.trace is not None:
                run.trace.name(request.id)
            wishes = queue_wishes(infer_parameters(request.parameters))
            feeds = read_inputs(request, binary, run.signature, memory)
            forms = OutputForms.of(request, run.signature, memory)
            terms = QueueTerms(*wishes, client.add_callback, self._pool.waiting)
            tensors, arrays = run.infer(feeds, request.output_names, terms)
            outputs, raw = write_outputs(tensors, arrays, forms)
            facts: dict[str, Any] = {"model_name": call.model_name, "model_version": run.servable.version}
            if request.id:
                facts["id"] = request.id
            return Answer(200, json.dumps({**facts, "outputs": outputs}).encode(), raw)


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
