"""Measures the whole command ``trtnode explain`` beside a plain load of the same file by ONNX Runtime."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from benchmarks.partition.graphs import NATIVE_OPS, generate
from trtnode.bench.errors import BenchmarkError

SIZES = (20_000, 100_000)
"""Nodes of the graphs."""

NATIVE_SHARE = 0.1

TURNS = 3
"""Number of processes of each method, in turns. The median counts."""

EXPLAIN, PAGE, ORT = "trtnode explain", "trtnode explain --html --json", "onnxruntime.InferenceSession"

_LOAD = "import onnxruntime, sys; onnxruntime.InferenceSession(sys.argv[1])"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommandRow:
    """Processes of one method on one file, imports included.

    Attributes:
        source: Family of the graph.
        nodes: Size of the graph.
        native_share: Share of native nodes.
        method: ``EXPLAIN``, ``PAGE`` or ``ORT``.
        cpu_s: Median time of all cores in a process and its children, user and system.
        wall_s: Median duration.
        page_bytes: Size of the page that it wrote, if any.
    """

    source: str
    nodes: int
    native_share: float
    method: str
    cpu_s: float
    wall_s: float
    page_bytes: int | None = None


def measure_commands(families: Sequence[str], sizes: Sequence[int] = SIZES, turns: int = TURNS) -> list[CommandRow]:
    """Measure every method on a graph of each family and size."""
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as name:
        folder = pathlib.Path(name)
        return [row for family in families for size in sizes for row in _measure(folder, family, size, turns)]


def _measure(folder: pathlib.Path, family: str, size: int, turns: int) -> list[CommandRow]:
    file, page = folder / "model.onnx", folder / "page.html"
    ir.save(generate(family, size=size, native_share=NATIVE_SHARE).model, file)
    explain = (sys.executable, "-m", "trtnode", "explain", str(file), "--native-ops", ",".join(sorted(NATIVE_OPS)))
    commands = {
        EXPLAIN: explain,
        PAGE: (*explain, "--html", str(page), "--json"),
        ORT: (sys.executable, "-c", _LOAD, str(file)),
    }
    times = _take_turns(commands, turns)
    return [
        CommandRow(
            source=family,
            nodes=size,
            native_share=NATIVE_SHARE,
            method=method,
            cpu_s=statistics.median(cpu_s for cpu_s, _ in times[method]),
            wall_s=statistics.median(wall_s for _, wall_s in times[method]),
            page_bytes=page.stat().st_size if method == PAGE else None,
        )
        for method in commands
    ]


def _take_turns(commands: Mapping[str, Sequence[str]], turns: int) -> dict[str, list[tuple[float, float]]]:
    with tempfile.TemporaryDirectory(prefix="trtnode-bytecode-") as bytecode:
        for command in commands.values():
            _run(command, bytecode)  # fills the disk's cache, that of the library's verdicts, and that of bytecode
        times: dict[str, list[tuple[float, float]]] = {method: [] for method in commands}
        for _ in range(turns):
            for method, command in commands.items():
                times[method].append(_run(command, bytecode))
    return times


def _run(command: Sequence[str], bytecode: str) -> tuple[float, float]:
    """Run a process. Returns its CPU time, with that of its children, and its duration, in seconds.

    Args:
        command: The program and its arguments.
        bytecode: Folder for compiled Python modules, which an installation of the package has too.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BenchmarkError(f"{' '.join(command)} returned {process.returncode}. Run it alone to see why.")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - start
