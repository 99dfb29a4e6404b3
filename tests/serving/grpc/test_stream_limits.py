"""Streams at the edge: slow and vanishing clients, limits, and a server that stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable

import grpc
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import FakeExecutable, Running, StartFake
from tests.serving.grpc.conftest import WAIT_S, RawStream, Stream, inputs, message, take
from trtnode.protos import ModelInferRequest
from trtnode.serving.grpc import backlog

REFUSAL = "the server is stopping; send the request to another one"


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def may_open_a_stream(running: Running) -> bool:
    with triton.InferenceServerClient(running.address) as client:
        stream = Stream(client)
        with contextlib.suppress(InferenceServerException):  # refused before it could send
            stream.send(model="absent")
        return "server.limits.streams" not in str(stream.error())


def test_a_client_that_does_not_read_keeps_nobody_else_waiting(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake()
    size = 1 << 20
    request = ModelInferRequest(model_name="fake", raw_input_contents=[bytes(4 * size)])
    request.inputs.add(name="x", datatype="FP32", shape=[size])
    with grpc.insecure_channel(running.address, [("grpc.max_receive_message_length", -1)]) as channel:
        stream = RawStream(channel)
        for _ in range(24):  # 96 MB of answers, of which the server makes as many as the backlog may have
            stream.send(request)
        eventually(lambda: fake.runs >= 12)

        assert running.client.infer("fake", inputs(1)).as_numpy("y").tolist() == [2]
        assert len([next(stream) for _ in range(24)]) == 24


def test_a_stream_whose_client_reads_nothing_is_cancelled(
    start_fake: StartFake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backlog, "PATIENCE_S", 0.5)
    monkeypatch.setattr(backlog, "BYTES_A_SECOND", 1e8)
    running = start_fake(server="limits: {streams: 1}")
    size = 1 << 18
    request = ModelInferRequest(model_name="fake", raw_input_contents=[bytes(4 * size)])
    request.inputs.add(name="x", datatype="FP32", shape=[size])
    with grpc.insecure_channel(running.address, [("grpc.max_receive_message_length", -1)]) as channel:
        stream = RawStream(channel)
        for _ in range(8):
            stream.send(request)

        eventually(lambda: "clients stopped reading responses" in caplog.text)
        eventually(lambda: may_open_a_stream(running))


def test_a_stream_that_reads_its_answers_late_gets_them_all(start_fake: StartFake) -> None:
    running = start_fake(server="limits: {stream_buffer_mb: 1}")
    size = 1 << 18
    request = ModelInferRequest(model_name="fake", raw_input_contents=[bytes(4 * size)])
    request.inputs.add(name="x", datatype="FP32", shape=[size])
    with grpc.insecure_channel(running.address) as channel:
        stream = RawStream(channel)
        for _ in range(30):
            stream.send(request)

        assert len([next(stream) for _ in range(30)]) == 30


def test_cancelling_a_stream_drops_its_waiting_requests(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake(server="limits: {streams: 1}")
    stream = Stream(running.client)
    fake.gate.clear()
    for _ in range(4):
        stream.send()
    assert fake.started.acquire(timeout=WAIT_S)
    eventually(lambda: running.server.in_flight == 4)

    running.client.stop_stream(cancel_requests=True)
    eventually(lambda: may_open_a_stream(running))
    fake.gate.set()
    eventually(lambda: running.server.in_flight == 0)

    assert fake.runs < 20
    assert running.client.infer("fake", inputs()).as_numpy("y").tolist() == [1]


def test_a_client_that_vanishes_leaves_nothing_behind(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake()
    fake.gate.clear()
    channel = grpc.insecure_channel(running.address)
    stream = RawStream(channel)
    stream.send(message())
    assert fake.started.acquire(timeout=WAIT_S)

    channel.close()
    fake.gate.set()

    eventually(lambda: running.server.in_flight == 0)


def test_a_deadline_ends_a_stream(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake()
    fake.gate.clear()
    stream = Stream(running.client, stream_timeout=0.2)
    stream.send()

    assert stream.error().status() == "StatusCode.DEADLINE_EXCEEDED"
    fake.gate.set()


def test_requests_of_streams_count_towards_the_limit(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake(server="limits: {max_requests: 2}")
    fake.gate.clear()
    stream = Stream(running.client)
    for number in range(3):
        stream.send(number)

    assert "server.limits.max_requests" in str(stream.error())
    fake.gate.set()
    assert len(take(stream, 2)) == 2


def test_streams_beyond_the_limit_are_refused(start_fake: StartFake) -> None:
    running = start_fake(server="limits: {streams: 1}")
    first = Stream(running.client)
    first.send()
    first.next()

    with triton.InferenceServerClient(running.address) as other:
        error = Stream(other).error()
        other.stop_stream()
    running.client.stop_stream()

    assert error.status() == "StatusCode.UNAVAILABLE"
    assert "server.limits.streams" in str(error)
    with triton.InferenceServerClient(running.address) as third:
        stream = Stream(third)
        stream.send()
        assert stream.next()


def test_stopping_answers_what_is_in_flight_and_ends_idle_streams(start_fake: StartFake, fake: FakeExecutable) -> None:
    running = start_fake()
    fake.gate.clear()
    with triton.InferenceServerClient(running.address) as client:
        idle, busy = Stream(client), Stream(running.client)
        idle.send(model="nowhere")
        idle.error()
        busy.send(4)
        assert fake.started.acquire(timeout=WAIT_S)

        stopped: queue.Queue = queue.Queue()
        threading.Thread(target=lambda: stopped.put(running.server.stop(WAIT_S))).start()
        sent = 1
        while busy.answers.empty():  # until it is refused: what comes while clients are sent away is answered
            busy.send(4)
            sent += 1
            time.sleep(0.05)
        fake.gate.set()

        answers = [busy.answers.get(timeout=WAIT_S) for _ in range(sent)]
        results = [result.as_numpy("y").tolist() for result, error in answers if error is None]
        assert results == [[5]] * len(results) != []
        assert {str(error) for _, error in answers if error is not None} == {REFUSAL}
        for stream in (busy, idle):
            error = stream.error()
            assert (error.status(), "the server is stopping" in str(error)) == ("StatusCode.UNAVAILABLE", True)
        assert stopped.get(timeout=WAIT_S)


def test_streams_work_with_the_asyncio_client(start_fake: StartFake) -> None:
    running = start_fake()

    async def exchange() -> list[float]:
        async def requests():
            for number in range(10):
                yield {"model_name": "fake", "inputs": inputs(number), "request_id": str(number)}

        async with triton_aio.InferenceServerClient(running.address) as client:
            found = []
            async for result, error in client.stream_infer(requests()):
                assert error is None
                found.append(float(result.as_numpy("y")[0]))
            return found

    assert sorted(asyncio.run(exchange())) == [float(n + 1) for n in range(10)]


def test_each_request_of_a_stream_has_its_lines_in_the_log(
    start_fake: StartFake, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(start_fake().client)

    with caplog.at_level(logging.DEBUG, "trtnode.serving.telemetry.logs"):
        stream.send(1)
        stream.next()
        stream.send(model="nowhere")
        stream.error()

    lines = [line for line in caplog.messages if line.startswith("ModelStreamInfer of ipv4:127.0.0.1:")]
    assert [line.split(": ")[1].split()[0] for line in lines] == ["OK", "NOT_FOUND"]
