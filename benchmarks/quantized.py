"""Measures quantized models in several ways: ``python -m benchmarks.quantized [PATTERN]``.

The ways take turns: ONNX Runtime by its defaults, as this project runs it natively, without integer kernels, and
compiled with OpenVINO. All have one thread, and processor time counts. Agreement is that with the third way, in which
QuantizeLinear and DequantizeLinear are computed as written. Models and requests come from the collection that
TRTNODE_MODEL_COLLECTION names.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.engine_coverage.collection import Case, find_cases
from trtnode.bench.environment import describe_environment
from trtnode.bench.latency.interleaving import Interleaving, ratio_with_interval
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.build.tolerance import accumulates_quantized
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.prepare import load_executable
from trtnode.engines.diagnostics.alignment import signal_to_noise_db
from trtnode.engines.diagnostics.profiling import NATIVE, profile_layers
from trtnode.engines.errors import EngineError
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.model.loading import load_model

COLLECTION = pathlib.Path(__file__).parents[2] / "shared" / "models"
DEFAULTS, EXACT, FLOATS, COMPILED = "defaults", "native", "float", "compiled"
INTEGERS = frozenset({"i8", "int8", "u8", "uint8"})
WIDTH = 150
ROUNDS = 11

Outputs = Sequence[np.ndarray]
Run = Callable[[Mapping[str, np.ndarray]], Outputs]


def main() -> int:
    """Measure, and print a table; return 1 if there is nothing to measure."""
    pattern = _read_pattern()
    console = Console(width=max(WIDTH, Console().width))
    console.print_json(data=describe_environment())
    root = pathlib.Path(os.environ.get("TRTNODE_MODEL_COLLECTION", COLLECTION))
    cases = [case for case in find_cases(root, pattern) if _is_quantized(case)]
    ratios = [f"{way} (95 %)" for way in (EXACT, FLOATS, COMPILED)]
    headings = ("model", "defaults, CPU ms", *ratios, "SQNR, dB: defaults, native, compiled", "decisions", "in engines")
    table = Table(*headings, title="compiled: trtnode compile --engine openvino")
    with tempfile.TemporaryDirectory() as folder, SubprocessWorker() as worker:
        for case in cases:
            try:
                table.add_row(case.name, *_measure(case, pathlib.Path(folder), worker))
            except (EngineError, PartitionError) as error:
                console.print(f"{case.name}: left out: {error}")
    console.print(table)
    console.print(
        "Ratios above 1 are faster. SQNR, and the share of equal largest elements: defaults, native, compiled."
    )
    return 0 if table.row_count else 1


def _read_pattern() -> str:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quantized", description="Measures quantized models in several ways."
    )
    parser.add_argument("pattern", nargs="?", default="*", help="glob over names of models; default: all")
    pattern: str = parser.parse_args().pattern
    return pattern


def _is_quantized(case: Case) -> bool:
    try:
        return accumulates_quantized(op.op_type for op in load_model(case.model).graph)
    except PartitionError:
        return False


def _measure(case: Case, folder: pathlib.Path, worker: SubprocessWorker) -> list[str]:
    compiled = folder / "compiled.onnx"
    model = compile_model(case.model, CompileOptions(engine="openvino"), worker=worker)
    model.save(compiled)
    report = model.report.as_json()
    executable, requests = load_executable(compiled, threads=1), _requests(case)
    ways: dict[str, Run] = {
        DEFAULTS: NativeSession(case.model, threads=1, shares_cores=False, exact=False).run,
        EXACT: NativeSession(case.model, threads=1, shares_cores=False).run,
        FLOATS: NativeSession(case.model, threads=1, shares_cores=False, unfused=True).run,
        COMPILED: lambda feeds: list(executable.run(feeds).values()),
    }
    calls = {name: functools.partial(run, requests[0]) for name, run in ways.items()}
    turns = Interleaving({name: functools.partial(_processor_times, call) for name, call in calls.items()})
    turns.run(ROUNDS)
    times = turns.latencies()
    answers = {name: [array for feeds in requests for array in run(feeds)] for name, run in ways.items()}
    others = (DEFAULTS, EXACT, COMPILED)
    ratios = (ratio_with_interval(times[DEFAULTS], times[name]) for name in (EXACT, FLOATS, COMPILED))
    return [
        f"{times[DEFAULTS].percentile_ms(50):.3f}",
        *(f"{middle:.2f} ({low:.2f} to {high:.2f})" for middle, low, high in ratios),
        ", ".join(_decibels(answers[FLOATS], answers[name]) for name in others),
        ", ".join(f"{_decisions(answers[FLOATS], answers[name]):.0%}" for name in others),
        f"{report['engine_nodes']} of {report['nodes']} nodes; {_integer_layers(compiled, requests[0])}",
    ]


def _processor_times(call: Callable[[], object], fewest: int, seconds: float) -> np.ndarray:
    """Return the processor's times of single calls in ms, which other programs change little."""
    times: list[int] = []
    deadline = time.monotonic() + seconds
    while len(times) < fewest or time.monotonic() < deadline:
        start = time.process_time_ns()
        call()
        times.append(time.process_time_ns() - start)
    return np.array(times) / 1e6


def _requests(case: Case) -> list[dict[str, np.ndarray]]:
    """Return the stored requests of a case; models with quantized sums take arrays alone."""
    assert case.description is not None
    requests = []
    for request in json.loads(case.description.read_text("utf-8"))["data"]:
        with np.load(case.description.with_name(request["file"]), allow_pickle=False) as arrays:
            requests.append({name: arrays[entry["key"]] for name, entry in request["inputs"].items()})
    return requests


def _decibels(expected: Outputs, actual: Outputs) -> str:
    least = min(signal_to_noise_db(one, other) for one, other in zip(expected, actual, strict=True))
    return "equal" if least == np.inf else f"{least:.1f}"


def _decisions(expected: Outputs, actual: Outputs) -> float:
    """Return the share of rows whose largest element is at the same place."""
    equal = [np.ravel(one.argmax(-1) == other.argmax(-1)) for one, other in zip(expected, actual, strict=True)]
    return float(np.concatenate(equal).mean())


def _integer_layers(compiled: pathlib.Path, feeds: Mapping[str, Any]) -> str:
    stages = profile_layers(compiled, feeds, None)
    layers = [layer for stage in stages if stage.engine != NATIVE for layer in stage.layers]
    return f"{sum(layer.precision in INTEGERS for layer in layers)} of {len(layers)} layers in int8"


if __name__ == "__main__":
    sys.exit(main())
