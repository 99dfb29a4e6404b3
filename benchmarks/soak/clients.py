"""Kinds of clients. Each does its kind of thing once and tells what came of it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import random
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import grpc

import protos
from benchmarks.load.target import INFER_METHOD, SERVICE, call
from benchmarks.soak.mutations import Mutator
from benchmarks.soak.outcomes import Outcome, outcome_of
from benchmarks.soak.questions import Question, ServedModel, as_array
from protos import ModelInferRequest, ModelInferResponse, ModelStreamInferResponse

ANSWER_S = 60.0
"""Whatever takes longer counts as lost."""

STREAMED = 20
"""Requests of one stream."""

_CODES = grpc.StatusCode
STREAM_METHOD = f"/{SERVICE}/ModelStreamInfer"
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
"""Without it all channels of a process share one connection."""

_INSPECTIONS: tuple[Any, ...] = (
    protos.ServerLiveRequest(),
    protos.ServerReadyRequest(),
    protos.ServerMetadataRequest(),
    protos.RepositoryIndexRequest(),
    protos.SystemSharedMemoryStatusRequest(),
    protos.ModelStatisticsRequest(),
)


def _rename(request: ModelInferRequest) -> None:
    request.model_name = "nobody"


def _reshape(request: ModelInferRequest) -> None:
    request.inputs[0].shape[:] = [3, 16, 1]


def _shorten(request: ModelInferRequest) -> None:
    request.raw_input_contents[0] = request.raw_input_contents[0][1:]


def _ask_for_more(request: ModelInferRequest) -> None:
    request.outputs.add(name="nothing")


def _overfill(request: ModelInferRequest) -> None:
    request.inputs[0].shape[0] = 9
    request.raw_input_contents[0] = bytes(9 * 16 * 4)


_MISTAKES: tuple[tuple[Callable[[ModelInferRequest], None], grpc.StatusCode], ...] = (
    (_rename, _CODES.NOT_FOUND),
    (_reshape, _CODES.INVALID_ARGUMENT),
    (_shorten, _CODES.INVALID_ARGUMENT),
    (_ask_for_more, _CODES.INVALID_ARGUMENT),
    (_overfill, _CODES.INVALID_ARGUMENT),
)
"""What clients get wrong in a request to the batched model, and the status that tells them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """What a client has to work with.

    Attributes:
        address: Of the server.
        http: URL of its HTTP port.
        channel: To the server; each client has its own.
        folder: Where the models' files are.
        models: What is served.
        questions: Requests with their right answers.
        rng: For its choices.
        mutator: Makes requests that no client should send.
        numbers: Which of them to send next; ends when enough are sent.
    """

    address: str
    http: str
    channel: grpc.Channel
    folder: pathlib.Path
    models: Sequence[ServedModel]
    questions: Sequence[Question]
    rng: random.Random
    mutator: Mutator
    numbers: Iterator[int]


Client = Callable[[Site], Iterator[Outcome]]


def ask(site: Site) -> Iterator[Outcome]:
    """Send one request and compare the answer."""
    yield _asked(site, ANSWER_S, _CODES.OK)


def give_up(site: Site) -> Iterator[Outcome]:
    """Send a request with a deadline that may pass at any stage."""
    yield _asked(site, site.rng.uniform(0.0001, 0.01), _CODES.OK, _CODES.DEADLINE_EXCEEDED)


def cancel(site: Site) -> Iterator[Outcome]:
    """Cancel a request at any stage."""
    future = _infer(site).future(site.rng.choice(site.questions).request, timeout=ANSWER_S)
    time.sleep(site.rng.uniform(0, 0.005))
    future.cancel()
    yield outcome_of(future.code(), future.details() or "", _CODES.OK, _CODES.CANCELLED)


def stream(site: Site) -> Iterator[Outcome]:
    """Send many requests on one stream; read slowly at times. Each must be answered, once and right."""
    questions = {str(number): site.rng.choice(site.questions) for number in range(STREAMED)}
    slow = site.rng.random() < 0.1
    requests = [_with_id(one, name) for name, one in questions.items()]
    answers = _stream(site)(iter(requests), timeout=ANSWER_S)
    try:
        for answer in answers:
            question = questions.pop(answer.infer_response.id, None)
            yield _streamed(answer, question)
            time.sleep(0.02 if slow else 0)
    except grpc.RpcError as error:
        for _ in questions:
            yield outcome_of(error.code(), error.details(), _CODES.OK)
        return
    for _ in questions:
        yield Outcome("lost", "the stream ended well without an answer to the request")


def vanish(site: Site) -> Iterator[Outcome]:
    """Open a stream, send, and break the connection without reading all."""
    with grpc.insecure_channel(site.address, options=OWN_CONNECTION) as channel:
        requests = (site.rng.choice(site.questions).request for _ in range(STREAMED))
        answers = _stream(dataclasses.replace(site, channel=channel))(requests, timeout=ANSWER_S)
        with contextlib.suppress(grpc.RpcError):
            next(answers, None)
    yield Outcome("left")


