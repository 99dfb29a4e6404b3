"""What puts load on a server: perf_analyzer, Triton's own client in C++, or this project's generator in Python."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from benchmarks.errors import BenchmarkError
from benchmarks.grpc_client import inference_request
from benchmarks.load.caller import Shot, connect
from benchmarks.load.fleet import Fleet
from benchmarks.load.level import Level
from benchmarks.load.shared_memory import in_shared_memory
from benchmarks.load.target import INFER_METHOD, find_target
from benchmarks.serving.servers import Target
from protos import ModelInferRequest

TIMEOUT_S = 60.0
WINDOWS = 3
"""perf_analyzer's result is the mean of so many windows."""
LONGER = (1, 4)
"""A turn is tried once more, so many times as long: perf_analyzer fails where a window sees no request from its begin
to its end."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one turn of load measured.

    Attributes:
        throughput_per_s: Requests that succeeded, a second.
        p50_ms: Their median latency, in milliseconds.
    """

    throughput_per_s: float
    p50_ms: float


class LoadError(BenchmarkError):
    """A load generator couldn't measure."""

    exit_code = 1


Turn = Callable[[int, float], Figures]
"""Puts so many callers on a server, each of which waits for its answer, for so many seconds."""


class Load(Protocol):
    """A load generator.

    Attributes:
        name: For the page.
    """

    name: str

    def open(self, target: Target) -> contextlib.AbstractContextManager[Turn]:
        """Get ready to load a target."""
        ...


class PythonClient:
    """This project's generator: one client process over grpcio, which repeats one request."""

    name = "benchmarks/load (grpcio)"

    @contextlib.contextmanager
    def open(self, target: Target) -> Iterator[Turn]:
        """Send a first request and start the client process.

        Raises:
            TargetError: The server doesn't have the model, or takes no shared memory.
            ClientError: The client process died.
        """
        with _request(target) as request:
            shot = Shot(
                address=target.address,
                method=INFER_METHOD,
                request=request.SerializeToString(),
                timeout_s=TIMEOUT_S,
            )
            with Fleet(shot, 1) as fleet:
                yield lambda callers, seconds: _run(fleet, Level(callers=callers, seconds=seconds), target)


class PerfAnalyzer:
    """NVIDIA's perf_analyzer. The wheel of tritonclient 2.41 has it."""

    def __init__(self, program: pathlib.Path) -> None:
        self.name = f"{program.name} of Triton"
        self._program = program

    @contextlib.contextmanager
    def open(self, target: Target) -> Iterator[Turn]:
        """Nothing to get ready: each turn is a process of its own."""
        yield lambda callers, seconds: self._measure(target, callers, seconds)

    def _measure(self, target: Target, callers: int, seconds: float) -> Figures:
        for times in LONGER:
            found = self._try(target, callers, seconds * times)
            if isinstance(found, Figures):
                return found
        raise LoadError(f"perf_analyzer failed on {target.address}: {found}")

    def _try(self, target: Target, callers: int, seconds: float) -> Figures | str:
        """Return what it measured, or its last line."""
        shape = target.shape[1:] if target.batched else target.shape
        with tempfile.TemporaryDirectory(prefix="trtnode-load-") as folder:
            table = pathlib.Path(folder) / "figures.csv"
            options = {
                "-m": target.model,
                "-u": target.address,
                "-i": "grpc",
                "--concurrency-range": f"{callers}:{callers}",
                "--shape": f"{target.input}:{','.join(map(str, shape))}",
                "--shared-memory": "system" if target.shared_memory else "none",
                "--output-shared-memory-size": str(4 * int(np.prod(target.shape))),
                "-p": str(round(1000 * seconds / WINDOWS)),
                "-r": str(WINDOWS),
                "-s": "999",  # a window is stable whatever it differs from the others: the rounds' median judges
                "-f": str(table),
            }
            command = [str(self._program), *(part for option in options.items() for part in option)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode or not table.exists():
                return _last_line(done.stdout + done.stderr)
            return read_figures(table)


def read_figures(table: pathlib.Path) -> Figures:
    """Read what perf_analyzer wrote with ``-f``: a heading and one row; latencies there are in microseconds."""
    with table.open(encoding="utf-8", newline="") as file:
        row = next(csv.DictReader(file))
    return Figures(throughput_per_s=float(row["Inferences/Second"]), p50_ms=float(row["p50 latency"]) / 1000)


def find_perf_analyzer(given: pathlib.Path | None) -> PerfAnalyzer | str:
    """Return perf_analyzer, or a sentence that says why there is none.

    Args:
        given: The program; None for the one beside this interpreter, where tritonclient 2.41 puts it.
    """
    program = given or pathlib.Path(sys.executable).with_name("perf_analyzer")
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"perf_analyzer is not there ({program}: {error.strerror})"
    if done.returncode and "Perf Analyzer" not in done.stdout + done.stderr:
        return f"perf_analyzer doesn't run ({_last_line(done.stdout + done.stderr)})"
    return PerfAnalyzer(program)


@contextlib.contextmanager
def _request(target: Target) -> Iterator[ModelInferRequest]:
    x = np.random.default_rng(0).standard_normal(target.shape, np.float32)
    request = inference_request(target.model, {target.input: x})
    if not target.shared_memory:
        yield request
        return
    with connect(target.address) as channel:
        found = find_target(channel, target.address, target.model)
        response = found.call("ModelInfer", request)
        with in_shared_memory(found, request, response, TIMEOUT_S) as moved:
            yield moved


def _run(fleet: Fleet, level: Level, target: Target) -> Figures:
    samples = fleet.run(level, lambda _answers: None)
    if fleet.interrupted:
        raise KeyboardInterrupt
    if samples.errors or not samples.requests:
        told = next(iter(samples.messages.values()), "no request was answered")
        raise LoadError(f"The server at {target.address} doesn't answer under load: {told}")
    return Figures(
        throughput_per_s=len(samples.latencies_ms) / samples.seconds, p50_ms=float(np.median(samples.latencies_ms))
    )


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
