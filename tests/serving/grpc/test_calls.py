"""Inference requests past grpcio's Python layer."""

from __future__ import annotations

import functools
import gzip
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from benchmarks.attacks import http2
from benchmarks.attacks.grpc_attacks import INFER, START, WHOLE
from benchmarks.attacks.message_attacks import STREAM
from tests.serving.conftest import Eventually, FakeExecutable, Running, StartFake, given
from tests.serving.grpc.conftest import RawStream, message
from tests.serving.grpc.test_attacks import connected
from trtnode.protos import ModelInferRequest
from trtnode.serving.errors import UnsuitableGrpcioError
from trtnode.serving.grpc import calls, rpc
from trtnode.serving.protocol.packing import unpack
from trtnode.serving.service.inference_service import InferenceService

METHOD = "/inference.GRPCInferenceService/ModelInfer"


def infer(running: Running, size: int = 1, **options: Any) -> list[float]:
    x = given("x", np.zeros(size, np.float32))
    answer: list[float] = running.client.infer("fake", [x], **options).as_numpy("y").tolist()
    return answer


def threads_of(fake: FakeExecutable) -> list[str]:
    """Have a model note the names of the threads that run it."""
    names, run = [], fake.run_checked

    def noted(*arguments: Any) -> Any:
        names.append(threading.current_thread().name)
        return run(*arguments)

    fake.run_checked = noted
    return names


