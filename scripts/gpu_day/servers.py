"""Servers under load."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.serving.servers import BenchmarkModel, our_server
from scripts.gpu_day.engines import used_kib
from scripts.gpu_day.networks import subject
from tests.serving.server_process import ServerProcess

CLIENTS, RELOADS = 8, 6
EIGHT = ("--concurrency", str(CLIENTS), "--requests", "4000")
CALLERS, SECONDS = 32, 5


def serve(folder: pathlib.Path) -> dict[str, Any]:
    """Serve the signed engine to several clients, load it again under load, and end it by SIGTERM."""
    config = folder / "servable.yaml"
    content = {
        "server": {"grpc": {"port": 0}, "http": {"port": 0}, "admin": {"repository": True}},
        "cache": {"dir": "server-cache"},
        "trust": {"keys": ["signed.pub"]},
        "models": [{"name": "digits", "path": "signed.onnx"}],
    }
    config.write_text(json.dumps(content))  # JSON is YAML
    used, server = [used_kib()], ServerProcess(config)
    try:
        client = server.client()
        with ThreadPoolExecutor(1) as other:
            load = other.submit(_load, server.address, folder, *EIGHT)
            for _ in range(RELOADS):
                client.load_model("digits")
        used.append(used_kib())
        code, log = server.end()
    finally:
        server.close()
    told = [line for line in log.splitlines() if "segment" in line]
    used.append(used_kib())
    facts = {"clients": CLIENTS, "reloads": RELOADS, "exit code": code, "KiB before, served, after": used}
    return {**facts, **load.result(), "log": told[0] if told else ""}


def workers(folder: pathlib.Path, count: str, name: str) -> dict[str, Any]:
    """Put load on a server of so many worker processes, on the CPU."""
    model = subject(folder, name)
    served = BenchmarkModel(
        file=model.model, shape=model.samples[0]["image"].shape, settings={"engine": "openvino"}, input="image"
    )
    with our_server(served, folder, workers=int(count)) as endpoint:
        return _load(
            endpoint.address, folder, "--concurrency", str(CALLERS), "--seconds", str(SECONDS), name=served.name
        )


def _load(address: str, folder: pathlib.Path, *level: str, name: str = "digits") -> dict[str, Any]:
    file = folder / "load.json"
    command = [
        sys.executable,
        "-m",
        "trtnode",
        "bench",
        "server",
        address,
        "--model",
        name,
        "--json",
        str(file),
        *level,
    ]
    subprocess.run(command, stdout=sys.stderr, check=True)
    (row,) = json.loads(file.read_text())["rows"]
    return {key: row[key] for key in ("requests", "errors", "throughput_per_s", "p50_ms", "p99_ms")}
