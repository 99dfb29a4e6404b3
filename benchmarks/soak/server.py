"""The server process under test, with all features configured."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import grpc

from benchmarks.soak.expected_answers import SoakModel
from trtnode.bench.server_process import free_port, wait_until_ready
from trtnode.engines.build.options import EVERY_ENGINE

GRACE_S = 30.0

UNEXPECTED = ("unexpected", "Traceback", "Fatal Python error")
"""Words in a line of the log that reveal a defect of the server."""


class ServerProcess:
    """Process of ``trtnode serve`` with some models; the end of the context kills it if it still runs.

    Attributes:
        address: Of the gRPC port.
        http: URL of the HTTP port.
        folder: Of its models, cache, configuration and log.
    """

    def __init__(self, models: Sequence[SoakModel], folder: pathlib.Path) -> None:
        port, http_port = free_port(), free_port()
        self.address, self.http = f"127.0.0.1:{port}", f"http://127.0.0.1:{http_port}"
        self.folder = folder
        for model in models:
            model.put(folder, 0)
        config = folder / "servable.yaml"
        config.write_text(_config(models, folder, port, http_port), encoding="utf-8")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trtnode", "serve", "--config", str(config)],
                stderr=log,
                env={**os.environ, EVERY_ENGINE: "1"},  # its models are small, so engines would go
            )

    def __enter__(self) -> ServerProcess:
        with grpc.insecure_channel(self.address) as channel:
            wait_until_ready(channel, self._process)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        """Identifier of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True while it runs."""
        return self._process.poll() is None

    def stop(self) -> tuple[int | None, float]:
        """Send SIGTERM; return the exit code, None if it didn't end in time, and the seconds until the end."""
        started = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            code: int | None = self._process.wait(GRACE_S + 10)
        except subprocess.TimeoutExpired:
            code = None
        return code, time.monotonic() - started

    def complaints(self) -> list[str]:
        """Return the lines of its log about unexpected errors."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if any(word in line for word in UNEXPECTED)]

    def answered(self) -> int:
        """Return the number of successful inference requests in its log."""
        log = self._log.read_text(encoding="utf-8", errors="replace")
        return len(re.findall(r"Model(Stream)?Infer of \S+: OK in", log))

    @property
    def _log(self) -> pathlib.Path:
        return self.folder / "server.log"


def _config(models: Sequence[SoakModel], folder: pathlib.Path, port: int, http_port: int) -> str:
    content = {
        "server": {
            "grpc": {"port": port},
            "http": {"port": http_port},
            "admin": {"repository": True, "shared_memory": True, "settings": True},
            "shutdown_grace_s": GRACE_S,
            "log": {"level": "warning"},
        },
        "cache": {"dir": str(folder / "cache")},
        "models": [{"name": one.name, "path": str(one.file(folder)), **one.settings} for one in models],
    }
    return json.dumps(content)  # JSON is YAML