@pytest.mark.parametrize("owner", list(calls.PARTS))
def test_a_grpcio_without_a_part_of_it_stops_the_start_with_a_sentence(
    start_fake: StartFake, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    monkeypatch.setitem(calls.PARTS, owner, ("gone",))

    with pytest.raises(UnsuitableGrpcioError, match=rf"has no {owner}\.gone.*pip install 'grpcio"):
        start_fake()


def test_requests_that_take_a_moment_run_in_the_serving_thread(start_fake: StartFake, fake: FakeExecutable) -> None:
    names = threads_of(fake)
    running = start_fake()

    while not names or names[-1].startswith("infer"):  # as soon as one run was short
        infer(running)

    assert names[0].startswith("infer")
    assert "_serve" in names[-1]


def test_larger_requests_than_those_that_were_short_get_a_thread(start_fake: StartFake, fake: FakeExecutable) -> None:
    names = threads_of(fake)
    running = start_fake()
    while not names or names[-1].startswith("infer"):
        infer(running)

    infer(running, size=100_000)

    assert names[-1].startswith("infer")


def test_an_unexpected_error_is_the_answer_of_its_call_alone(
    start_fake: StartFake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running = start_fake()
    infer(running)

    def fail(*_arguments: Any) -> None:
        raise SystemExit("broken")

    with monkeypatch.context() as patch:
        patch.setattr(InferenceService, "accept", fail)
        for _ in range(3):
            with pytest.raises(InferenceServerException) as caught:
                infer(running)
            assert caught.value.status() == "StatusCode.INTERNAL"

    assert infer(running) == [1]
    assert "A call ended without an answer" in caplog.text


def test_an_unexpected_error_ends_its_stream_alone(
    start_fake: StartFake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running = start_fake()

    def fail(*_arguments: Any) -> None:
        raise SystemExit("broken")

    with grpc.insecure_channel(running.address) as channel:
        with monkeypatch.context() as patch:
            patch.setattr(InferenceService, "accept", fail)
            broken = RawStream(channel)
            broken.send(message())
            with pytest.raises(grpc.RpcError):
                next(broken)
        stream = RawStream(channel)
        stream.send(message())

        assert not next(stream).error_message

    assert broken.call.code() is grpc.StatusCode.INTERNAL
    assert "A stream failed" in caplog.text


def test_calls_whose_requests_do_not_come_hold_no_thread(start_fake: StartFake, eventually: Eventually) -> None:
    running = start_fake()
    infer(running)
    before = threading.active_count()
    headers = [http2.frame(http2.HEADERS, WHOLE, stream, http2.call(INFER)) for stream in range(1, 401, 2)]

    with connected(running, START + b"".join(headers)):
        assert infer(running) == [1]
        assert threading.active_count() < before + 20
        eventually(lambda: running.server.in_flight == 0)


@pytest.mark.parametrize("leave", [lambda call: call.cancel(), lambda call: None], ids=["cancel", "deadline"])
def test_a_request_whose_client_leaves_while_it_waits_never_runs(
    start_fake: StartFake, fake: FakeExecutable, eventually: Eventually, leave: Callable[[grpc.Future], Any]
) -> None:
    running = start_fake()
    fake.gate.clear()
    with grpc.insecure_channel(running.address) as channel, ThreadPoolExecutor(1) as pool:
        first = pool.submit(infer, running)
        assert fake.started.acquire(timeout=120)
        request = triton._utils._get_inference_request(  # the bytes that tritonclient sends
            model_name="fake", inputs=[vector()], model_version="", request_id="", outputs=None, sequence_id=0,
            sequence_start=False, sequence_end=False, priority=0, timeout=None, parameters=None,
        )  # fmt: skip
        waiting = channel.unary_unary(METHOD).future(request.SerializeToString(), timeout=0.5)
        eventually(lambda: running.server.in_flight == 2 or waiting.done())
        leave(waiting)
        assert waiting.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
        eventually(lambda: running.server.in_flight == 1)
        fake.gate.set()
        assert first.result(120) == [1]

    eventually(lambda: running.server.in_flight == 0)
    assert fake.runs == 1


def vector() -> triton.InferInput:
    return given("x", np.zeros(1, np.float32))


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_compressed_requests_are_answered(start_fake: StartFake, compression: str) -> None:
    assert infer(start_fake(), size=1000, compression_algorithm=compression) == [1] * 1000


def test_others_are_answered_while_a_compressed_message_is_inflated(
    start_fake: StartFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, gate, begun = start_fake(), threading.Event(), threading.Event()

    def held(packed: bytes, most: int) -> bytes:
        begun.set()
        assert gate.wait(120)
        return unpack(packed, most)

    monkeypatch.setattr(rpc, "unpack", held)
    with ThreadPoolExecutor(1) as pool:
        compressed = pool.submit(infer, running, size=1000, compression_algorithm="gzip")
        assert begun.wait(120)
        assert infer(running) == [1]
        assert not compressed.done()
        gate.set()
        assert compressed.result(120) == [1] * 1000


@pytest.mark.parametrize("packed", [b"\x1f\x8b", gzip.compress(bytes(99), mtime=0)[:-9], zlib.compress(b"") + b"\0"])
def test_a_message_that_begins_as_a_compressed_one_and_is_none_is_refused(start_fake: StartFake, packed: bytes) -> None:
    running = start_fake()
    with grpc.insecure_channel(running.address) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(METHOD)(packed, timeout=120)
        with pytest.raises(grpc.RpcError) as ended:
            list(channel.stream_stream(STREAM)(iter([packed]), timeout=120))

    assert refused.value.code() is ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert infer(running) == [1]


def test_streamed_requests_may_be_compressed_and_a_bomb_ends_its_stream_alone(start_fake: StartFake) -> None:
    running = start_fake()
    request = ModelInferRequest(model_name="fake", raw_input_contents=[bytes(4000)])
    request.inputs.add(name="x", datatype="FP32", shape=[1000])
    with grpc.insecure_channel(running.address, options=[("grpc.max_send_message_length", -1)]) as channel:
        send = functools.partial(channel.stream_stream(STREAM), compression=grpc.Compression.Gzip, timeout=120)
        assert len(list(send(iter([request.SerializeToString()] * 3)))) == 3
        with pytest.raises(grpc.RpcError) as ended:
            list(send(iter([bytes(200 << 20)])))

    assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert infer(running) == [1]
