"""Compares tuned models with their alternatives: ``python -m benchmarks.tune [MODEL...]``.

A tuned model may take 1.05 times as long as the fastest of: all native, the one engine that gains most, and all engines
of the minimum cut. All of them run as they are served; all native is the source file in ONNX Runtime with its defaults.
Without arguments: the models of the collection that TRTNODE_MODEL_COLLECTION names, and a chain of 20 small segments.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.engine_coverage.collection import DESCRIPTION, Case, find_cases
from benchmarks.partition import collection
from trtnode.bench.environment import describe_environment
from trtnode.bench.latency.interleaving import Latencies, measure
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.prepare import load_executable
from trtnode.engines.errors import EngineError
from trtnode.engines.inputs.samples import find_samples
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.runtime.executor import Executable, open_executable
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.model.loading import load_model
from trtnode.serving.cli.run import save_arrays

LIMIT = 1.05
CHAIN = "chain of 20"
NATIVE_OP = "Sigmoid"
"""Operator between the segments of the chain."""

OTHERS = ("all native", "one engine", "minimum cut")
WIDTH = 130


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TuningRow:
    """Latencies of one model, tuned and otherwise."""

    name: str
    latencies: Mapping[str, Latencies]
    cut: int
    kept: int
    chosen: str

    @property
    def best(self) -> str:
        """Name of the fastest alternative."""
        return min(OTHERS, key=lambda name: self.latencies[name].percentile_ms(50))

    @property
    def ratio(self) -> float:
        """Time of the tuned model over that of the fastest alternative: median over rounds."""
        tuned, best = self.latencies["tuned"], self.latencies[self.best]
        return float(np.median(tuned.round_medians() / best.round_medians()))


def main() -> int:
    """Measure, print, and return 1 if a tuned model is too slow."""
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    environment = describe_environment()
    console.print(f"{environment['processor']}, {environment['cores']} cores, load {environment['load_average']}")
    headings = ("model", *OTHERS, "tuned", "engines", "chosen", "best", "tuned / best")
    table = Table(*headings, title="p50 in ms; tuned: trtnode compile --tune")
    holds = True
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as folder, SubprocessWorker() as worker:
        for case in _cases(pathlib.Path(folder)):
            name = case.name
            try:
                row = _measure(case, pathlib.Path(folder), worker)
            except (EngineError, PartitionError) as error:
                console.print(f"{name}: left out: {error}")
                continue
            if row is None:
                console.print(f"{name}: left out: it has no engine, or runs on no generated input")
                continue
            holds &= row.ratio <= LIMIT
            console.print(f"{name}: {row.chosen}, {row.ratio:.3f} times {row.best}")
            times = (f"{row.latencies[c].percentile_ms(50):.3f}" for c in (*OTHERS, "tuned"))
            table.add_row(name, *times, f"{row.kept} of {row.cut}", row.chosen, row.best, f"{row.ratio:.3f}")
    if not table.row_count:
        console.print("Nothing was measured, so nothing is known.")
        return 1
    console.print(table)
    console.print(f"Every tuned model takes at most {LIMIT} times the best: {'yes' if holds else 'no'}.")
    return 0 if holds else 1


def _cases(folder: pathlib.Path) -> list[Case]:
    """Return the models to measure."""
    given = [pathlib.Path(argument) for argument in sys.argv[1:]]
    if given:
        beside = [path.with_name(DESCRIPTION) for path in given]
        return [
            Case(name=str(path), model=path, description=description if description.exists() else None)
            for path, description in zip(given, beside, strict=True)
        ]
    chain = folder / "chain.onnx"
    onnx.save(_chain(), chain)
    return [Case(name=CHAIN, model=chain), *find_cases(collection.folder() / "models")]


def _measure(case: Case, folder: pathlib.Path, worker: SubprocessWorker) -> TuningRow | None:
    source = case.unpacked(folder)
    samples = None if (request := case.request()) is None else folder / "samples.npz"
    if samples is not None and request is not None:
        save_arrays(samples, request)
    native_ops = (NATIVE_OP,) if case.name == CHAIN else ()
    options = CompileOptions(check_inputs=samples, all_engines=True, partition=PartitionOptions(native_ops=native_ops))
    cache = EngineCache(folder / "cache", 10**10)
    plain, tuned = folder / "plain.onnx", folder / "tuned.onnx"
    compile_model(source, options, cache=cache, worker=worker).save(plain)
    to_tune = dataclasses.replace(options, tune=True, shares_cores=True)
    compiled = compile_model(source, to_tune, cache=cache, worker=worker)
    compiled.save(tuned)
    figures = compiled.report.tuning
    if figures is None:
        return None
    executables = {
        "all native": load_executable(source, shares_cores=True),
        "one engine": _with_engines(plain, _segments(figures, "one engine")),
        "minimum cut": load_executable(plain, shares_cores=True, trust=cache.trust),
        "tuned": load_executable(tuned, shares_cores=True, trust=cache.trust),
    }
    feeds = _feeds(source, samples, executables["all native"])
    calls = {candidate: functools.partial(executable.run, feeds) for candidate, executable in executables.items()}
    latencies = measure(calls, rounds=41, seconds_per_round=0.04)
    cut = len(_segments(figures, "minimum cut"))
    kept = len(compiled.report.segments)
    return TuningRow(name=case.name, latencies=latencies, cut=cut, kept=kept, chosen=figures["chosen"])


def _segments(figures: Mapping[str, Sequence[Mapping[str, Sequence[str]]]], name: str) -> Sequence[str]:
    return next(c["segments"] for c in figures["candidates"] if c["name"] == name)


def _with_engines(compiled: pathlib.Path, segments: Sequence[str]) -> Executable:
    return open_executable(load_model(compiled), compiled, folder=compiled.parent, shares_cores=True, only=segments)


def _feeds(source: pathlib.Path, samples: pathlib.Path | None, executable: Executable) -> Mapping[str, np.ndarray]:
    return find_samples(NativeSession(source), executable.inputs, samples)[0]


def _chain() -> onnx.ModelProto:
    """Return a chain of 20 segments of three small nodes, with native nodes between them."""
    nodes = []
    value = "x"
    for index in range(20):
        steps = ("Relu", "Neg", "Abs", NATIVE_OP) if index < 19 else ("Relu", "Neg", "Abs")
        for step, op in enumerate(steps):
            nodes.append(f"v{index}_{step} = {op}({value})")
            value = f"v{index}_{step}"
    nodes.append(f"y = Identity({value})")
    text = " ".join(nodes)
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> chain (float[1,64] x) => (float[1,64] y) {{ {text} }}'
    )


if __name__ == "__main__":
    sys.exit(main())
