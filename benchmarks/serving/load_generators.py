"""Load generators: perf_analyzer, which is Triton's client in C++, or this project's generator in Python."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import math
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.shared_memory import SharedMemory
from typing import Protocol

import grpc
import numpy as np

from benchmarks.serving.servers import Endpoint, cpu_seconds
from trtnode.bench.errors import BenchmarkError
from trtnode.bench.load.client_pool import ClientProcessPool
from trtnode.bench.load.client_process import RepeatedRequest, connect
from trtnode.bench.load.load_level import Level
from trtnode.bench.load.target import INFER_METHOD, Target, call, find_target
from trtnode.bench.server_process import inference_request
from trtnode.protos import (
    ModelInferRequest,
    ModelStatisticsRequest,
    SystemSharedMemoryRegisterRequest,
    SystemSharedMemoryUnregisterRequest,
)

TIMEOUT_S = 60.0
WINDOWS = 3
"""Number of windows that perf_analyzer takes the mean of."""

LONGER = (1, 4)
"""Length of each attempt of a turn, in turns: perf_analyzer fails if no request begins and ends within a window."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """Figures of one turn of load.

    Attributes:
        throughput_per_s: Successful requests per second.
        p50_ms: Their median latency, in milliseconds.
        cpu_us: CPU time of the server's processes per request, in microseconds; NaN where it wasn't measured. Other
            programs on the machine change it least.
    """

    throughput_per_s: float
    p50_ms: float
    cpu_us: float = math.nan


class LoadError(BenchmarkError):
    """A load generator couldn't measure."""

    exit_code = 1


LoadTurn = Callable[[int, float], LoadFigures]
"""Puts a number of callers on a server for a number of seconds; each caller waits for its answer."""


class Load(Protocol):
    """A load generator.

    Attributes:
        name: For the output.
    """

    name: str

    def open(self, endpoint: Endpoint) -> contextlib.AbstractContextManager[LoadTurn]:
        """Prepare load on an endpoint."""
        ...


class PythonClient:
    """This project's generator: one client process over grpcio, which repeats one request."""

    name = "bench/load (grpcio)"

    @contextlib.contextmanager
    def open(self, endpoint: Endpoint) -> Iterator[LoadTurn]:
        """Send a first request and start the client process.

        Raises:
            TargetError: The server doesn't have the model.
            ClientError: The client process died.
        """
        with _request(endpoint) as request:
            repeated = RepeatedRequest(
                address=endpoint.address,
                method=INFER_METHOD,
                request=request.SerializeToString(),
                timeout_s=TIMEOUT_S,
            )
            with ClientProcessPool(repeated, 1) as pool:
                yield lambda callers, seconds: _run(pool, Level(callers=callers, seconds=seconds), endpoint)


