"""One client process: it sends what it is told to, and hands back what happened.

Requests are serialized once and answers are not parsed, so that the client costs as little as grpcio allows.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import time
from multiprocessing.connection import Connection

import grpc

from benchmarks.load.level import Level
from benchmarks.load.loops import Done, MonotonicClock, Send, Traffic, closed_loop, open_loop
from benchmarks.load.samples import Samples

UNLIMITED = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """The one request that a run repeats.

    Attributes:
        address: HOST:PORT.
        method: Path of the RPC.
        request: The serialized message.
        timeout_s: After how long an answer counts as missing.
    """

    address: str
    method: str
    request: bytes
    timeout_s: float


def serve(connection: Connection, shot: Shot, stop: ctypes.c_bool, answered: ctypes.c_int64) -> None:
    """Run levels that come over the connection until it closes, and answer each with its samples.

    Args:
        connection: Answers None when the process is connected to the server, then samples.
        shot: What to send.
        stop: Set by the other side to end a level early.
        answered: Counts the answers of the current level, for a progress display.
    """
    gc.disable()  # within a level it would pass for a slow server; a request leaves a few hundred bytes behind
    with connect(shot.address) as channel:
        send = _sender(channel, shot, answered)
        with contextlib.suppress(grpc.FutureTimeoutError):  # then the requests say what is wrong
            grpc.channel_ready_future(channel).result(shot.timeout_s)
        with contextlib.suppress(EOFError, OSError):  # the other side is gone, so nobody waits for more
            connection.send(None)
            while True:
                level = connection.recv()
                answered.value = 0
                gc.collect()
                connection.send(_run(level, send, stop))


def connect(address: str) -> grpc.Channel:
    """Open a channel without limits on the size of messages."""
    return grpc.insecure_channel(address, options=UNLIMITED)


def _sender(channel: grpc.Channel, shot: Shot, answered: ctypes.c_int64) -> Send:
    infer = channel.unary_unary(shot.method)

    def send(done: Done) -> None:
        def finish(future: grpc.Future) -> None:
            answered.value += 1
            done(future.code().name, future.details())

        infer.future(shot.request, timeout=shot.timeout_s).add_done_callback(finish)

    return send


def _run(level: Level, send: Send, stop: ctypes.c_bool) -> Samples:
    clock = MonotonicClock(lambda: stop.value)
    traffic = Traffic(send, clock)
    start, cpu = clock.now(), time.process_time()
    if level.rate:
        open_loop(traffic, clock, level.arrivals(start))
    else:
        allowed = level.allowance(start, clock.now)
        closed_loop(traffic, clock, level.callers, lambda: not stop.value and allowed())
    cpu_s = time.process_time() - cpu
    return Samples.of(traffic.records, start=start, cpu_s=cpu_s, unanswered=traffic.unanswered)
