"""Measures the start of ``trtnode serve`` with a cached model: ``python -m benchmarks.start_up [MODEL.onnx]``.

Interleaved rounds of three processes: one that imports onnxruntime, openvino and grpc and loads an engine of the
model, ``trtnode serve`` until it is ready, and ``trtnode serve`` of a missing file. Processor time counts beside the
clock, which a busy machine falsifies. Whether the server runs the model natively or in engines is its own choice, by
measurement at its first start; ``--engine`` prescribes it.

``--models 30`` measures a server of so many small models instead: with empty caches, with ``startup: native`` and empty
caches, and with warm ones.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.small_models import write_models
from trtnode.bench.environment import describe_environment, describe_load
from trtnode.engines.backends.plugins import engine_names
from trtnode.engines.compile.processor_times import processor_s

ROUNDS, MODEL_ROUNDS = 9, 3
MODELS_LIMIT_S = 25.0
READY_LIMIT, MISSING_LIMIT_S = 1.5, 0.5
DIGITS = pathlib.Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"

EXPORT = """
import openvino, pathlib, sys
core = openvino.Core()
blob = core.compile_model(core.read_model(sys.argv[1]), "CPU").export_model().getbuffer()
pathlib.Path(sys.argv[2]).write_bytes(blob)
"""

BARE = """
import grpc, onnxruntime, openvino, pathlib, sys
openvino.Core().import_model(pathlib.Path(sys.argv[1]).read_bytes(), "CPU").create_infer_request()
print("ready on", file=sys.stderr, flush=True)
sys.stdin.read()
"""

MARK = "ready on"


EMPTY, NATIVE, WARM = "empty caches", "empty caches, startup: native", "warm caches"


class Start(NamedTuple):
    """Seconds until a process was ready, or had ended: by the clock, and of processors."""

    wall_s: float
    processor_s: float


def main() -> int:
    """Measure, print, and return 1 if a limit is exceeded."""
    arguments = _read_arguments()
    if arguments.models:
        return _measure_models(arguments)
    title = f"Medians of {arguments.rounds}"
    load = describe_load()
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as folder:
        starts = _measure(arguments, pathlib.Path(folder))
    bare, ready, missing = (_medians(starts[name]) for name in starts)
    console = _console(load)
    table = Table("process", "seconds", "over imports", "processor s", "over imports", title=title)
    for name, one in zip(starts, (bare, ready, missing), strict=True):
        wall, used = one.wall_s / bare.wall_s, one.processor_s / bare.processor_s
        table.add_row(name, f"{one.wall_s:.2f}", f"{wall:.2f}", f"{one.processor_s:.2f}", f"{used:.2f}")
    console.print(table)
    within = ready.wall_s <= READY_LIMIT * bare.wall_s and missing.wall_s <= MISSING_LIMIT_S
    console.print(f"Limits: ready at {READY_LIMIT} times, a missing file at {MISSING_LIMIT_S} s.")
    return 0 if within else 1


def _console(load: list[float]) -> Console:
    console = Console()
    environment = describe_environment()
    console.print(
        f"{environment['processor']}, {environment['cores']} cores, load {load} before, {describe_load()} now"
    )
    return console


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.start_up", description="Measures the start of a server."
    )
    parser.add_argument("model", nargs="?", type=pathlib.Path, default=DIGITS, help="default: the example network")
    parser.add_argument("--engine", choices=engine_names(), help="of the server; default: auto, its own choice")
    parser.add_argument("--models", type=int, default=0, metavar="N", help="small models of one server, instead")
    rounds = f"default: {ROUNDS}, or {MODEL_ROUNDS} with --models"
    parser.add_argument("--rounds", type=int, metavar="N", help=rounds)
    arguments = parser.parse_args()
    if arguments.rounds is None:
        arguments.rounds = MODEL_ROUNDS if arguments.models else ROUNDS
    if not arguments.model.is_file():
        parser.error(f"{arguments.model} is no file")
    if arguments.rounds < 1 or arguments.models < 0:
        parser.error("--rounds takes 1 or more, and --models 0 or more")
    return arguments


def _measure_models(arguments: argparse.Namespace) -> int:
    """Measure a server of many models, print, and return 1 if the limit is exceeded."""
    load = describe_load()
    starts: dict[str, list[Start]] = {}
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as name:
            for setting, start in _start_models(arguments, pathlib.Path(name)):
                starts.setdefault(setting, []).append(start)
    console = _console(load)
    title = f"A server of {arguments.models} models until it is ready: medians of {arguments.rounds}"
    table = Table("setting", "seconds", "processor s", title=title)
    medians = {setting: _medians(found) for setting, found in starts.items()}
    for setting, one in medians.items():
        table.add_row(setting, f"{one.wall_s:.1f}", f"{one.processor_s:.1f}")
    console.print(table)
    console.print(f"Limit: {MODELS_LIMIT_S} s with empty caches.")
    return 0 if medians[EMPTY].wall_s <= MODELS_LIMIT_S else 1


def _start_models(arguments: argparse.Namespace, folder: pathlib.Path) -> Iterator[tuple[str, Start]]:
    paths = write_models(arguments.models, folder)
    engine = {"engine": arguments.engine} if arguments.engine else {}
    models = [{"name": path.stem, "path": str(path), **engine} for path in paths]
    for setting, startup, cache in ((NATIVE, "native", "other"), (EMPTY, "wait", "cache"), (WARM, "wait", "cache")):
        config = folder / "servable.yaml"
        server = {"grpc": {"port": 0}, "http": {"port": 0}, "startup": startup, "log": {"level": "info"}}
        config.write_text(json.dumps({"server": server, "models": models}))
        environment = {**os.environ, "XDG_CACHE_HOME": str(folder / cache)}
        yield setting, _start([sys.executable, "-m", "trtnode", "serve", "--config", str(config)], environment)


def _measure(arguments: argparse.Namespace, folder: pathlib.Path) -> dict[str, list[Start]]:
    model = arguments.model
    engine = folder / "model.blob"
    subprocess.run([sys.executable, "-c", EXPORT, str(model), str(engine)], check=True)
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # the first start writes what later ones read
    serve = [sys.executable, "-m", "trtnode", "--log-level", "info", "serve"]
    options = ["--port", "0", "--http-port", "0", *(["--engine", arguments.engine] if arguments.engine else [])]
    settings: dict[str, Callable[[], Start]] = {
        "imports and engine": lambda: _start([sys.executable, "-c", BARE, str(engine)], environment),
        "serve, to ready": lambda: _start([*serve, str(model), *options], environment),
        "serve, missing file": lambda: _start([*serve, str(folder / "missing.onnx")], environment),
    }
    for run in settings.values():  # the first start of a server compiles the model
        run()
    starts: dict[str, list[Start]] = {name: [] for name in settings}
    for _ in range(arguments.rounds):
        for name, run in settings.items():
            starts[name].append(run())
    return starts


def _start(command: Sequence[str], environment: dict[str, str]) -> Start:
    """Run a process until it says that it is ready, or ends."""
    begin = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        next((line for line in child.stderr if MARK in line), None)
        wall_s = time.perf_counter() - begin
        used_s = processor_s(child.pid)
        child.terminate()
        child.communicate()
    return Start(wall_s, used_s)


def _medians(starts: Sequence[Start]) -> Start:
    return Start(*(statistics.median(figures) for figures in zip(*starts, strict=True)))


if __name__ == "__main__":
    sys.exit(main())
