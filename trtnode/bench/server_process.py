"""A server process to measure, and a minimal client."""

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

from trtnode.protos import ModelInferRequest, ModelInferResponse, ServerReadyRequest, ServerReadyResponse
from trtnode.serving.protocol.tensors import to_raw
from trtnode.serving.protocol.wire_signature import BYTES, DATATYPES, Datatype, WireTensor
from trtnode.serving.service.rpc_table import SERVICE_NAME

START_SECONDS = 120.0
PORTS = range(10_000, 32_768)
"""Ports below those that Linux assigns by itself."""
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServedFile:
    """A model file to serve.

    Attributes:
        file: The model file, compiled or not.
        engine: The model's engine, as in servable.yaml.
    """

    file: Path
    engine: str


@contextlib.contextmanager
def running_server(models: Mapping[str, ServedFile], folder: Path, threads: int | None) -> Iterator[grpc.Channel]:
    """Serve models and connect.

    Args:
        models: The models by name.
        folder: For the configuration and the engine cache.
        threads: Threads of each engine; None for the libraries' choice.
    """
    port = free_port()
    config = folder / "servable.yaml"
    config.write_text(_config(models, folder, threads, port), encoding="utf-8")
    server = subprocess.Popen([sys.executable, "-m", "trtnode", "serve", "--config", str(config)])
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
    """Return a function that sends the same request at each call.

    Args:
        channel: To the server.
        model: The model's name there.
        feeds: The inputs.
    """
    request = inference_request(model, feeds)
    infer = channel.unary_unary(
        f"/{SERVICE_NAME}/ModelInfer",
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
    """Wait until a KServe V2 server is ready.

    Raises:
        RuntimeError: Its process ended, or the time limit passed.
    """
    ready = channel.unary_unary(
        f"/{SERVICE_NAME}/ServerReady",
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


def _config(models: Mapping[str, ServedFile], folder: Path, threads: int | None, port: int) -> str:
    content = {
        "server": {
            "grpc": {"port": port, "max_message_mb": 1024},
            "http": {"port": free_port()},
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
    """Return a free port of the loopback, of those that the system doesn't assign by itself."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
