"""Faults around a server: clients, processes, clocks and disks. It answers, and says what happened."""

from __future__ import annotations

import os
import pathlib
import re
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Adders, Eventually, FakeExecutable, Running, StartFake, given
from tests.serving.server_process import READY_S, ServerProcess
from trtnode.bench.load.client_pool import ClientProcessPool
from trtnode.bench.load.client_process import RepeatedRequest
from trtnode.bench.load.load_level import Level
from trtnode.bench.load.target import INFER_METHOD
from trtnode.bench.server_process import inference_request
from trtnode.protos import ModelStreamInferResponse
from trtnode.serving.service.rpc_table import SERVICE_NAME

pytestmark = pytest.mark.slow

SERVE = [sys.executable, "-m", "trtnode", "--log-level", "debug", "serve", "--config"]
CALLERS = 64
STOPPED_AFTER = 1000
"""Answers."""
STREAM_METHOD = f"/{SERVICE_NAME}/ModelStreamInfer"


def infer(client: triton.InferenceServerClient, model: str = "fake", **options) -> list[float]:
    return client.infer(model, [given("x", np.zeros(1, np.float32))], **options).as_numpy("y").tolist()


def test_a_message_that_says_it_has_two_gigabytes_is_refused_before_it_comes(shared: Running) -> None:
    """Frames by hand: no client library sends a length that isn't there."""
    with socket.create_connection(("127.0.0.1", shared.server.port), timeout=120) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(kind=4, stream=0))
        head = headers("/inference.GRPCInferenceService/ModelInfer")
        connection.sendall(frame(kind=1, flags=4, stream=1, payload=head))
        connection.sendall(frame(kind=0, stream=1, payload=b"\0" + struct.pack(">I", 2**31 - 1) + bytes(100)))

        answer = b""
        while b"grpc-status" not in answer:
            answer += (received := connection.recv(65536))
            assert received, answer

    assert grpc.StatusCode.RESOURCE_EXHAUSTED.value[0] == int(re.search(rb"grpc-status.(\d+)", answer)[1])
    assert shared.client.is_server_ready()


def frame(*, kind: int, stream: int, flags: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def headers(path: str) -> bytes:
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers",
              "content-type": "application/grpc"}  # fmt: skip
    text = ((name.encode(), value.encode()) for name, value in fields.items())
    return b"".join(bytes([0, len(n)]) + n + bytes([len(v)]) + v for n, v in text)  # literals, not indexed


def test_a_small_message_that_unpacks_to_a_large_one_is_refused(start_fake: StartFake) -> None:
    running = start_fake()
    bomb = bytes(200 << 20)

    with grpc.insecure_channel(running.address, options=[("grpc.max_send_message_length", -1)]) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError) as caught:
            call(bomb, compression=grpc.Compression.Gzip, timeout=60)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert infer(running.client) == [1]


@pytest.mark.parametrize("jump_s", [-86_400, 86_400])
def test_a_jump_of_the_clock_neither_expires_nor_keeps_a_request(
    start_fake: StartFake, fake: FakeExecutable, monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    running = start_fake("instances: 1, batching: {max_batch_size: 4, max_queue_delay_us: 100, timeout_ms: 30000}")
    assert infer(running.client) == [1]
    fake.gate.clear()

    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(infer, running.client) for _ in range(2)]
        assert fake.started.acquire(timeout=120)
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + jump_s)
        fake.gate.set()
        assert [answer.result(120) for answer in answers] == [[1]] * 2
        fake.gate.clear()
        while fake.started.acquire(blocking=False):
            pass
        answers = [pool.submit(infer, running.client)]
        assert fake.started.acquire(timeout=120)
        with pytest.raises(InferenceServerException, match="longer than its timeout"):
            infer(running.client, timeout=20_000)
        fake.gate.set()
        assert answers[0].result(120) == [1]


