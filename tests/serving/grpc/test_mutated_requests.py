"""Thousands of requests that no client should send: each is answered with a status that is right, and in time."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory

import grpc
import numpy as np
import pytest

from benchmarks.soak.clients import in_memory
from benchmarks.soak.mutators import Mutator
from benchmarks.soak.outcomes import Outcome, is_message, outcome_of_mutated, outcome_of_mutated_stream
from tests.serving.conftest import Eventually, Running
from trtnode.bench.server_process import inference_request
from trtnode.protos import ModelInferRequest, ModelInferResponse, SystemSharedMemoryRegisterRequest

pytestmark = pytest.mark.slow

SERVICE = "/inference.GRPCInferenceService/"
SEED, STREAMS, STREAMED, AT_ONCE = 20261, 40, 12, 32
UNARY = int(os.environ.get("MUTATED_REQUESTS", "1500"))
ANSWER_S = 120
ROW = np.array([[1, 2, 3]], np.float32)


def valid_requests(region: str) -> list[ModelInferRequest]:
    raw = inference_request("two", {"a": ROW, "b": ROW})
    typed = ModelInferRequest(model_name="INT64", model_version="1", id="typed")
    typed.inputs.add(name="x", datatype="INT64", shape=[1, 3]).contents.int64_contents.extend([1, 2, 3])
    wishing = ModelInferRequest(id="wishing")
    wishing.MergeFrom(raw)
    wishing.parameters["priority"].uint64_param = 1
    wishing.parameters["timeout"].int64_param = 1_000_000
    wishing.outputs.add(name="sum").parameters["binary_data"].bool_param = True
    texts = inference_request("STRING", {"x": np.array([["é", ""]], object)})
    flags = inference_request("BOOL", {"x": np.array([[True, False]])})
    return [raw, typed, wishing, texts, flags, in_memory(inference_request("FLOAT", {"x": ROW}), region, ROW.nbytes)]


@pytest.fixture(scope="module")
def channel(with_memory: Running) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(with_memory.address) as channel:
        yield channel


@pytest.fixture(scope="module")
def mutator(channel: grpc.Channel) -> Iterator[Mutator]:
    memory = SharedMemory(create=True, size=2 * ROW.nbytes)
    region = SystemSharedMemoryRegisterRequest(name=memory.name, key=f"/{memory.name}", byte_size=memory.size)
    channel.unary_unary(SERVICE + "SystemSharedMemoryRegister")(region.SerializeToString())
    yield Mutator(valid_requests(memory.name), SEED)
    channel.unary_unary(SERVICE + "SystemSharedMemoryUnregister")(b"")
    memory.close()
    memory.unlink()


def assert_still_right(channel: grpc.Channel) -> None:
    request = inference_request("two", {"a": ROW, "b": ROW})
    answer = channel.unary_unary(SERVICE + "ModelInfer")(request.SerializeToString(), timeout=ANSWER_S)
    assert ModelInferResponse.FromString(answer).raw_output_contents[0] == (2 * ROW).tobytes()


def held() -> int:
    """Count what this process, in which server and clients run, has open."""
    return sum(1 for _ in pathlib.Path("/proc/self/fd").iterdir())


def faults(outcomes: list[Outcome]) -> list[str]:
    return [f"{number}: {one.status}: {one.fault}" for number, one in enumerate(outcomes) if one.fault]


def test_mutated_requests_have_a_status_of_the_table_and_leave_nothing_behind(
    channel: grpc.Channel, mutator: Mutator, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    before = held()
    bodies = [mutator.mutated(number) for number in range(UNARY)]
    call = channel.unary_unary(SERVICE + "ModelInfer")

    outcomes: list[Outcome] = []
    for start in range(0, UNARY, AT_ONCE):
        futures = [(body, call.future(body, timeout=ANSWER_S)) for body in bodies[start : start + AT_ONCE]]
        outcomes += [outcome_of_mutated(body, future.code(), future.details() or "") for body, future in futures]

    assert faults(outcomes) == []
    assert {one.status for one in outcomes} >= {"OK", "INVALID_ARGUMENT", "NOT_FOUND"}
    assert "Traceback" not in caplog.text
    assert_still_right(channel)
    eventually(lambda: held() <= before)


@pytest.mark.parametrize("ending", ["readable", "unreadable"])
def test_mutated_requests_on_streams_are_all_answered_or_end_their_stream(
    channel: grpc.Channel, mutator: Mutator, ending: str
) -> None:
    bodies = [mutator.mutated(number) for number in range(UNARY, UNARY + 3 * STREAMS * STREAMED)]
    readable, unreadable = ([body for body in bodies if is_message(body) is kind] for kind in (True, False))

    outcomes = []
    for number in range(STREAMS):
        sent = readable[number * STREAMED :][:STREAMED] + (unreadable[number:][:1] if ending == "unreadable" else [])
        answered, code = 0, grpc.StatusCode.OK
        try:
            for _ in channel.stream_stream(SERVICE + "ModelStreamInfer")(iter(sent), timeout=ANSWER_S):
                answered += 1
        except grpc.RpcError as error:
            code = error.code()
        outcomes.append(outcome_of_mutated_stream(sent, answered, code))

    assert faults(outcomes) == []
    assert {one.status for one in outcomes} == ({"OK"} if ending == "readable" else {"INVALID_ARGUMENT"})
    assert_still_right(channel)
