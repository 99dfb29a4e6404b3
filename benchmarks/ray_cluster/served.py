"""``trtnode serve --on ray`` as a process on a cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trtnode.bench.server_process import free_port

READY_S = 240.0
STOP_S = 120.0
ANSWERED = re.compile(rb"^nv_inference_request_success\{.*\} [1-9]", re.MULTILINE)


class ServedOnRay:
    """The command, its configuration, and the ports of Ray's proxies.

    Attributes:
        grpc: The port for gRPC.
        http: The port for HTTP.
        process: The command that is in the foreground.
        log: What all commands have written.
    """

    def __init__(self, folder: Path, address: str = "", settings: Mapping[str, str] | None = None) -> None:
        """Prepare.

        Args:
            folder: For configuration, cache and log; and for Ray, where the command starts a cluster.
            address: Of the cluster; empty to have the command start one.
            settings: Variables of the command.
        """
        self.grpc, self.http = free_port(), free_port()
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[bytes]] = []
        self._folder = folder
        # Sockets in the folder have short names only.
        self._environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": str(folder), **(settings or {})}
        self._environment.pop("RAY_ADDRESS", None)
        if address:
            self._environment["RAY_ADDRESS"] = address

    def run(self, models: Sequence[Mapping[str, Any]], **server: Any) -> subprocess.Popen[bytes]:
        """Start the command with these models; a first one goes on until it sees that it is replaced."""
        config = self._folder / "servable.yaml"
        ports = {"grpc": {"port": self.grpc}, "http": {"port": self.http}}
        content = {
            "server": {**ports, **server},
            "cache": {"dir": str(self._folder / "cache")},
            "models": models,
        }
        config.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
        command = [sys.executable, "-m", "trtnode", "serve", "--config", str(config), "--on", "ray"]
        with self.log.open("ab") as log:
            self._started.append(subprocess.Popen(command, stdout=log, stderr=log, env=self._environment))
        return self._started[-1]

    def start(self, models: Sequence[Mapping[str, Any]], **server: Any) -> None:
        """Serve, and wait as an operator does: by the probe."""
        self.process = self.run(models, **server)
        self.wait_ready()

    def replace(self, models: Sequence[Mapping[str, Any]]) -> None:
        """Serve other models, and wait until the command before has ended."""
        before, self.process = self.process, self.run(models)
        assert before is not None
        if before.wait(READY_S) != 0:
            raise RuntimeError(f"the command that was replaced ended with {before.returncode}: {self.log}")

    def wait_ready(self) -> None:
        """Wait until the cluster is ready.

        Raises:
            RuntimeError: The command ended.
            TimeoutError: It takes too long.
        """
        deadline = time.monotonic() + READY_S
        while self.get("/readyz")[0] != 200:
            if self.process is not None and self.process.poll() is not None:
                raise RuntimeError(f"the command ended with {self.process.returncode}:\n{self.log.read_text()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"not ready: {self.log.read_text()}")
            time.sleep(0.5)

    def wait_for_answers_of(self, replicas: int) -> None:
        """Wait until so many replicas have each answered a request.

        Raises:
            TimeoutError: It takes too long.
        """
        deadline = time.monotonic() + READY_S
        while len(ANSWERED.findall(self.get("/metrics")[1])) < replicas:
            if time.monotonic() > deadline:
                raise TimeoutError(f"fewer than {replicas} replicas answer: {self.log.read_text()}")
            time.sleep(0.5)

    def get(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body of a page, or of a request with a body; 0 where nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", body, timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 0, b""

    def stop(self) -> int:
        """End it as an orchestrator does; return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)

    def close(self) -> None:
        """Kill what is still there."""
        for process in self._started:
            process.kill()
            process.wait()
