"""Measures the start of a server on a machine that is new to a shared cache: ``python -m benchmarks.shared_cache``.

Interleaved rounds of servers with one model (``MODEL.onnx``, or the digits): one with the compiled file in its own
cache, and new ones with an empty cache of their own and the file in the shared one. Then once a server that builds.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from trtnode.bench.environment import describe_environment, describe_load
from trtnode.bench.server_process import free_port

ROUNDS = 7
LIMIT_S = 2.0
DIGITS = pathlib.Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"
MARK, LOADED = "ready on", re.compile(r"Loaded model 'm'.* engine openvino")
BUILDS = re.compile(r'^trtnode_engine_builds_total\{model="m".*\} (\d+)', re.MULTILINE)
OWN, TAKES, NATIVE, BUILDS_ALL = "own file", "takes the file", "answers natively, then takes it", "builds all"


class Start(NamedTuple):
    """Seconds until a server was ready, and the engines that it had built when it had loaded its engines."""

    ready_s: float
    built: int


def main() -> int:
    """Measure, print, and return 1 if the limit is exceeded."""
    model = _read_model().resolve()
    load = describe_load()
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as folder:
        starts = _measure(model, pathlib.Path(folder))
    console, environment = Console(), describe_environment()
    cores = f"{environment['processor']}, {environment['cores']} cores"
    console.print(f"{cores}, load {load} before, {describe_load()} now")
    table = Table("server", "ready, s", "engines built", title=f"{model.name}: medians of {ROUNDS}")
    for name, found in starts.items():
        table.add_row(name, f"{_median(found):.2f}", str(max(one.built for one in found)))
    console.print(table)
    later_s, built = _median(starts[TAKES]) - _median(starts[OWN]), max(one.built for one in starts[TAKES])
    console.print(f"A new machine is ready {later_s:+.2f} s later (limit {LIMIT_S} s) and builds {built} engines.")
    return 0 if later_s <= LIMIT_S and built == 0 else 1


def _read_model() -> pathlib.Path:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shared_cache", description="Measures starts of servers that share engines."
    )
    parser.add_argument("model", nargs="?", type=pathlib.Path, default=DIGITS, help="default: the example network")
    model: pathlib.Path = parser.parse_args().model
    return model


def _measure(model: pathlib.Path, folder: pathlib.Path) -> dict[str, list[Start]]:
    starts: dict[str, list[Start]] = {OWN: [], TAKES: [], NATIVE: [], BUILDS_ALL: []}
    starts[BUILDS_ALL].append(_start(model, folder, "own", "wait"))
    for number in range(ROUNDS):
        starts[OWN].append(_start(model, folder, "own", "wait"))
        starts[TAKES].append(_start(model, folder, f"new{number}", "wait"))
        starts[NATIVE].append(_start(model, folder, f"native{number}", "native"))
    return starts


def _start(model: pathlib.Path, folder: pathlib.Path, cache: str, startup: str) -> Start:
    """Start a server with a cache, and end it once it has loaded its engines."""
    config, http = folder / f"{cache}.yaml", free_port()
    config.write_text(
        f"server: {{startup: {startup}, grpc: {{port: 0}}, http: {{port: {http}}}}}\n"
        f"cache: {{dir: {cache}, shared: store}}\n"
        f"models: [{{name: m, path: {model}, engine: openvino, measure: false}}]\n"
    )
    begin = time.perf_counter()
    command = [sys.executable, "-m", "trtnode", "serve", "--config", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        ready_s: float | None = None
        loaded = False
        for line in server.stderr:
            if MARK in line:
                ready_s = time.perf_counter() - begin
            loaded = loaded or LOADED.search(line) is not None
            if ready_s is not None and loaded:
                break
        assert ready_s is not None, "the server ended"
        with urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics") as answer:
            (built,) = BUILDS.findall(answer.read().decode())
        server.terminate()
        server.communicate()
    return Start(ready_s, int(built))


def _median(starts: list[Start]) -> float:
    return statistics.median(one.ready_s for one in starts)


if __name__ == "__main__":
    sys.exit(main())
