"""Sets what ``trtnode compile`` makes by default beside plain ONNX Runtime: ``python -m benchmarks.defaults``.

Each model of a folder is compiled without any option, and timed against an ``onnxruntime.InferenceSession`` of its
source with defaults. Both take turns, each in a process of its own, with the same number of threads. Inputs are those
of the stored requests, else generated ones. Models that ONNX Runtime runs in less than 1 ms are left out. Returns 1 if
a model has less than 0.95 times the speed of ONNX Runtime. A second ONNX Runtime takes turns too, and shows the noise.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.collection import Case, find_cases
from benchmarks.partition import collection
from trtnode.bench.environment import describe_environment, describe_load
from trtnode.bench.latency.candidate_process import CandidateProcess, Recipe
from trtnode.bench.latency.interleaving import Interleaving, ratio_with_interval
from trtnode.bench.latency.openers import open_compiled, open_onnxruntime
from trtnode.engines.artifact.files import write_atomically
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.errors import EngineError
from trtnode.engines.inputs.samples import Feeds, find_samples
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.runtime.plan_loading import signature_of
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import load_model

LEAST_MS = 1.0
LIMIT = 0.95
DEFAULT, AGAIN = "default", "native again"
SETTLE_S = 0.02
WIDTH = 130


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DefaultRow:
    """Figures of one model.

    Attributes:
        name: Of the model.
        native_ms: Median latency in ONNX Runtime alone.
        default_ms: Median latency as compiled.
        ratio: ONNX Runtime's time over the compiled model's, a median over interleaved rounds; above 1 is faster.
        ratio_low: Lower end of its 95 % bootstrap interval.
        ratio_high: Upper end.
        fastest_ratio: The same of the fastest call of each, which a busy machine disturbs least.
        again: The ratio of a second ONNX Runtime, which is 1 but for noise.
        engines: Number of engines that stay.
        minimum_segments: Number of engines without the choice.
        chosen: Candidate that the brief measurement has chosen; empty where there was nothing to choose.
        compile_s: Time of the compilation, builds and measurement included.
    """

    name: str
    native_ms: float
    default_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    fastest_ratio: float
    again: float
    engines: int
    minimum_segments: int
    chosen: str
    compile_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a model is slower than the limit."""
    given = _parser().parse_args(arguments)
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    environment = describe_environment()
    rows: list[DefaultRow] = []
    for case in find_cases(given.models, given.only):
        try:
            row = _measure(case, given.rounds, given.threads)
        except (EngineError, PartitionError) as error:
            print(f"{case.name}: left out: {error}", file=sys.stderr, flush=True)
            continue
        if row is not None:
            rows.append(row)
            print(
                f"{row.name}: {row.ratio:.3f} ({row.again:.3f}), {row.chosen or 'no engine'}",
                file=sys.stderr,
                flush=True,
            )
    environment["load_average_after"] = describe_load()
    if not rows:
        print(f"{str(given.models)!r} has no model of {LEAST_MS:g} ms or more that runs here", file=sys.stderr)
        return 2
    _print(rows, environment, console)
    if given.json:
        facts = {"environment": environment, "threads": given.threads, "rows": [dataclasses.asdict(r) for r in rows]}
        write_atomically(given.json, json.dumps(facts, indent=1).encode())
    return 0 if min(row.ratio for row in rows) >= LIMIT else 1


def _measure(case: Case, rounds: int, threads: int | None) -> DefaultRow | None:
    """Measure a model; None where ONNX Runtime alone takes too little time to compare."""
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as name, contextlib.ExitStack() as running:
        folder = pathlib.Path(name)
        source, compiled = case.unpacked(folder), folder / "compiled.onnx"
        feeds = case.request() or generated_inputs(source)
        recipe = Recipe(setting=NATIVE, engine=NATIVE, open=open_onnxruntime, model=source, threads=threads)
        native = running.enter_context(CandidateProcess(recipe))
        if np.median(native.take_turn(feeds, 5, 0.0)[1:]) < LEAST_MS:
            return None
        began = time.perf_counter()
        made = compile_model(source, CompileOptions(threads=threads))
        seconds = time.perf_counter() - began
        made.save(compiled)
        recipe = dataclasses.replace(recipe, setting=DEFAULT, engine=made.engine, open=open_compiled, model=compiled)
        default = running.enter_context(CandidateProcess(recipe))
        again = running.enter_context(CandidateProcess(dataclasses.replace(native.recipe, setting=AGAIN)))
        turns = {c.recipe.setting: functools.partial(c.take_turn, feeds) for c in (native, default, again)}
        interleaving = Interleaving(turns, seconds_per_turn=0.1, settle_s=SETTLE_S)
        interleaving.run(rounds)
    latencies = interleaving.latencies()
    ratio, low, high = ratio_with_interval(latencies[NATIVE], latencies[DEFAULT])
    return DefaultRow(
        name=case.name,
        native_ms=latencies[NATIVE].percentile_ms(50),
        default_ms=latencies[DEFAULT].percentile_ms(50),
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        fastest_ratio=latencies[NATIVE].percentile_ms(0) / latencies[DEFAULT].percentile_ms(0),
        again=ratio_with_interval(latencies[NATIVE], latencies[AGAIN])[0],
        engines=len(made.report.segments),
        minimum_segments=made.report.minimum_segments,
        chosen=made.report.tuning["chosen"] if made.report.tuning else "",
        compile_s=seconds,
    )


def generated_inputs(source: pathlib.Path) -> Feeds:
    """Return inputs on which a model runs.

    Raises:
        EngineError: There are none.
    """
    session = NativeSession(source, name=str(source))
    samples = find_samples(session, signature_of(Graph.of(load_model(source))).inputs, None)
    if not samples:
        raise EngineError(f"{source}: it runs on no generated input.")
    return samples[0]


def _print(rows: Sequence[DefaultRow], environment: dict[str, object], console: Console) -> None:
    load = f"load {environment['load_average']} before and {environment['load_average_after']} after"
    console.print(f"{environment['processor']}, {environment['cores']} cores, {load}")
    headings = (
        "model",
        "ONNX Runtime ms",
        "default ms",
        "ratio (95 %)",
        "of the fastest",
        "again",
        "engines",
        "compile s",
    )
    table = Table(*headings, title="trtnode compile without options, p50")
    for row in rows:
        interval = f"{row.ratio:.3f} ({row.ratio_low:.3f} to {row.ratio_high:.3f})"
        times = (
            f"{row.native_ms:.3f}",
            f"{row.default_ms:.3f}",
            interval,
            f"{row.fastest_ratio:.3f}",
            f"{row.again:.3f}",
        )
        table.add_row(row.name, *times, f"{row.engines} of {row.minimum_segments}", f"{row.compile_s:.1f}")
    console.print(table)
    slow = [row.name for row in rows if row.ratio < LIMIT]
    mean = float(np.exp(np.mean(np.log([row.ratio for row in rows]))))
    console.print(f"{len(rows)} models, geometric mean {mean:.3f}; below {LIMIT}: {', '.join(slow) or 'none'}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults", description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=pathlib.Path, default=collection.folder(), metavar="DIR", help="the folder")
    parser.add_argument("--only", default="*", metavar="GLOB", help="models with such a name; default: all")
    parser.add_argument("--rounds", type=int, default=31, metavar="N", help="turns of each; default: 31")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of both; default: the libraries' choice")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures as one JSON object")
    return parser


if __name__ == "__main__":
    sys.exit(main())
