"""Kinds of clients; each performs one action and yields the outcomes of its requests."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import pathlib
import random
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import grpc
import numpy as np

from benchmarks.soak.expected_answers import SUMS, CheckedRequest, SoakModel, as_array
from benchmarks.soak.mutators import Mutator
from benchmarks.soak.outcomes import Outcome, outcome_of
from trtnode import protos
from trtnode.bench.load.target import INFER_METHOD, call
from trtnode.bench.server_process import inference_request
from trtnode.protos import ModelInferRequest, ModelInferResponse, ModelStreamInferResponse
from trtnode.serving.service.rpc_table import SERVICE_NAME

ANSWER_S = 60.0
"""Time limit of an answer; a later one counts as lost."""

STREAMED = 20
"""Number of requests of one stream."""

_CODES = grpc.StatusCode
STREAM_METHOD = f"/{SERVICE_NAME}/ModelStreamInfer"
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
"""Channel option: without it, all channels of a process share one connection."""

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
"""Mistakes in a request to the batched model, and the status of each."""


@dataclasses.dataclass(frozen=True, slots=True)
class ClientContext:
    """The environment of a client.

    Attributes:
        address: Of the server.
        http: URL of its HTTP port.
        channel: To the server; each client has its own.
        folder: Of the models' files.
        models: The served models.
        checked_requests: Requests with their expected answers.
        rng: For its choices.
        mutator: Makes mutated requests.
        numbers: Numbers of the next mutated requests; it ends when enough are sent.
    """

    address: str
    http: str
    channel: grpc.Channel
    folder: pathlib.Path
    models: Sequence[SoakModel]
    checked_requests: Sequence[CheckedRequest]
    rng: random.Random
    mutator: Mutator
    numbers: Iterator[int]


ClientAction = Callable[[ClientContext], Iterator[Outcome]]


def infer(context: ClientContext) -> Iterator[Outcome]:
    """Send one request and check the answer."""
    yield _infer_checked(context, ANSWER_S, _CODES.OK)


def infer_with_deadline(context: ClientContext) -> Iterator[Outcome]:
    """Send a request with a deadline that may pass at any stage."""
    yield _infer_checked(context, context.rng.uniform(0.0001, 0.01), _CODES.OK, _CODES.DEADLINE_EXCEEDED)


def cancel(context: ClientContext) -> Iterator[Outcome]:
    """Cancel a request at any stage."""
    future = _infer_method(context).future(context.rng.choice(context.checked_requests).request, timeout=ANSWER_S)
    time.sleep(context.rng.uniform(0, 0.005))
    future.cancel()
    yield outcome_of(future.code(), future.details() or "", _CODES.OK, _CODES.CANCELLED)


def stream(context: ClientContext) -> Iterator[Outcome]:
    """Send many requests on one stream, and read slowly at times. Each must be answered once and correctly."""
    checked_requests = {str(number): context.rng.choice(context.checked_requests) for number in range(STREAMED)}
    slow = context.rng.random() < 0.1
    requests = [_with_id(one, name) for name, one in checked_requests.items()]
    answers = _stream_method(context)(iter(requests), timeout=ANSWER_S)
    try:
        for answer in answers:
            checked = checked_requests.pop(answer.infer_response.id, None)
            yield _check_streamed(answer, checked)
            time.sleep(0.02 if slow else 0)
    except grpc.RpcError as error:
        for _ in checked_requests:
            yield outcome_of(error.code(), error.details(), _CODES.OK)
        return
    for _ in checked_requests:
        yield Outcome("lost", "the stream ended well without an answer to the request")


def disconnect(context: ClientContext) -> Iterator[Outcome]:
    """Open a stream, send requests, and close the connection before all are answered."""
    with grpc.insecure_channel(context.address, options=OWN_CONNECTION) as channel:
        requests = (context.rng.choice(context.checked_requests).request for _ in range(STREAMED))
        answers = _stream_method(dataclasses.replace(context, channel=channel))(requests, timeout=ANSWER_S)
        with contextlib.suppress(grpc.RpcError):
            next(answers, None)
    yield Outcome("left")


def share_memory(context: ClientContext) -> Iterator[Outcome]:
    """Send a request with tensors in shared memory, which is registered before and unregistered after it."""
    checked = context.rng.choice([one for one in context.checked_requests if one.request.model_name == "image"])
    size = len(checked.request.raw_input_contents[0])
    memory = SharedMemory(create=True, size=2 * size)
    try:
        register(context.channel, memory.name, memory)
        yield _infer_in_memory(context, checked, memory, size)
        forget = protos.SystemSharedMemoryUnregisterRequest(name=memory.name)
        call(context.channel, "SystemSharedMemoryUnregister", forget, ANSWER_S)
    except grpc.RpcError as error:
        yield outcome_of(error.code(), error.details(), _CODES.OK)
    finally:
        memory.close()
        memory.unlink()


def send_mistake(context: ClientContext) -> Iterator[Outcome]:
    """Send a request with one of the usual mistakes."""
    change, code = context.rng.choice(_MISTAKES)
    request = ModelInferRequest()
    request.CopyFrom(context.checked_requests[0].request)
    change(request)
    yield _call(lambda: _infer_method(context)(request, timeout=ANSWER_S), code)


def inspect(context: ClientContext) -> Iterator[Outcome]:
    """Ask what dashboards and probes ask."""
    name = context.rng.choice(context.models).name
    about_model = (
        protos.ModelReadyRequest(name=name), protos.ModelMetadataRequest(name=name),
        protos.ModelConfigRequest(name=name), protos.ModelStatisticsRequest(name=name),
    )  # fmt: skip
    for request in (*_INSPECTIONS, *about_model):
        rpc = type(request).__name__.removesuffix("Request")
        yield _call(functools.partial(call, context.channel, rpc, request, ANSWER_S), _CODES.OK)


def scrape(context: ClientContext) -> Iterator[Outcome]:
    """Read metrics and readiness over HTTP."""
    for path in ("/metrics", "/readyz", "/livez"):
        try:
            with urllib.request.urlopen(context.http + path, timeout=ANSWER_S) as response:
                response.read()
                yield Outcome(f"HTTP {response.status}")
        except OSError as error:
            yield Outcome("HTTP error", f"{path}: {error}")


def embed(context: ClientContext) -> Iterator[Outcome]:
    """Ask for vectors of a few or many sentences as OpenAI's client does."""
    model = next(one for one in context.models if one.name == "sentences")
    checked = [one for one in context.checked_requests if one.request.model_name == model.name]
    chosen = context.rng.choices(range(len(checked)), k=context.rng.randint(1, 8))
    texts = [text for place in chosen for text in (model.sent or ())[place]["text"].tolist()]
    expected = np.concatenate([checked[place].answers[0]["vectors"] for place in chosen])
    body = json.dumps({"model": model.name, "input": texts}).encode()
    try:
        with urllib.request.urlopen(f"{context.http}/v1/embeddings", body, timeout=ANSWER_S) as response:
            found = [one["embedding"] for one in json.load(response)["data"]]
    except OSError as error:
        yield Outcome("HTTP error", f"/v1/embeddings: {error}")
        return
    right = np.shape(found) == expected.shape and np.allclose(found, expected, rtol=1e-3, atol=1e-4)
    yield Outcome("HTTP 200", "" if right else "wrong vectors")


