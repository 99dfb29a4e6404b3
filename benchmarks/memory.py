"""Memory of models that run natively: ``python -m benchmarks.memory``.

Each model runs in a plain ``onnxruntime.InferenceSession`` with defaults, in one without the arena, and as this program
opens it. Growth of memory is the median of several fresh processes. Latencies are measured in turns, each in a process
of its own; a second plain session shows the noise. DenseNet-121 is built here; the others are those of a folder.
The last table has several models in one process, one after the other: each with an arena of its own, and one for all.
Returns 1 if DenseNet-121 misses a target.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib
import json
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from rich.console import Console
from rich.table import Table

from benchmarks.defaults import generated_inputs
from benchmarks.engine_coverage.collection import find_cases
from benchmarks.partition import collection
from trtnode.bench.environment import describe_environment, describe_load
from trtnode.bench.latency.candidate_process import CandidateProcess, Recipe
from trtnode.bench.latency.interleaving import Interleaving, ratio_with_interval
from trtnode.bench.latency.openers import Opener, RunModel, open_onnxruntime
from trtnode.bench.networks import samples
from trtnode.bench.networks.normalization import set_statistics
from trtnode.bench.networks.resnet import densenet121
from trtnode.engines.artifact.files import write_atomically, write_model
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.memory_growth import MemoryGrowth, growth_of
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.compile.prepare import prepare_model
from trtnode.engines.errors import EngineError
from trtnode.engines.inputs.samples import Feeds
from trtnode.engines.onnxruntime.library import onnxruntime
from trtnode.engines.onnxruntime.memory_limit import limit_memory
from trtnode.partitioner.errors import PartitionError

DENSENET = "densenet121"
ARENA_LIMIT, GROWTH_LIMIT = 1.05, 0.6
"""Targets of DenseNet-121: the planned arena over the peak, and the growth of peak memory over ONNX Runtime's."""

PLAIN, AGAIN, NO_ARENA, HERE = "plain", "plain again", "no arena", "trtnode"
RUNS, TURNS_S, SETTLE_S, TIMEOUT_S = 10, 0.05, 0.02, 600.0
LIMIT_BYTES = 2**33
WIDTH = 130


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """Figures of one model; growth in bytes and ratios of times by setting, above 1 for faster than plain."""

    name: str
    plan: Mapping[str, Any]
    growth: Mapping[str, int]
    plain_ms: float
    ratios: Mapping[str, float]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a target is missed."""
    given = _parser().parse_args(arguments)
    environment = describe_environment()
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as name:
        subjects = list(_subjects(given.models, given.only, pathlib.Path(name)))
        rows = [row for subject in subjects if (row := _row(*subject, given)) is not None]
        together = _together([(path, feeds) for _, path, feeds in subjects], given) if len(subjects) > 1 else {}
    environment["load_average_after"] = describe_load()
    _print(rows, together, environment)
    if given.json:
        facts = {"environment": environment, "rows": [dataclasses.asdict(r) for r in rows], "together": together}
        write_atomically(given.json, json.dumps(facts, indent=1).encode())
    return 0 if all(_meets_targets(row) for row in rows if row.name == DENSENET) else 1


def _subjects(models: pathlib.Path, only: str, folder: pathlib.Path) -> Iterator[tuple[str, pathlib.Path, Feeds]]:
    path = folder / f"{DENSENET}.onnx"
    model = densenet121()
    set_statistics(model, samples.images(3, 224, batch=4, rng=np.random.default_rng(0)))
    write_model(ir.to_proto(model), path)
    yield DENSENET, path, samples.images(3, 224, batch=1, rng=np.random.default_rng(1))
    for case in find_cases(models, only):
        file = case.unpacked(folder)
        with contextlib.suppress(EngineError, PartitionError):
            yield case.name, file, case.request() or generated_inputs(file)


def _row(name: str, path: pathlib.Path, feeds: Feeds, given: argparse.Namespace) -> MemoryRow | None:
    try:
        _, report = partition_model(path, CompileOptions(engine=NATIVE))
        growth = {setting: _growth([(path, feeds)], setting, given) for setting in (PLAIN, NO_ARENA, HERE)}
        plain_ms, ratios = _latencies(path, feeds, given)
    except (EngineError, PartitionError) as error:
        print(f"{name}: left out: {error}", file=sys.stderr, flush=True)
        return None
    print(f"{name}: {growth[HERE] / 2**20:.1f} of {growth[PLAIN] / 2**20:.1f} MiB", file=sys.stderr, flush=True)
    assert report.memory is not None
    return MemoryRow(name=name, plan=report.memory["native"], growth=growth, plain_ms=plain_ms, ratios=ratios)


def _growth(models: Sequence[tuple[pathlib.Path, Feeds]], setting: str, given: argparse.Namespace, **more: bool) -> int:
    """Return the growth of peak memory in runs, in bytes: the median of fresh processes."""
    grown = []
    for _ in range(given.processes):
        with SubprocessWorker() as worker:
            grown.append(worker.call(_grow, TIMEOUT_S, models, setting, given.threads, **more).run_bytes)
    return int(statistics.median(grown))


def _grow(
    models: Sequence[tuple[pathlib.Path, Feeds]], setting: str, threads: int | None, *, one_arena: bool = False
) -> MemoryGrowth:
    """Load models and run them one after the other, in a child process."""
    if one_arena:
        limit_memory(LIMIT_BYTES)
    opener = OPENERS[setting]

    def run(opened: Sequence[RunModel]) -> None:
        for _ in range(RUNS):
            for model, (_, feeds) in zip(opened, models, strict=True):
                model(feeds)

    return growth_of(lambda: [opener(path, threads) for path, _ in models], run)


def _latencies(path: pathlib.Path, feeds: Feeds, given: argparse.Namespace) -> tuple[float, dict[str, float]]:
    """Return plain ONNX Runtime's median in ms, and how many times as fast other settings are."""
    with contextlib.ExitStack() as running:
        turns = {}
        for setting, opener in OPENERS.items():
            recipe = Recipe(setting=setting, engine=NATIVE, open=opener, model=path, threads=given.threads)
            turns[setting] = functools.partial(running.enter_context(CandidateProcess(recipe)).take_turn, feeds)
        interleaving = Interleaving(turns, seconds_per_turn=TURNS_S, settle_s=SETTLE_S)
        interleaving.run(given.rounds)
    latencies = interleaving.latencies()
    ratios = {s: ratio_with_interval(latencies[PLAIN], latencies[s])[0] for s in (AGAIN, NO_ARENA, HERE)}
    return latencies[PLAIN].percentile_ms(50), ratios


