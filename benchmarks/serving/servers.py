"""Server processes on the loopback: ours, the bare server, and peers."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import grpc

from trtnode.bench.errors import BenchmarkError
from trtnode.bench.load.client_process import UNLIMITED
from trtnode.bench.server_process import free_port, wait_until_ready
from trtnode.serving.config.load import load_config
from trtnode.serving.errors import ConfigError
from trtnode.serving.executables.interface import ServedExecutable
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.threads.grpc_event_engine import read_directly_by_children

HOST = "127.0.0.1"
STOP_S = 20.0


class ServerStartError(BenchmarkError):
    """A server of the comparison ended, or didn't become ready."""

    exit_code = 1

    def __init__(self, name: str, reason: object, log: pathlib.Path) -> None:
        lines = log.read_text(errors="replace").strip().splitlines()
        super().__init__(f"{name} can't be measured: {reason} Its last words: {lines[-1] if lines else '(none)'}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model on a server.

    Attributes:
        address: HOST:PORT of its gRPC port.
        model: The model's name there.
        shape: Of its one input, float32, with a first dimension of 1.
        batched: True if the server joins requests. Its configuration then lacks the first dimension.
        shared_memory: True if tensors travel in system shared memory.
        streams: Number of inference streams that all callers share; 0 if each request is a call of its own.
        input: The input's name.
        process: The server's; 0 where it isn't known.
    """

    address: str
    model: str
    shape: tuple[int, ...]
    batched: bool = False
    shared_memory: bool = False
    streams: int = 0
    input: str = "x"
    process: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkModel:
    """A model to serve.

    Attributes:
        file: ONNX, with one float32 input, whose first dimension is open.
        shape: Of a request's input.
        settings: Further keys of the model's section in servable.yaml.
        input: The input's name.
    """

    file: pathlib.Path
    shape: tuple[int, ...]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    input: str = "x"

    @property
    def name(self) -> str:
        """The name that servers give it."""
        return self.file.stem


@contextlib.contextmanager
def our_server(model: BenchmarkModel, folder: pathlib.Path, **port: int) -> Iterator[Endpoint]:
    """Run ``trtnode serve``.

    Args:
        model: The model to serve.
        folder: For its configuration, its cache and its output.
        port: Keys of ``server.grpc``, such as ``workers``.

    Raises:
        ConfigError: This version doesn't know a setting.
        ServerStartError: It didn't become ready.
    """
    config, address = _write_config(model, folder, **port)
    load_config(config)
    command = [sys.executable, "-m", "trtnode", "serve", "--config", str(config)]
    with process("trtnode", command, address, folder) as number:
        endpoint = Endpoint(address=address, model=model.name, shape=model.shape, input=model.input, process=number)
        yield dataclasses.replace(endpoint, batched="batching" in model.settings)


@contextlib.contextmanager
def bare_server(model: BenchmarkModel, folder: pathlib.Path, *, processes: int = 1) -> Iterator[Endpoint]:
    """Run ``benchmarks.serving.bare_server`` with the real server's configuration, in one or more processes.

    Raises:
        ServerStartError: A process didn't become ready.
    """
    config, address = _write_config(model, folder, workers=processes)
    command = [sys.executable, "-m", "benchmarks.serving.bare_server", str(config)]
    with contextlib.ExitStack() as stack:
        with read_directly_by_children():
            numbers = [
                stack.enter_context(process("the bare server", [*command, str(place)], address, folder))
                for place in range(processes)
            ]
        number = numbers[0] if processes == 1 else 0
        yield Endpoint(address=address, model=model.name, shape=model.shape, process=number)


@contextlib.contextmanager
def process(
    name: str, command: Sequence[str], address: str, folder: pathlib.Path, environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Run a KServe V2 server while the context lasts, and give the number of its process.

    Args:
        name: For messages.
        command: Program and arguments.
        address: HOST:PORT of its gRPC port.
        folder: For its configuration and its output.
        environment: Of the process; None for that of this process.

    Raises:
        ServerStartError: It didn't become ready.
    """
    log = folder / f"{address.rpartition(':')[2]}.log"
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        try:
            with grpc.insecure_channel(address, options=UNLIMITED) as channel:
                wait_until_ready(channel, server)
        except RuntimeError as error:
            raise ServerStartError(name, error, log) from error
        yield server.pid
    finally:
        _stop(server)


def cpu_seconds(process: int) -> float:
    """Return the CPU time that a process and its children have taken so far; NaN for process 0. Linux only."""
    if not process:
        return math.nan
    folder = pathlib.Path(f"/proc/{process}")
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(map(cpu_seconds, _children(folder)))


def _children(folder: pathlib.Path) -> set[int]:
    children: set[int] = set()
    for file in folder.glob("task/*/children"):
        with contextlib.suppress(FileNotFoundError):  # the thread has ended meanwhile
            children.update(map(int, file.read_text().split()))
    return children


def served_executable(model: BenchmarkModel, folder: pathlib.Path) -> ServedExecutable:
    """Load a model into this process, as our server does."""
    config = load_config(_write_config(model, folder)[0])
    return engine_loader(config)(config.models[0])


def free_address() -> str:
    """Return HOST:PORT of a free port of the loopback."""
    return f"{HOST}:{free_port()}"


def refusal(error: ConfigError) -> str:
    """Return the text of a configuration error without the name of the generated file."""
    return str(error).partition(": ")[2] or str(error)


def _write_config(model: BenchmarkModel, folder: pathlib.Path, **grpc_port: int) -> tuple[pathlib.Path, str]:
    address = free_address()
    port = int(address.rpartition(":")[2])
    content = {
        "server": {
            "grpc": {"port": port, **grpc_port},
            "http": {"port": free_port()},
            "admin": {"shared_memory": True},
            "log": {"level": "warning"},
        },
        "cache": {"dir": str(folder / "cache")},
        "models": [{"name": model.name, "path": str(model.file.resolve()), **model.settings}],
    }
    config = folder / f"{port}.yaml"
    config.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
    return config, address


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(STOP_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
