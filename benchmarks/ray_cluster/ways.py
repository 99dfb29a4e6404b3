"""The ways to a model on Ray: through Ray's proxy, straight to an ingress, and through HAProxy; and a plain server."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

import grpc

from benchmarks.ray_cluster.served import ServedOnRay
from benchmarks.ray_cluster.speed import (
    CALLERS,
    REQUESTS,
    call_of,
    closed_loop,
    milliseconds,
    own_connection,
    section,
    write_two_models,
)
from trtnode.bench.server_process import ServedFile, inference_request, running_server

DIRECT = "RAY_SERVE_ENABLE_DIRECT_INGRESS"
DIRECT_GRPC, DIRECT_HTTP = 40_000, 30_000
"""Ports of the first ingress where Ray has it take calls itself."""
WAYS: Mapping[str, Mapping[str, str] | None] = {
    "a plain server": None,
    "Ray's proxy": {},
    "direct ingress": {DIRECT: "1"},
    "HAProxy": {"RAY_SERVE_ENABLE_HA_PROXY": "1"},
}
"""The variables of each cluster; None for a plain server."""


def ways(folder: Path, rounds: int, requests: int, seconds: float) -> Iterator[tuple[str, str, float, float]]:
    """Yield way, model, median milliseconds of one caller, and answers per second of ``CALLERS`` callers.

    Args:
        folder: For all files; with a short path.
        rounds: Of each; the medians count. Servers are measured one after another, since each takes the same ports.
        requests: Of the one caller, in each round.
        seconds: Of the others, in each round.
    """
    files = write_two_models(folder)
    for number, (way, settings) in enumerate(WAYS.items()):
        own = folder / str(number)
        own.mkdir()
        with _connected(own, files, settings) as channel:
            for name in files:
                call = call_of(channel, inference_request(name, REQUESTS[name]))
                closed_loop([call] * CALLERS, 1)
                times = [statistics.median(milliseconds(call) for _ in range(requests)) for _ in range(rounds)]
                rates = [closed_loop([call] * CALLERS, seconds) for _ in range(rounds)]
                yield way, name, statistics.median(times), statistics.median(rates)


@contextlib.contextmanager
def _connected(
    folder: Path, files: Mapping[str, ServedFile], settings: Mapping[str, str] | None
) -> Iterator[grpc.Channel]:
    if settings is None:
        with running_server(files, folder, 1, cores=os.cpu_count()) as channel:
            yield channel
        return
    served = ServedOnRay(folder, settings=settings)
    try:
        served.process = served.run([section(name, one, 1) for name, one in files.items()])
        if DIRECT in settings:
            served.grpc, served.http = DIRECT_GRPC, DIRECT_HTTP
        served.wait_ready()
        with own_connection(served.grpc) as channel:
            yield channel
        served.stop()
    finally:
        served.close()