class PerfAnalyzer:
    """NVIDIA's perf_analyzer. The wheel of tritonclient 2.41 has it."""

    def __init__(self, program: pathlib.Path) -> None:
        self.name = f"{program.name} of Triton"
        self._program = program

    @contextlib.contextmanager
    def open(self, endpoint: Endpoint) -> Iterator[LoadTurn]:
        """Connect, to ask the server for its counts: each turn is a process of its own."""
        with connect(endpoint.address) as channel:

            def turn(callers: int, seconds: float) -> LoadFigures:
                answers, cpu_s = _answers(channel, endpoint), cpu_seconds(endpoint.process)
                found = self._measure(endpoint, callers, seconds)
                spent_us = 1e6 * (cpu_seconds(endpoint.process) - cpu_s)
                # Processes that share a port are not measured, and each counts for itself.
                return dataclasses.replace(found, cpu_us=spent_us / max(1, _answers(channel, endpoint) - answers))

            yield turn

    def _measure(self, endpoint: Endpoint, callers: int, seconds: float) -> LoadFigures:
        for times in LONGER:
            found = self._try(endpoint, callers, seconds * times)
            if isinstance(found, LoadFigures):
                return found
        raise LoadError(f"perf_analyzer failed on {endpoint.address}: {found}")

    def _try(self, endpoint: Endpoint, callers: int, seconds: float) -> LoadFigures | str:
        """Return the figures, or the last line of the output if it failed."""
        shape = endpoint.shape[1:] if endpoint.batched else endpoint.shape
        with tempfile.TemporaryDirectory(prefix="trtnode-load-") as folder:
            table = pathlib.Path(folder) / "figures.csv"
            options = {
                "-m": endpoint.model,
                "-u": endpoint.address,
                "-i": "grpc",
                "--concurrency-range": f"{callers}:{callers}",
                "--shape": f"{endpoint.input}:{','.join(map(str, shape))}",
                "--shared-memory": "system" if endpoint.shared_memory else "none",
                "--output-shared-memory-size": str(4 * int(np.prod(endpoint.shape))),
                "-p": str(round(1000 * seconds / WINDOWS)),
                "-r": str(WINDOWS),
                "-s": "999",  # any window counts as stable: the median over rounds decides
                "-f": str(table),
            }
            command = [str(self._program), *(part for option in options.items() for part in option)]
            if endpoint.streams:
                command += ["--streaming", "--async", "--max-threads", str(endpoint.streams)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode or not table.exists():
                return _last_line(done.stdout + done.stderr)
            return read_figures(table)


def read_figures(table: pathlib.Path) -> LoadFigures:
    """Read the table of ``perf_analyzer -f``: a heading and one row, with latencies in microseconds."""
    with table.open(encoding="utf-8", newline="") as file:
        row = next(csv.DictReader(file))
    return LoadFigures(throughput_per_s=float(row["Inferences/Second"]), p50_ms=float(row["p50 latency"]) / 1000)


def find_perf_analyzer(given: pathlib.Path | None) -> PerfAnalyzer | str:
    """Return perf_analyzer, or a sentence that says why there is none.

    Args:
        given: The program; None for the one beside this interpreter, where tritonclient 2.41 puts it.
    """
    program = given or pathlib.Path(sys.executable).with_name("perf_analyzer")
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"perf_analyzer is not installed ({program}: {error.strerror})"
    if done.returncode and "Perf Analyzer" not in done.stdout + done.stderr:
        return f"perf_analyzer doesn't run ({_last_line(done.stdout + done.stderr)})"
    return PerfAnalyzer(program)


def _answers(channel: grpc.Channel, endpoint: Endpoint) -> int:
    """Return how many requests the server has answered so far, as it counts them itself."""
    found = call(channel, "ModelStatistics", ModelStatisticsRequest(name=endpoint.model))
    return sum(version.inference_stats.success.count for version in found.model_stats)


@contextlib.contextmanager
def _request(endpoint: Endpoint) -> Iterator[ModelInferRequest]:
    x = np.random.default_rng(0).standard_normal(endpoint.shape, np.float32)
    request = inference_request(endpoint.model, {endpoint.input: x})
    if not endpoint.shared_memory:
        yield request
        return
    with connect(endpoint.address) as channel:
        found = find_target(channel, endpoint.address, endpoint.model)
        with _in_shared_memory(found, request) as moved:
            yield moved


@contextlib.contextmanager
def _in_shared_memory(target: Target, request: ModelInferRequest) -> Iterator[ModelInferRequest]:
    """Yield a request without data, whose tensors, an input and an output of its size, lie in shared memory."""
    (data,) = request.raw_input_contents
    memory = SharedMemory(create=True, size=2 * len(data))
    try:
        assert memory.buf is not None
        memory.buf[: len(data)] = data
        moved = ModelInferRequest(model_name=request.model_name, inputs=request.inputs)
        moved.outputs.add(name=target.metadata.outputs[0].name)
        for offset, tensor in ((0, moved.inputs[0]), (len(data), moved.outputs[0])):
            tensor.parameters["shared_memory_region"].string_param = memory.name
            tensor.parameters["shared_memory_offset"].int64_param = offset
            tensor.parameters["shared_memory_byte_size"].int64_param = len(data)
        region = SystemSharedMemoryRegisterRequest(name=memory.name, key=f"/{memory.name}", byte_size=memory.size)
        target.call("SystemSharedMemoryRegister", region)
        yield moved
        target.call("SystemSharedMemoryUnregister", SystemSharedMemoryUnregisterRequest(name=memory.name))
    finally:
        memory.close()
        memory.unlink()


def _run(pool: ClientProcessPool, level: Level, endpoint: Endpoint) -> LoadFigures:
    before_s = cpu_seconds(endpoint.process)
    samples = pool.run(level, lambda _answers: None)
    spent_s = cpu_seconds(endpoint.process) - before_s
    if pool.interrupted:
        raise KeyboardInterrupt
    if samples.errors or not samples.requests:
        message = next(iter(samples.messages.values()), "no request was answered")
        raise LoadError(f"The server at {endpoint.address} doesn't answer under load: {message}")
    return LoadFigures(
        throughput_per_s=len(samples.latencies_ms) / samples.seconds,
        p50_ms=float(np.median(samples.latencies_ms)),
        cpu_us=1e6 * spent_s / samples.requests,
    )


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
