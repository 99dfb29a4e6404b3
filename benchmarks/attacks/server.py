"""The server under attack, as a process with a bound on its descriptors."""

from __future__ import annotations

import json
import pathlib
import resource
import subprocess
import sys

import grpc
import onnx

from trtnode.bench.errors import BenchmarkError
from trtnode.bench.server_process import free_port, wait_until_ready

MODEL = pathlib.Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
WIDE = "wide"
"""A model that answers a number with 262,144 of them, which are 1 MiB."""
TEXT = "text"
"""A model that appends each of its strings to itself."""
OUTER = "outer"
"""A model whose result has as many rows as one input and as many columns as the other."""
MODELS = {
    WIDE: "(float[1] x) => (float[262144] y) { size = Constant <value_ints: ints = [262144]> () y = Expand (x, size) }",
    TEXT: "(string[n] x) => (string[n] y) { y = StringConcat (x, x) }",
    OUTER: "(float[n, 1] a, float[k, m] b) => (float[m] y) { c = Add (a, b) d = Constant <value_ints: ints = [0]> ()"
    " y = ReduceSum <keepdims = 0> (c, d) }",
}
"""Their graphs, by name."""


class AttackedServer:
    """A process of ``trtnode serve`` with its default limits; the end of the context kills it.

    Attributes:
        grpc: Address of the gRPC port.
        http: Address of the HTTP port.
        pid: Identifier of the process.
    """

    def __init__(self, folder: pathlib.Path, descriptors: int, workers: int) -> None:
        self.grpc, self.http = ("127.0.0.1", free_port()), ("127.0.0.1", free_port())
        content = {
            "server": {
                "grpc": {"port": self.grpc[1], "workers": workers},
                "http": {"port": self.http[1]},
                "log": {"level": "info"},
                "admin": {"repository": True, "shared_memory": True},
            },
            "cache": {"dir": str(folder / "cache")},
            "models": [
                {"name": "digits", "path": str(MODEL), "engine": "native"},
                *({"name": name, "path": str(_write(folder, name)), "engine": "native"} for name in MODELS),
            ],
        }
        config = folder / "servable.yaml"
        config.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
        self._log = folder / "server.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trtnode", "serve", "--config", str(config)],
                stderr=log,
            )
        # Not by a preexec_fn: that forks, and gRPC's threads in this process may not survive a fork.
        resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (descriptors, descriptors))
        self.pid = self._process.pid

    def __enter__(self) -> AttackedServer:
        with grpc.insecure_channel(f"{self.grpc[0]}:{self.grpc[1]}") as channel:
            try:
                wait_until_ready(channel, self._process)
            except RuntimeError as error:
                raise BenchmarkError("\n".join([str(error), *self.log_lines()[-1:]])) from error
        return self

    def __exit__(self, *_exception: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def alive(self) -> bool:
        """True while it runs."""
        return self._process.poll() is None

    def log_lines(self) -> list[str]:
        """Return its log."""
        return self._log.read_text(encoding="utf-8", errors="replace").splitlines()


def _write(folder: pathlib.Path, name: str) -> pathlib.Path:
    path = folder / f"{name}.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {name} {MODELS[name]}'), path)
    return path
