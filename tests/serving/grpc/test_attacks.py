"""Clients that want the gRPC port for themselves, in frames of HTTP/2 that no client library would send."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from benchmarks.attacks import http2
from benchmarks.attacks.grpc_attacks import INFER, METADATA, START, WHOLE
from benchmarks.soak.process_stats import read_stats
from tests.serving.conftest import Eventually, Running, StartFake
from trtnode.serving.grpc import server

FRAMES = 1000
ROUNDS = 50
MORE_MB = 400
"""Memory that nothing bounded would exceed: each round of an attack would take some of it."""


@contextlib.contextmanager
def connected(running: Running, start: bytes = START) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", running.server.port), timeout=120) as connection:
        connection.sendall(start)
        yield connection


def is_healthy(running: Running) -> bool:
    alone = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(running.address, options=alone) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=60, wait_for_ready=True)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def send_unread(connection: socket.socket, piece: bytes) -> None:
    """Send a piece again and again, until the server takes no more or closes the connection."""
    connection.settimeout(1)
    with contextlib.suppress(OSError):
        for _ in range(ROUNDS):
            connection.sendall(piece)


def calls(count: int, *, then: bytes = b"", path: bytes = INFER) -> bytes:
    """Return the headers of calls, each with a frame behind it that gets the number of the call's stream."""
    frames = []
    for stream in range(1, 2 * count + 1, 2):
        frames.append(http2.frame(http2.HEADERS, WHOLE, stream, http2.call(path)))
        frames.append(then[:5] + stream.to_bytes(4, "big") + then[9:] if then else b"")
    return b"".join(frames)


CANCELLED = http2.frame(http2.RST_STREAM, payload=http2.CANCEL.to_bytes(4, "big"))


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(http2.settings(_4=65535) * FRAMES, id="settings"),
        pytest.param(http2.frame(http2.PING, payload=bytes(8)) * FRAMES, id="pings"),
        pytest.param(calls(FRAMES, then=CANCELLED), id="calls-that-are-reset"),
        pytest.param(http2.frame(http2.HEADERS, 0, 1, http2.call(INFER))
                     + http2.frame(http2.CONTINUATION, stream=1) * FRAMES, id="empty-continuations"),
        pytest.param(http2.frame(http2.DATA, 0, 1) * FRAMES, id="empty-data"),
    ],
)  # fmt: skip
def test_a_flood_of_frames_whose_answers_nobody_reads_leaves_the_server_healthy(
    start_fake: StartFake, piece: bytes
) -> None:
    running = start_fake()
    before = read_stats_mb()
    with connected(running) as connection:
        send_unread(connection, piece)

        assert is_healthy(running)
        assert read_stats_mb() < before + MORE_MB


def read_stats_mb() -> float:
    return read_stats(os.getpid()).rss_mb


def test_a_header_without_an_end_is_not_kept(start_fake: StartFake) -> None:
    running = start_fake()
    before = read_stats_mb()
    with connected(running) as connection:
        connection.sendall(http2.frame(http2.HEADERS, 0, 1, http2.call(INFER)))
        more = http2.frame(http2.CONTINUATION, stream=1, payload=http2.field(b"a", b"b" * 16000))
        connection.settimeout(5)
        with contextlib.suppress(OSError):
            for _ in range(50_000):  # 800 MB
                connection.sendall(more)

        assert is_healthy(running)
        assert read_stats_mb() < before + MORE_MB


def test_calls_whose_bodies_do_not_come_hold_up_nobody(start_fake: StartFake) -> None:
    running = start_fake()
    with connected(running, START + calls(900)), connected(running, START + calls(900)):
        assert is_healthy(running)


def test_calls_whose_answers_nobody_takes_hold_up_nobody(start_fake: StartFake) -> None:
    running = start_fake()
    start = http2.PREFACE + http2.settings(_4=0)
    body = http2.frame(http2.DATA, http2.END_STREAM, payload=bytes(5))
    with connected(running, start + calls(900, then=body, path=METADATA)):
        assert is_healthy(running)


def test_connections_beyond_the_share_of_the_descriptors_are_refused(
    start_fake: StartFake, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(server, "most_connections", lambda _share: 3)
    running = start_fake()
    running.client.close()
    with contextlib.ExitStack() as stack:
        kept = [stack.enter_context(connected(running)) for _ in range(3)]
        assert all(one.recv(100) for one in kept)

        with pytest.raises(grpc.RpcError):
            probe(running, timeout_s=1)

    eventually(lambda: is_healthy(running))


def probe(running: Running, timeout_s: float) -> None:
    alone = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(running.address, options=alone) as channel:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)


def test_a_connection_that_says_nothing_is_closed(start_fake: StartFake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_S", 1)
    running = start_fake()
    with connected(running, b"") as connection:
        while connection.recv(1 << 16):  # the server's settings come first
            pass
