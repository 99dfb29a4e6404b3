"""A server process to measure, and the least client that can talk to it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import grpc
import numpy as np
import onnx_ir

from protos import (
    DESCRIPTOR,
    ModelInferRequest,
    ModelInferResponse,
    ServerReadyRequest,
    ServerReadyResponse,
)
from serving.signature import BYTES, DATATYPES, Datatype, WireTensor
from serving.tensors import to_raw

SERVICE = DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
START_SECONDS = 120.0
PORTS = range(10_000, 32_768)
"""Below those that Linux takes for connections and for servers that leave the choice to it."""
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model of the server.

    Attributes:
        file: The model file, compiled or not.
        engine: As in servable.yaml.
    """

    file: Path
    engine: str


@contextlib.contextmanager
def running_server(models: Mapping[str, Served], folder: Path, threads: int | None) -> Iterator[grpc.Channel]:
    """Serve models and connect.

    Args:
        models: What to serve, by name.
        folder: Where the configuration and the engine cache may be written.
        threads: Threads of each engine; None leaves it to the libraries.
    """
    port, http_port = free_port(), free_port()
    config = folder / "servable.yaml"
    config.write_text(_config(models, folder, threads, port, http_port), encoding="utf-8")
    server = subprocess.Popen([sys.executable, "-m", "serving.cli", "serve", "--config", str(config)])
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=UNLIMITED) as channel:
            wait_until_ready(channel, server)
            yield channel
    finally:
        server.terminate()
        server.wait()


def inference_call(
    channel: grpc.Channel, model: str, feeds: Mapping[str, np.ndarray]
) -> Callable[[], ModelInferResponse]:
    """A call without arguments that sends the same request again and again.

    Args:
        channel: To the server.
        model: Its name there.
        feeds: The inputs.
    """
    request = inference_request(model, feeds)
    infer = channel.unary_unary(
        f"/{SERVICE}/ModelInfer",
        request_serializer=ModelInferRequest.SerializeToString,
        response_deserializer=ModelInferResponse.FromString,
    )
    return lambda: infer(request)


def inference_request(model: str, feeds: Mapping[str, np.ndarray]) -> ModelInferRequest:
    """Return the request to run a model on arrays, as raw contents."""
    request = ModelInferRequest(model_name=model)
    for name, array in feeds.items():
        tensor = WireTensor(name, _datatype(array), None, f"Input {name!r}")
        request.inputs.add(name=name, datatype=tensor.datatype.name, shape=array.shape)
        request.raw_input_contents.append(to_raw(tensor, array))
    return request


def _datatype(array: np.ndarray) -> Datatype:
    return BYTES if array.dtype.kind in "OUS" else DATATYPES[onnx_ir.DataType.from_numpy(array.dtype)]


def wait_until_ready(channel: grpc.Channel, server: subprocess.Popen[bytes]) -> None:
    """Wait until a server of ours, or of another make, says that it is ready.

    Raises:
        RuntimeError: Its process ended, or it takes too long.
    """
    ready = channel.unary_unary(
        f"/{SERVICE}/ServerReady",
        request_serializer=ServerReadyRequest.SerializeToString,
        response_deserializer=ServerReadyResponse.FromString,
    )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"The server stopped with exit code {server.returncode}.")
        with contextlib.suppress(grpc.RpcError):
            if ready(ServerReadyRequest(), timeout=1.0).ready:
                return
        time.sleep(0.1)
    raise RuntimeError(f"The server was not ready within {START_SECONDS:g} s.")


def _config(models: Mapping[str, Served], folder: Path, threads: int | None, port: int, http_port: int) -> str:
    content = {
        "server": {
            "grpc": {"port": port, "max_message_mb": 1024},
            "http": {"port": http_port},
            "log": {"level": "warning"},
        },
        "cache": {"dir": str(folder / "cache")},
        "models": [
            {"name": name, "path": str(served.file.resolve()), "engine": served.engine, "threads": threads}
            for name, served in models.items()
        ],
    }
    return json.dumps(content)  # JSON is YAML


def free_port() -> int:
    """Return a port of the loopback that nobody listens on, and that the system gives to nobody who asks for any."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
