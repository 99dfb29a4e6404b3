"""Measures what ``lengths`` gains for an encoder of texts: ``python -m benchmarks.lengths MODEL.onnx``.

Two servers, with ``lengths: auto`` and without, take turns. Texts have 1 to 512 words: a log-normal distribution with a
median of 25, of which 1 % are over 200. ``ONEDNN_MAX_CPU_ISA=AVX2`` in the environment shows a lesser processor.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.serving.servers import BenchmarkModel, our_server
from trtnode.bench.environment import describe_environment
from trtnode.bench.server_process import inference_call

LONGEST, MEDIAN, SPREAD = 512, 25, 0.894
"""Words of a text; the last is the standard deviation of the logarithm."""

MANY = 500
"""Lengths whose requests make memory grow."""

TIMED = 60
"""Those of them whose first request is compared with the next ones."""

CALLERS = (2, 4, 16, 64)
PART_OF_LOAD = 0.6
WORDS = 1000
WITHOUT, WITH = "without", "with lengths"


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """A server under measurement."""

    infer: Callable[[int], float]
    """Sends a text of so many words; returns the seconds until its answer."""
    resident_mb: Callable[[], float]


def main() -> int:
    """Measure and print; return the exit code."""
    what = "Measures a server of an encoder of texts with and without lengths."
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lengths", description=what)
    parser.add_argument("model", type=pathlib.Path, metavar="MODEL.onnx", help="with int64 inputs of [rows, words]")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="length of a turn; default: 5")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each server; default: 3")
    arguments = parser.parse_args()
    environment = describe_environment()
    console = Console()
    console.print(f"{environment['processor']}, {environment['cores']} cores, load {environment['load_average']}")
    table = Table("figure", WITHOUT, WITH, "ratio")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trtnode-bench-")))
        settings = {WITHOUT: {}, WITH: {"lengths": "auto"}}
        servers = {
            name: stack.enter_context(serve_texts(arguments.model, folder, more)) for name, more in settings.items()
        }
        for row in (*_memory(servers), *_loads(servers, arguments.seconds, arguments.rounds)):
            console.print(*row)
            table.add_row(row[0], *(f"{figure:,.3g}" for figure in row[1:]))
    console.print(table)
    return 0


Row = tuple[str, float, float, float]
"""A figure, and its ratio: above 1 is more."""


def _row(figure: str, values: dict[str, float]) -> Row:
    return figure, values[WITHOUT], values[WITH], values[WITH] / values[WITHOUT]


def _memory(servers: dict[str, Server]) -> Iterator[Row]:
    """Yield growth by many lengths, and the time of the first request of a length over that of the next ones."""
    lengths = np.random.default_rng(0).permutation(np.arange(1, LONGEST + 1))[:MANY].tolist()
    growth, first = {}, {}
    for name, server in servers.items():
        ratios = []
        for number, length in enumerate(lengths):
            took = [server.infer(length) for _ in range(4 if number < TIMED else 1)]
            if number < TIMED:
                ratios.append(took[0] / statistics.median(took[1:]))
            if number == 9:
                before = server.resident_mb()
        growth[name], first[name] = server.resident_mb() / before, statistics.median(ratios)
    yield _row(f"RSS after {MANY} lengths over that after ten", growth)
    yield _row("first request of a length over the next ones", first)


def _loads(servers: dict[str, Server], seconds: float, rounds: int) -> Iterator[Row]:
    """Yield throughput by callers, and latencies: at a part of the load that one server takes, and of a lone caller."""

    def turns(measure: Callable[[Server, int], float]) -> dict[str, float]:
        taken = [{name: measure(server, turn) for name, server in servers.items()} for turn in range(rounds)]
        return {name: statistics.median(one[name] for one in taken) for name in servers}

    def throughput(callers: int) -> dict[str, float]:
        return turns(lambda server, turn: len(closed_loop(server, callers, seconds, turn)) / seconds)

    rates = {}
    for callers in CALLERS:
        rates[callers] = throughput(callers)
        yield _row(f"answers/s, {callers} callers", rates[callers])
    rate = PART_OF_LOAD * rates[16][WITHOUT]
    late = turns(lambda server, turn: float(np.quantile(_open(server, rate, seconds, turn), 0.99)) * 1e3)
    yield _row(f"p99 at {rate:.0f} requests/s, ms", late)
    lone = turns(lambda server, turn: statistics.median(closed_loop(server, 1, seconds, turn)) * 1e3)
    yield _row("p50 of a lone caller, ms", lone)


def closed_loop(server: Server, callers: int, seconds: float, seed: int) -> Sequence[float]:
    """Return the latencies of callers that each wait for their answer."""
    end = time.monotonic() + seconds

    def call(number: int) -> list[float]:
        texts, latencies = text_lengths(1000 * seed + number), []
        while time.monotonic() < end:
            latencies.append(server.infer(next(texts)))
        return latencies

    with ThreadPoolExecutor(callers) as threads:
        return [latency for some in threads.map(call, range(callers)) for latency in some]


def _open(server: Server, rate: float, seconds: float, seed: int) -> Sequence[float]:
    """Return the latencies of requests that are due at random times, whatever the answers take."""
    due = time.monotonic() + np.cumsum(np.random.default_rng(seed).exponential(1 / rate, int(rate * seconds)))
    texts, latencies = text_lengths(seed), []

    def call(at: float, length: int) -> None:
        server.infer(length)
        latencies.append(time.monotonic() - at)

    with ThreadPoolExecutor(256) as threads:
        for at in due.tolist():
            time.sleep(max(0.0, at - time.monotonic()))
            threads.submit(call, at, next(texts))
    return latencies


def text_lengths(seed: int) -> Iterator[int]:
    """Yield lengths of texts, in words."""
    rng = np.random.default_rng(seed)
    while True:
        yield int(np.clip(np.exp(rng.normal(np.log(MEDIAN), SPREAD)), 1, LONGEST))


@contextlib.contextmanager
def serve_texts(file: pathlib.Path, folder: pathlib.Path, settings: dict[str, str]) -> Iterator[Server]:
    """Serve an encoder with batching and these settings of its model."""
    names = [one.name for one in onnx.load(file, load_external_data=False).graph.input]
    model = BenchmarkModel(file=file, shape=(), settings={"batching": {}, "engine": "openvino", **settings})
    with our_server(model, folder) as endpoint, grpc.insecure_channel(endpoint.address) as channel:
        local = threading.local()

        def infer(length: int) -> float:
            rng = getattr(local, "rng", None)
            if rng is None:
                rng = local.rng = np.random.default_rng(threading.get_ident())
            words = rng.integers(1, WORDS, (1, length))
            ones, zeros = np.ones_like(words), np.zeros_like(words)
            feeds = {name: ones if "mask" in name else zeros if "type" in name else words for name in names}
            began = time.monotonic()
            inference_call(channel, endpoint.model, feeds)()
            return time.monotonic() - began

        def resident_mb() -> float:
            status = pathlib.Path(f"/proc/{endpoint.process}/status").read_text(encoding="utf-8")
            return int(status.partition("VmRSS:")[2].split()[0]) / 1024

        yield Server(infer, resident_mb)


if __name__ == "__main__":
    sys.exit(main())