def share_memory(site: Site) -> Iterator[Outcome]:
    """Send requests whose tensors are in shared memory, which is registered for them and unregistered."""
    question = site.rng.choice([one for one in site.questions if one.request.model_name == "image"])
    size = len(question.request.raw_input_contents[0])
    memory = SharedMemory(create=True, size=2 * size)
    try:
        register(site.channel, memory.name, memory)
        yield _shared(site, question, memory, size)
        forget = protos.SystemSharedMemoryUnregisterRequest(name=memory.name)
        call(site.channel, "SystemSharedMemoryUnregister", forget, ANSWER_S)
    except grpc.RpcError as error:
        yield outcome_of(error.code(), error.details(), _CODES.OK)
    finally:
        memory.close()
        memory.unlink()


def err(site: Site) -> Iterator[Outcome]:
    """Make one of the mistakes that clients make."""
    change, code = site.rng.choice(_MISTAKES)
    request = ModelInferRequest()
    request.CopyFrom(site.questions[0].request)
    change(request)
    yield _ended(lambda: _infer(site)(request, timeout=ANSWER_S), code)


def inspect(site: Site) -> Iterator[Outcome]:
    """Ask what dashboards and probes ask."""
    name = site.rng.choice(site.models).name
    about_model = (
        protos.ModelReadyRequest(name=name), protos.ModelMetadataRequest(name=name),
        protos.ModelConfigRequest(name=name), protos.ModelStatisticsRequest(name=name),
    )  # fmt: skip
    for request in (*_INSPECTIONS, *about_model):
        rpc = type(request).__name__.removesuffix("Request")
        yield _ended(functools.partial(call, site.channel, rpc, request, ANSWER_S), _CODES.OK)


def scrape(site: Site) -> Iterator[Outcome]:
    """Read metrics and readiness over HTTP."""
    for path in ("/metrics", "/readyz", "/livez"):
        try:
            with urllib.request.urlopen(site.http + path, timeout=ANSWER_S) as response:
                response.read()
                yield Outcome(f"HTTP {response.status}")
        except OSError as error:
            yield Outcome("HTTP error", f"{path}: {error}")


def _asked(site: Site, timeout_s: float, *expected: grpc.StatusCode) -> Outcome:
    question = site.rng.choice(site.questions)
    try:
        response = _infer(site)(question.request, timeout=timeout_s)
    except grpc.RpcError as error:
        return outcome_of(error.code(), error.details(), *expected)
    return _judged(question.accepts(response), question)


def _ended(attempt: Callable[[], object], *expected: grpc.StatusCode) -> Outcome:
    try:
        attempt()
    except grpc.RpcError as error:
        return outcome_of(error.code(), error.details(), *expected)
    return outcome_of(_CODES.OK, "", *expected)


def _streamed(answer: ModelStreamInferResponse, question: Question | None) -> Outcome:
    if question is None:
        return Outcome("answered twice", f"id {answer.infer_response.id!r}")
    if answer.error_message:
        return outcome_of(_CODES.UNAVAILABLE, answer.error_message)
    return _judged(question.accepts(answer.infer_response), question)


def _judged(right: bool, question: Question) -> Outcome:
    return Outcome("OK", "" if right else f"a wrong answer of model {question.request.model_name!r}")


def _shared(site: Site, question: Question, memory: SharedMemory, size: int) -> Outcome:
    """Send a request from the first half of the memory, answered into the second."""
    assert memory.buf is not None
    memory.buf[:size] = question.request.raw_input_contents[0]
    try:
        response = _infer(site)(in_memory(question.request, memory.name, size), timeout=ANSWER_S)
    except grpc.RpcError as error:
        return outcome_of(error.code(), error.details(), _CODES.OK)
    output = response.outputs[0]
    array = as_array(output.datatype, tuple(output.shape), bytes(memory.buf[size:]))
    return _judged(question.accepts_outputs({output.name: array}), question)


def register(channel: grpc.Channel, name: str, memory: SharedMemory) -> None:
    """Register shared memory under a name.

    Raises:
        grpc.RpcError: The server refuses.
    """
    region = protos.SystemSharedMemoryRegisterRequest(name=name, key=f"/{memory.name}", byte_size=memory.size)
    call(channel, "SystemSharedMemoryRegister", region, ANSWER_S)


def in_memory(request: ModelInferRequest, region: str, size: int) -> ModelInferRequest:
    """Return a request with its input in the first ``size`` bytes of a region and its output in those that follow."""
    moved = ModelInferRequest(model_name=request.model_name, inputs=request.inputs)
    moved.outputs.add(name="y")
    for offset, tensor in ((0, moved.inputs[0]), (size, moved.outputs[0])):
        tensor.parameters["shared_memory_region"].string_param = region
        tensor.parameters["shared_memory_offset"].int64_param = offset
        tensor.parameters["shared_memory_byte_size"].int64_param = size
    return moved


def _with_id(question: Question, name: str) -> ModelInferRequest:
    request = ModelInferRequest(id=name)
    request.MergeFrom(question.request)
    return request


def _infer(site: Site) -> grpc.UnaryUnaryMultiCallable:
    return site.channel.unary_unary(INFER_METHOD, ModelInferRequest.SerializeToString, ModelInferResponse.FromString)


def _stream(site: Site) -> grpc.StreamStreamMultiCallable:
    return site.channel.stream_stream(
        STREAM_METHOD, ModelInferRequest.SerializeToString, ModelStreamInferResponse.FromString
    )
