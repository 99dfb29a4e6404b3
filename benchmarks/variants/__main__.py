"""Draws latency and variant over time of a server under rising load: ``python -m benchmarks.variants --svg FILE``.

Three networks of one interface are served as variants of one model, once with ``step_down`` and once without. The
server measures them, and the target is a multiple of what the best takes. Requests come at random times at rates that
rise from a fifth of what the best variant can do to what the fastest can do in part, then fall at once.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
from rich.console import Console
from rich.table import Table

from benchmarks.variants.chart import Run, draw
from benchmarks.variants.networks import QUALITIES, sample_image, write_variants
from benchmarks.variants.ramp import Answer, rising_and_falling, run_load
from trtnode.bench.environment import describe_load
from trtnode.bench.load.target import call
from trtnode.bench.server_process import free_port, inference_request, wait_until_ready
from trtnode.protos import ModelConfigRequest

MODEL = "classifier"
TARGET = 5.0
"""The target over the 95th percentile of the best variant."""

LOWEST, HIGHEST = 0.2, 0.4
"""The lowest rate as a share of what the best variant can do, and the highest of what the fastest can do."""

WIDTH = 140

MEASURING_MS = 1e6
"""A target that any variant holds, to learn what they take."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table and write the chart; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.variants", description=__doc__)
    parser.add_argument("--svg", type=pathlib.Path, required=True, help="file for the chart")
    parser.add_argument("--steps", type=int, default=8, help="steps of the rising load, from 2 (default: 8)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each step (default: 5)")
    parser.add_argument("--threads", type=int, default=1, help="of an execution (default: 1)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_variants(folder)
        with _serving(folder, options.threads, MEASURING_MS, step_down=False) as channel:
            figures = _figures(channel)
        best, fastest = figures[0], min(figures, key=lambda one: one["p50_ms"])
        target_ms = TARGET * best["p95_ms"]
        low, high = LOWEST * 1e3 / best["p50_ms"], HIGHEST * 1e3 / fastest["p50_ms"]
        steps = rising_and_falling(low, high, options.steps, options.seconds)
        request = inference_request(MODEL, {"image": sample_image()})
        runs = []
        for title, step_down in (("With step_down", True), ("Without step_down", False)):
            with _serving(folder, options.threads, target_ms, step_down=step_down) as channel:
                runs.append(Run(title, *run_load(channel, request, steps)))
    options.svg.write_text(draw(runs, steps, list(QUALITIES), target_ms), encoding="utf-8")
    _print(figures, runs, target_ms)
    return 0


@contextlib.contextmanager
def _serving(folder: pathlib.Path, threads: int, target_ms: float, *, step_down: bool) -> Iterator[grpc.Channel]:
    """Serve the variants in a process of its own, and connect."""
    port, config = free_port(), folder / "servable.yaml"
    model = {
        "name": MODEL,
        "variants": [{"path": f"{name}.onnx", "quality": quality} for name, quality in QUALITIES.items()],
        "latency_target_ms": target_ms,
        "step_down": step_down,
        "threads": threads,
        "engine": "native",
    }
    server = {"grpc": {"port": port}, "http": {"port": free_port()}, "log": {"level": "warning"}}
    content = {"server": server, "cache": {"dir": "cache"}, "models": [model]}
    config.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
    process = subprocess.Popen([sys.executable, "-m", "trtnode", "serve", "--config", str(config)])
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            wait_until_ready(channel, process)
            yield channel
    finally:
        process.terminate()
        process.wait()


def _figures(channel: grpc.Channel) -> list[dict[str, Any]]:
    """Return what the server has measured of its variants, the best first."""
    parameters = call(channel, "ModelConfig", ModelConfigRequest(name=MODEL)).config.parameters
    figures: list[dict[str, Any]] = json.loads(parameters["variants"].string_value)
    return figures


def _print(figures: Sequence[dict[str, Any]], runs: Sequence[Run], target_ms: float) -> None:
    console = Console(width=WIDTH)
    for one in figures:
        console.print(f"{one['name']}: quality {one['quality']:g}, {one['p50_ms']:.3g} ms, p95 {one['p95_ms']:.3g} ms")
    table = Table(title=f"Target {target_ms:.3g} ms")
    for heading in ("run", "answered", "refused", "late", "p50", "p99", "changes", "answers by variant"):
        table.add_column(heading, no_wrap=True)
    for run in runs:
        table.add_row(*_row(run, target_ms))
    console.print(table)
    console.print(f"Load average: {describe_load()}")


def _row(run: Run, target_ms: float) -> list[str]:
    latencies = sorted(one.latency_ms for one in run.answers)
    late = sum(one > target_ms for one in latencies) / len(latencies)
    quantiles = [f"{latencies[int(part * (len(latencies) - 1))]:.3g} ms" for part in (0.5, 0.99)]
    counts = {name: sum(one.variant == name for one in run.answers) for name in QUALITIES}
    by_variant = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    return [
        run.title,
        str(len(latencies)),
        str(run.refused),
        f"{late:.1%}",
        *quantiles,
        str(_changes(run.answers)),
        by_variant,
    ]


def _changes(answers: Sequence[Answer]) -> int:
    """Return how often the variant changed, in the order of the answers."""
    ordered = sorted(answers, key=lambda one: one.due_s + one.latency_ms / 1e3)
    return sum(one.variant != other.variant for one, other in itertools.pairwise(ordered))


if __name__ == "__main__":
    sys.exit(main())
