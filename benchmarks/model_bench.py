"""``trtnode bench model``: one model natively against compiled, in process and over gRPC, interleaved."""

from __future__ import annotations

import argparse
import json
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.environment import describe_environment
from benchmarks.grpc_client import inference_call, running_server
from benchmarks.latency import Latencies, measure, ratio_with_interval
from engines import CompileOptions, Executable, compile_model, load_executable
from engines.onnxruntime_backend import NativeSession
from engines.samples import find_samples, load_samples

ENGINES = {"native": "native", "fp32": "auto"}
"""Settings that are measured, and the engine of each. The first is the baseline."""

WIDTH = 110
"""Columns of the table where the output is no terminal."""

Row = dict[str, object]


def bench(arguments: argparse.Namespace) -> int:
    """Measure and print.

    Raises:
        PartitionError: The model can't be read.
        EngineError: The model can't be compiled, loaded or run.
    """
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as name:
        folder = pathlib.Path(name)
        executables, facts = _load(arguments.model, folder, arguments.threads)
        feeds = _feeds(arguments, executables["native"])
        rows: list[Row] = []
        if arguments.via in ("process", "both"):
            calls = {setting: _local_call(executable, feeds) for setting, executable in executables.items()}
            rows += _rows(arguments, "process", measure(calls, rounds=arguments.rounds), facts)
        if arguments.via in ("grpc", "both"):
            with running_server(ENGINES, arguments.model, folder, arguments.threads) as channel:
                remote = {setting: inference_call(channel, setting, executables[setting], feeds) for setting in ENGINES}
                rows += _rows(arguments, "grpc", measure(remote, rounds=arguments.rounds), facts)
        result = {"environment": describe_environment(), "rows": _with_errors(rows, executables, feeds)}
    if arguments.json:
        print(json.dumps(result))
    else:
        console = Console()
        _print(result, console if console.is_terminal else Console(width=WIDTH))
    return 0


def _load(
    model: pathlib.Path, folder: pathlib.Path, threads: int | None
) -> tuple[dict[str, Executable], dict[str, Row]]:
    """Load the model natively and compiled; also give what each needed."""
    compiled = compile_model(model, CompileOptions())
    path = folder / "compiled.onnx"
    compiled.save(path)
    executables: dict[str, Executable] = {}
    facts: dict[str, Row] = {}
    for setting, file in (("native", model), ("fp32", path)):
        start = time.perf_counter()
        executables[setting] = load_executable(file, threads=threads, shares_cores=True)
        facts[setting] = {
            "engine": executables[setting].description["engine"],
            "load_s": round(time.perf_counter() - start, 4),
            "engine_bytes": compiled.engine_bytes if setting != "native" else 0,
        }
    return executables, facts


def _feeds(arguments: argparse.Namespace, executable: Executable) -> Mapping[str, np.ndarray]:
    """The user's inputs or generated ones, cut or repeated along the first axis to the batch size."""
    names = {spec.name for spec in executable.inputs}
    if arguments.inputs:
        given = {name: array for name, array in load_samples(arguments.inputs).items() if name in names}
    else:
        samples = find_samples(NativeSession(arguments.model), executable.inputs, None)
        if not samples:
            raise SystemExit("The model runs on no generated input. Give inputs with --inputs IN.npz.")
        given = dict(samples[0])
    batched = {spec.name for spec in executable.inputs if spec.shape and not isinstance(spec.shape[0], int)}
    return {name: np.resize(a, (arguments.batch, *a.shape[1:])) if name in batched else a for name, a in given.items()}


def _local_call(executable: Executable, feeds: Mapping[str, np.ndarray]) -> Callable[[], object]:
    return lambda: executable.run(feeds)


def _rows(
    arguments: argparse.Namespace, via: str, latencies: Mapping[str, Latencies], facts: Mapping[str, Row]
) -> list[Row]:
    rows: list[Row] = []
    for setting, times in latencies.items():
        ratio, low, high = ratio_with_interval(latencies["native"], times)
        rows.append(
            {
                "network": arguments.model.stem,
                "setting": setting,
                "via": via,
                "batch": arguments.batch,
                "threads": arguments.threads,
                "p50_ms": round(times.percentile_ms(50), 5),
                "p95_ms": round(times.percentile_ms(95), 5),
                "p99_ms": round(times.percentile_ms(99), 5),
                "mean10_ms": round(times.mean10_ms, 5),
                "ratio": round(ratio, 3),
                "ratio_low": round(low, 3),
                "ratio_high": round(high, 3),
                **facts[setting],
            }
        )
    return rows


def _with_errors(rows: list[Row], executables: Mapping[str, Executable], feeds: Mapping[str, np.ndarray]) -> list[Row]:
    """Add the largest difference from native results to each row."""
    reference = executables["native"].run(feeds)
    for row in rows:
        results = executables[str(row["setting"])].run(feeds)
        row["max_abs"] = max((_error(results[n], a) for n, a in reference.items() if _numeric(a)), default=0.0)
    return rows


def _error(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(actual.astype(float) - expected.astype(float)).max(initial=0.0))


def _numeric(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fiub"


def _print(result: Mapping[str, object], console: Console) -> None:
    environment = result["environment"]
    assert isinstance(environment, dict)
    console.print(f"{environment['processor']}, {environment['cores']} cores, load {environment['load_average']}")
    table = Table()
    for heading in ("via", "setting", "engine", "p50 ms", "p95 ms", "p99 ms", "mean10", "ratio", "95 %", "error"):
        table.add_column(heading, no_wrap=True)
    rows = result["rows"]
    assert isinstance(rows, list)
    for row in rows:
        table.add_row(
            row["via"],
            row["setting"],
            row["engine"],
            *(f"{row[key]:.3f}" for key in ("p50_ms", "p95_ms", "p99_ms", "mean10_ms")),
            f"{row['ratio']:.2f}",
            f"{row['ratio_low']:.2f}-{row['ratio_high']:.2f}",
            f"{row['max_abs']:.1e}",
        )
    console.print(table)
    console.print("ratio: native p50 over this row's, with its 95 % interval; error: largest difference from native.")
