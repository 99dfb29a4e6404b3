"""Compares tuned models with their alternatives: ``python -m benchmarks.tune [MODEL...]``.

A tuned model may take 1.05 times as long as the fastest of: all native, the one engine that gains most, and all engines
of the minimum cut. All of them run as they are served; all native is the source file in ONNX Runtime with its defaults.
Without arguments: the models of the collection that TRTNODE_MODEL_COLLECTION names, and a chain of 20 small segments.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.environment import describe_environment
from benchmarks.latency.interleaving import Latencies, measure
from engines import CompileOptions, EngineCache, EngineError, Executable, Worker, compile_model, load_executable
from engines.inputs.samples import find_samples
from engines.onnxruntime.session import NativeSession
from engines.runtime.executor import open_executable
from partitioner import PartitionError, PartitionOptions, load_model

LIMIT = 1.05
CHAIN = "chain of 20"
NATIVE_OP = "Sigmoid"
"""Operator between the segments of the chain."""

COLLECTION = pathlib.Path(__file__).parents[2] / "shared" / "models"
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
    table = Table("model", *OTHERS, "tuned", "engines", "chosen", "best", "tuned / best", title="p50 in ms")
    holds = True
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as folder, Worker() as worker:
        for name, source in _models(pathlib.Path(folder)):
            try:
                row = _measure(name, source, pathlib.Path(folder), worker)
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


def _models(folder: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    """Return name and file of each model to measure."""
    given = [pathlib.Path(argument) for argument in sys.argv[1:]]
    if given:
        return [(path.parent.name if path.name.startswith("model.") else path.stem, path) for path in given]
    collection = pathlib.Path(os.environ.get("TRTNODE_MODEL_COLLECTION", COLLECTION))
    files = (path for p in ("model.onnx", "model.onnx.gz") for path in (collection / "models").glob(f"*/{p}"))
    chain = folder / "chain.onnx"
    onnx.save(_chain(), chain)
    return [(CHAIN, chain), *sorted((path.parent.name, path) for path in files)]


def _measure(name: str, source: pathlib.Path, folder: pathlib.Path, worker: Worker) -> TuningRow | None:
    source = _unpacked(source, folder)
    samples = _samples(source, folder / "samples.npz")
    native_ops = (NATIVE_OP,) if name == CHAIN else ()
    options = CompileOptions(samples=samples, partition=PartitionOptions(native_ops=native_ops))
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
    return TuningRow(name=name, latencies=latencies, cut=cut, kept=kept, chosen=figures["chosen"])


def _segments(figures: Mapping[str, Sequence[Mapping[str, Sequence[str]]]], name: str) -> Sequence[str]:
    return next(c["segments"] for c in figures["candidates"] if c["name"] == name)


def _with_engines(compiled: pathlib.Path, segments: Sequence[str]) -> Executable:
    return open_executable(load_model(compiled), compiled, folder=compiled.parent, shares_cores=True, only=segments)


def _unpacked(model: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    if model.suffix != ".gz":
        return model
    unpacked = folder / "unpacked.onnx"
    unpacked.write_bytes(gzip.decompress(model.read_bytes()))
    return unpacked


def _samples(source: pathlib.Path, target: pathlib.Path) -> pathlib.Path | None:
    """Write the inputs that a collection has beside a model as .npz; None if there are none, or not only tensors."""
    case = source.parent / "case.json"
    if not case.exists():
        return None
    request = json.loads(case.read_text(encoding="utf-8"))["data"][0]
    if any(entry["kind"] != "tensor" for entry in request["inputs"].values()):
        return None
    with np.load(case.with_name(request["file"]), allow_pickle=False) as arrays:
        np.savez(target, **{name: arrays[entry["key"]] for name, entry in request["inputs"].items()})
    return target


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
