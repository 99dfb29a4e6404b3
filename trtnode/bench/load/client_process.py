"""A client process: it sends requests and records the answers, and does nothing else.

It gets its load levels over a pipe; the command's own process talks to the user. Requests are serialized once and
answers are not parsed, so the client costs as little as grpcio allows. Futures with callbacks serve the closed and the
open loop: threads and asyncio cost the client slightly more per call, so the choice is not what limits a row. Clients
run without gRPC's event engine, as servers do.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import time
from multiprocessing.connection import Connection

import grpc

from trtnode.bench.load.load_level import Level
from trtnode.bench.load.loops import Done, MonotonicClock, Send, Traffic, closed_loop, open_loop
from trtnode.bench.load.samples import Samples
from trtnode.engines.process_memory import keep_free_memory

UNLIMITED = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedRequest:
    """The one request that a run repeats.

    Attributes:
        address: HOST:PORT.
        method: Path of the RPC.
        request: The serialized message.
        timeout_s: Time limit of an answer.
    """

    address: str
    method: str
    request: bytes
    timeout_s: float


def serve(connection: Connection, repeated: RepeatedRequest, stop: ctypes.c_bool, answered: ctypes.c_int64) -> None:
    """Run the levels that arrive over the connection until it closes, and answer each with its samples.

    Args:
        connection: Gets None when the process is connected to the server, then samples.
        repeated: The request to send.
        stop: Set by the parent to end a level early.
        answered: Counts the answers of the current level, for a progress display.
    """
    keep_free_memory()  # else gRPC's copies of large requests cost page faults
    gc.disable()  # a collection within a level would look like a slow server
    with connect(repeated.address) as channel:
        send = _sender(channel, repeated, answered)
        with contextlib.suppress(grpc.FutureTimeoutError):  # then the requests fail with a reason
            grpc.channel_ready_future(channel).result(repeated.timeout_s)
        with contextlib.suppress(EOFError, OSError):  # the parent has ended
            connection.send(None)
            while True:
                level = connection.recv()
                answered.value = 0
                gc.collect()
                connection.send(_run(level, send, stop))


def connect(address: str) -> grpc.Channel:
    """Open a channel without limits on the size of messages."""
    return grpc.insecure_channel(address, options=UNLIMITED)


def _sender(channel: grpc.Channel, repeated: RepeatedRequest, answered: ctypes.c_int64) -> Send:
    infer = channel.unary_unary(repeated.method)

    def send(done: Done) -> None:
        def finish(future: grpc.Future) -> None:
            answered.value += 1
            done(future.code().name, future.details())

        infer.future(repeated.request, timeout=repeated.timeout_s).add_done_callback(finish)

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