def take_turns(context: ClientContext) -> Iterator[Outcome]:
    """Add numbers up in a sequence, which may be left, and may see its model replaced."""
    identity, total = context.rng.getrandbits(62) + 1, np.zeros((1, 3), np.int64)
    steps, leaves = context.rng.randint(1, 20), context.rng.random() < 0.3
    for number in range(steps):
        if context.rng.random() < 0.005:
            load = protos.RepositoryModelLoadRequest(model_name=SUMS)
            yield _call(functools.partial(call, context.channel, "RepositoryModelLoad", load, ANSWER_S), _CODES.OK)
        addend = np.full((1, 3), context.rng.randint(-9, 9))
        total = total + addend
        request = inference_request(SUMS, {"x": addend})
        request.parameters["sequence_id"].int64_param = identity
        request.parameters["sequence_start"].bool_param = not number
        request.parameters["sequence_end"].bool_param = number == steps - 1 and not leaves
        try:
            response = _infer_method(context)(request, timeout=ANSWER_S)
        except grpc.RpcError as error:
            yield outcome_of(error.code(), error.details(), _CODES.OK)
            return
        right = response.raw_output_contents[0] == total.tobytes()
        yield Outcome("OK", "" if right else f"a wrong sum in sequence {identity}")


def _infer_checked(context: ClientContext, timeout_s: float, *expected: grpc.StatusCode) -> Outcome:
    checked = context.rng.choice(context.checked_requests)
    try:
        response = _infer_method(context)(checked.request, timeout=timeout_s)
    except grpc.RpcError as error:
        return outcome_of(error.code(), error.details(), *expected)
    return _check_answer(checked.accepts(response), checked)


def _call(attempt: Callable[[], object], *expected: grpc.StatusCode) -> Outcome:
    try:
        attempt()
    except grpc.RpcError as error:
        return outcome_of(error.code(), error.details(), *expected)
    return outcome_of(_CODES.OK, "", *expected)


def _check_streamed(answer: ModelStreamInferResponse, checked: CheckedRequest | None) -> Outcome:
    if checked is None:
        return Outcome("answered twice", f"id {answer.infer_response.id!r}")
    if answer.error_message:
        return outcome_of(_CODES.UNAVAILABLE, answer.error_message)
    return _check_answer(checked.accepts(answer.infer_response), checked)


def _check_answer(right: bool, checked: CheckedRequest) -> Outcome:
    return Outcome("OK", "" if right else f"a wrong answer of model {checked.request.model_name!r}")


def _infer_in_memory(context: ClientContext, checked: CheckedRequest, memory: SharedMemory, size: int) -> Outcome:
    """Send a request with its input in the first half of the memory and its output in the second."""
    assert memory.buf is not None
    memory.buf[:size] = checked.request.raw_input_contents[0]
    try:
        response = _infer_method(context)(in_memory(checked.request, memory.name, size), timeout=ANSWER_S)
    except grpc.RpcError as error:
        return outcome_of(error.code(), error.details(), _CODES.OK)
    output = response.outputs[0]
    array = as_array(output.datatype, tuple(output.shape), bytes(memory.buf[size:]))
    return _check_answer(checked.accepts_outputs({output.name: array}), checked)


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


def _with_id(checked: CheckedRequest, name: str) -> ModelInferRequest:
    request = ModelInferRequest(id=name)
    request.MergeFrom(checked.request)
    return request


def _infer_method(context: ClientContext) -> grpc.UnaryUnaryMultiCallable:
    return context.channel.unary_unary(INFER_METHOD, ModelInferRequest.SerializeToString, ModelInferResponse.FromString)


def _stream_method(context: ClientContext) -> grpc.StreamStreamMultiCallable:
    return context.channel.stream_stream(
        STREAM_METHOD, ModelInferRequest.SerializeToString, ModelStreamInferResponse.FromString
    )