def _together(models: Sequence[tuple[pathlib.Path, Feeds]], given: argparse.Namespace) -> dict[str, int]:
    """Return the growth of one process by all models."""
    return {
        "plain": _growth(models, PLAIN, given),
        "trtnode, an arena each": _growth(models, HERE, given),
        "trtnode, one arena, as in a server": _growth(models, HERE, given, one_arena=True),
    }


def _open_again(model: pathlib.Path, threads: int | None) -> RunModel:
    return open_onnxruntime(model, threads)


def _open_without_arena(model: pathlib.Path, threads: int | None) -> RunModel:
    options = onnxruntime.SessionOptions()
    options.enable_cpu_mem_arena = False
    if threads is not None:
        options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return lambda feeds: list(session.run(None, feeds))


def _open_here(model: pathlib.Path, threads: int | None) -> RunModel:
    return prepare_model(model, CompileOptions(engine=NATIVE), threads=threads, shares_cores=False).run


OPENERS: Mapping[str, Opener] = {
    PLAIN: open_onnxruntime,
    AGAIN: _open_again,
    NO_ARENA: _open_without_arena,
    HERE: _open_here,
}


def _meets_targets(row: MemoryRow) -> bool:
    arena = row.plan["arena_bytes"] <= ARENA_LIMIT * row.plan["peak_bytes"]
    return bool(arena and row.growth[HERE] <= GROWTH_LIMIT * row.growth[PLAIN])


def _print(rows: Sequence[MemoryRow], together: Mapping[str, int], environment: Mapping[str, object]) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    load = f"load {environment['load_average']} before and {environment['load_average_after']} after"
    console.print(f"{environment['processor']}, {environment['cores']} cores, {load}")
    growth = (f"growth {setting}" for setting in (PLAIN, NO_ARENA, HERE))
    times = (f"{setting} x" for setting in (AGAIN, NO_ARENA, HERE))
    table = Table("model", "tensors MiB", "peak", "arena", *growth, "of plain", "plain ms", *times, title="Native runs")
    for row in rows:
        planned = (_mib(row.plan[key]) for key in ("total_bytes", "peak_bytes", "arena_bytes"))
        grown, ratios = map(_mib, row.growth.values()), (f"{ratio:.3f}" for ratio in row.ratios.values())
        part = f"{row.growth[HERE] / max(row.growth[PLAIN], 1):.2f}"
        table.add_row(row.name, *planned, *grown, part, f"{row.plain_ms:.3f}", *ratios)
    console.print(table)
    for setting, size in together.items():
        console.print(f"All in one process, {setting}: runs grow it by {_mib(size)} MiB")


def _mib(size: int | None) -> str:
    return "" if size is None else f"{size / 2**20:.1f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=pathlib.Path, default=collection.folder(), metavar="DIR", help="the folder")
    parser.add_argument("--only", default="*", metavar="GLOB", help="models with such a name; default: all")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="turns of each; default: 15")
    parser.add_argument("--processes", type=int, default=5, metavar="N", help="processes a figure; default: 5")
    parser.add_argument("--threads", type=int, metavar="N", help="threads; default: the library's choice")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures as one JSON object")
    return parser


if __name__ == "__main__":
    # Child processes import what they run by its module's name.
    sys.exit(importlib.import_module("benchmarks.memory").main())