class Process(ServerProcess):
    """A server with an adder ``m``. Its log, at level debug, comes through a pipe, which no limit on the size of files
    cuts off.
    """

    def __init__(self, folder: pathlib.Path, engine: str, startup: str, file_bytes: int) -> None:
        config = folder / "servable.yaml"
        config.write_text(
            f"server: {{grpc: {{port: 0}}, http: {{port: 0}}, startup: {startup}, "
            f"admin: {{repository: true}}, log: {{level: debug}}}}\n"
            f"cache: {{dir: cache}}\nmodels: [{{name: m, path: m.onnx, engine: {engine}}}]\n"
        )
        super().__init__(config, SERVE)
        # Not by a preexec_fn: that forks, and gRPC's threads in the tests' process may not survive a fork.
        resource.prlimit(self.child.pid, resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))
        self.asks = self.client()

    def builders(self) -> list[int]:
        """The processes that build its engines."""
        children = pathlib.Path(f"/proc/{self.child.pid}/task").glob("*/children")
        found = [int(number) for file in children for number in file.read_text().split()]
        return [
            pid
            for pid in found
            if b"trtnode.engines.build.subprocess_worker" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

    def platform(self) -> str:
        return str(self.asks.get_model_metadata("m").platform)


@pytest.fixture
def launch(tmp_path: pathlib.Path, adders: Adders) -> Iterator[Callable[..., Process]]:
    launched: list[Process] = []

    def launch_process(engine: str, startup: str = "native", file_bytes: int = resource.RLIM_INFINITY) -> Process:
        adders.write("m.onnx", 7)
        launched.append(Process(tmp_path, engine, startup, file_bytes))
        return launched[0]

    yield launch_process
    for process in launched:
        process.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda number: number.name)
def test_a_signal_to_the_process_that_builds_engines_disturbs_nobody(
    launch: Callable[..., Process], adders: Adders, eventually: Eventually, number: signal.Signals
) -> None:
    process = launch("openvino")
    eventually(lambda: bool(process.builders()))

    builder = process.builders()[0]
    os.kill(builder, number)
    assert process.platform() == "onnxruntime_onnx"
    assert adders.ask(process.asks) == 7
    assert process.asks.is_server_ready()
    if number is signal.SIGSTOP:
        os.kill(builder, signal.SIGCONT)

    # It was building, or at rest.
    ends = ("Loaded model 'm' version 1 in", "Model 'm' version 1: the previous version keeps serving")
    eventually(lambda: sum(map(process.log.count, ends)) == 2 and process.asks.is_server_ready())
    assert adders.ask(process.asks) == 7
    assert process.child.poll() is None
    assert "Traceback" not in process.log


@pytest.mark.parametrize("file_bytes", [0, 100], ids=["no file", "no large file"])
def test_a_server_that_can_write_nothing_serves_natively(
    launch: Callable[..., Process], adders: Adders, file_bytes: int
) -> None:
    process = launch("openvino", startup="wait", file_bytes=file_bytes)

    assert process.platform() == "onnxruntime_onnx"
    assert adders.ask(process.asks) == 7


@pytest.fixture
def body() -> bytes:
    request = inference_request("m", {"x": np.zeros((1, 1), np.float32)})
    return bytes(request.SerializeToString())


def full_load(process: Process, body: bytes) -> ClientProcessPool:
    repeated = RepeatedRequest(address=process.address, method=INFER_METHOD, request=body, timeout_s=READY_S)
    return ClientProcessPool(repeated, 2)


def ended_in_order(process: Process) -> str:
    """Return the log of a server that got its signal, once it is whole."""
    assert process.ended()[0] == 0
    assert "Traceback" not in process.log
    return process.log


def test_a_signal_under_full_load_loses_no_request_that_was_accepted(
    launch: Callable[..., Process], body: bytes
) -> None:
    process = launch("native")
    signals = iter([signal.SIGTERM])

    def stop_it(answers: int) -> None:
        if answers > STOPPED_AFTER:
            for number in signals:
                process.child.send_signal(number)

    with full_load(process, body) as pool:
        samples = pool.run(Level(callers=CALLERS, requests=20 * STOPPED_AFTER), stop_it)

    ran = len(re.findall(r"ModelInfer of \S+: OK in", ended_in_order(process)))
    assert len(samples.latencies_ms) == ran > STOPPED_AFTER
    assert samples.unanswered == 0
    assert samples.errors.keys() <= {"UNAVAILABLE", "CANCELLED"}


def test_a_signal_lets_full_streams_write_every_answer(launch: Callable[..., Process], body: bytes) -> None:
    process = launch("native")
    may_send = threading.Semaphore(CALLERS)
    answered: list[bytes] = []

    def requests() -> Iterator[bytes]:
        while may_send.acquire(timeout=READY_S):
            yield body

    def ask(channel: grpc.Channel) -> None:
        for answer in channel.stream_stream(STREAM_METHOD)(requests()):
            answered.append(answer)
            may_send.release()
            if len(answered) == STOPPED_AFTER:
                process.child.send_signal(signal.SIGTERM)

    with grpc.insecure_channel(process.address) as channel, pytest.raises(grpc.RpcError) as caught:
        ask(channel)

    right = [answer for answer in answered if not ModelStreamInferResponse.FromString(answer).error_message]
    ran = len(re.findall(r"ModelStreamInfer of \S+: OK in", ended_in_order(process)))
    assert len(right) == ran >= STOPPED_AFTER
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
