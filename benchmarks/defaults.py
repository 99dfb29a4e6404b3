"""Counts how often the measured choice of engines is right: ``python -m benchmarks.defaults``.

Each network, or each model of a folder, is compiled several times with its engines from a cache, so that only the
choice is made again, and as often beside a busy process on one core if ``--neighbour`` says so. Afterwards all forms
that were chosen, the native model and the one with all engines take turns, each in a process of its own, and again in
fresh ones, since the same model can be twice as slow in one process as in the next. A choice is right if its form takes
at most 1.05 times as long as the fastest of them.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fnmatch
import functools
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from trtnode.bench.environment import describe_environment
from trtnode.bench.errors import BenchmarkError
from trtnode.bench.latency.candidate_process import CandidateProcess, Recipe
from trtnode.bench.latency.interleaving import Interleaving, Latencies, ratio_with_interval
from trtnode.bench.latency.openers import open_compiled, open_onnxruntime
from trtnode.bench.latency.recipes import PRECISIONS
from trtnode.bench.latency.subjects import LatencySubject, model_subjects, network_subjects, write_at_batch
from trtnode.bench.networks.catalogue import NETWORKS
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.files import write_atomically
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.errors import EngineError
from trtnode.engines.precision.options import Calibration
from trtnode.partitioner.errors import PartitionError
from trtnode.serving.cli.run import save_arrays

RIGHT = 1.05
STARTS = 3
SETTLE_S, TURN_S = 0.02, 0.1
ALL_ENGINES, REWRITTEN = "all engines", "native with rewrites"
CACHE_BYTES = 10**11
BUSY = "while True: pass"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRow:
    """Choices of one model in one precision.

    Attributes:
        model: Name of the network or model.
        precision: Asked for.
        neighbour: True if a busy process ran during the choices.
        native_ms: Median latency in ONNX Runtime alone.
        gain: ONNX Runtime's time over that of all engines, the median of the starts' medians of interleaved rounds.
        chosen: Choices by the form that was kept: native, all engines, or the names of the engines.
        confidence: Choices by their confidence.
        wrong: Choices whose form takes more than 1.05 times the fastest.
        ratio: ONNX Runtime's time over that of the form chosen most often.
        choice_s: Seconds of each compilation; engines come from the cache.
    """

    model: str
    precision: str
    neighbour: bool
    native_ms: float
    gain: float
    chosen: dict[str, int]
    confidence: dict[str, int]
    wrong: int
    ratio: float
    choice_s: list[float]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    given = _parser().parse_args(arguments)
    try:
        return _run(given)
    except (BenchmarkError, EngineError, PartitionError) as error:
        print(error, file=sys.stderr)
        return 2


def _run(given: argparse.Namespace) -> int:
    environment = describe_environment()
    rows: list[ChoiceRow] = []
    neighbours = (False, True) if given.neighbour else (False,)
    for subject in _subjects(given):
        for precision in given.precision.split(","):
            for row in _measure(subject, precision, given.choices, neighbours, given.rounds):
                rows.append(row)
                print(f"{row.model} {row.precision}: {row.gain:.3f}, {row.chosen}", file=sys.stderr, flush=True)
                if given.json:
                    facts = {"environment": environment, "rows": [dataclasses.asdict(one) for one in rows]}
                    write_atomically(given.json, json.dumps(facts, indent=1).encode())
    _print(rows, environment)
    return 0


def _subjects(given: argparse.Namespace) -> Iterator[LatencySubject]:
    """Yield the networks, or the models of a folder."""
    if given.models is None:
        yield from network_subjects((given.only or ",".join(NETWORKS)).split(","), [1], given.networks)
        return
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as folder:
        for model in _find_models(given.models, (given.only or "*").split(",")):
            yield from model_subjects([_unpacked(model, pathlib.Path(folder))], [1], None)


def _find_models(root: pathlib.Path, names: Sequence[str]) -> list[pathlib.Path]:
    """Return the ONNX files below a folder of which a file or folder on their path matches one of the globs."""
    if not root.is_dir():
        raise BenchmarkError(f"{root}: there is no such folder")
    files = [path for path in sorted(root.rglob("*.onnx*")) if path.name.endswith((".onnx", ".onnx.gz"))]
    wanted = [f for f in files if any(fnmatch.filter(f.relative_to(root).parts, name) for name in names)]
    if not wanted:
        raise BenchmarkError(f"{root}: no ONNX file below it has {' or '.join(map(repr, names))} in its path")
    return wanted


def _unpacked(model: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Return the model as a plain ONNX file, written into a folder if it is packed with gzip."""
    if model.suffix != ".gz":
        return model
    path = folder / model.stem
    path.write_bytes(gzip.decompress(model.read_bytes()))
    return path


def _measure(
    subject: LatencySubject, precision: str, choices: int, neighbours: Sequence[bool], rounds: int
) -> Iterator[ChoiceRow]:
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as name:
        folder = pathlib.Path(name)
        source, samples, calibration = (folder / file for file in ("model.onnx", "samples.npz", "calibration.npz"))
        write_at_batch(subject, source)
        save_arrays(samples, subject.checking)
        save_arrays(calibration, subject.stacked_calibration())
        ranges = Calibration(data=str(calibration), allow_few_samples=True)
        options = dataclasses.replace(PRECISIONS[precision], check_inputs=samples, calibration=ranges)
        cache = EngineCache(folder / "cache", CACHE_BYTES)
        files = {NATIVE: source, ALL_ENGINES: folder / "all.onnx"}
        whole = compile_model(source, dataclasses.replace(options, all_engines=True, measure=False), cache=cache)
        whole.save(files[ALL_ENGINES])
        engines = tuple(segment.name for segment in whole.report.segments)
        found = {n: _choose(source, options, cache, choices, engines, files, neighbour=n) for n in neighbours}
        times = [_times(files, subject, -(-rounds // STARTS)) for _ in range(STARTS)]
    ratios = {form: statistics.median(ratio_with_interval(t[NATIVE], t[form])[0] for t in times) for form in files}
    for neighbour, (forms, confidence, seconds) in found.items():
        counts = Counter(forms)
        yield ChoiceRow(
            model=subject.name,
            precision=precision,
            neighbour=neighbour,
            native_ms=statistics.median(t[NATIVE].percentile_ms(50) for t in times),
            gain=ratios[ALL_ENGINES],
            chosen=dict(counts),
            confidence=dict(Counter(confidence)),
            wrong=sum(max(ratios.values()) > RIGHT * ratios[form] for form in forms),
            ratio=ratios[counts.most_common(1)[0][0]],
            choice_s=seconds,
        )


def _choose(
    source: pathlib.Path,
    options: CompileOptions,
    cache: EngineCache,
    choices: int,
    engines: tuple[str, ...],
    files: dict[str, pathlib.Path],
    *,
    neighbour: bool,
) -> tuple[list[str], list[str], list[float]]:
    """Compile several times; return the form and the confidence of each choice, and the seconds of each compilation.

    A form that is new gets a file.
    """
    forms, confidence, seconds = [], [], []
    again = dataclasses.replace(options, measure_again=True)
    for _ in range(choices):
        with _busy_core() if neighbour else contextlib.nullcontext():
            began = time.perf_counter()
            compiled = compile_model(source, again, cache=cache)
            seconds.append(round(time.perf_counter() - began, 2))
        kept = tuple(segment.name for segment in compiled.report.segments)
        native = REWRITTEN if compiled.report.rewrites else NATIVE
        form = ALL_ENGINES if kept == engines else " ".join(kept) or native
        if form not in files:
            files[form] = source.with_name(f"form{len(files)}.onnx")
            compiled.save(files[form])
        forms.append(form)
        confidence.append((compiled.report.tuning or {}).get("confidence", "not measured"))
    return forms, confidence, seconds


@contextlib.contextmanager
def _busy_core() -> Iterator[None]:
    """Keep one core of the machine busy meanwhile."""
    core = max(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process:
        os.sched_setaffinity(process.pid, {core})
        try:
            yield
        finally:
            process.kill()


def _times(files: dict[str, pathlib.Path], subject: LatencySubject, rounds: int) -> dict[str, Latencies]:
    with contextlib.ExitStack() as running:
        turns = {}
        for form, file in files.items():
            opener = open_onnxruntime if form == NATIVE else open_compiled
            recipe = Recipe(setting=form, engine=form, open=opener, model=file, threads=None)
            candidate = running.enter_context(CandidateProcess(recipe))
            turns[form] = functools.partial(candidate.take_turn, subject.samples[0])
        interleaving = Interleaving(turns, seconds_per_turn=TURN_S, settle_s=SETTLE_S)
        interleaving.run(rounds)
    return interleaving.latencies()


def _print(rows: Sequence[ChoiceRow], environment: dict[str, object]) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=130)
    console.print(f"{environment['processor']}, {environment['cores']} cores, load {environment['load_average']}")
    headings = ("model", "precision", "neighbour", "native ms", "all engines", "chosen", "confidence", "wrong", "s")
    table = Table(*headings, title="Choices by default: times as fast as ONNX Runtime, and how often which was chosen")
    for row in rows:
        told = (
            ", ".join(f"{name} {count}" for name, count in counts.items()) for counts in (row.chosen, row.confidence)
        )
        figures = (f"{row.native_ms:.3f}", f"{row.gain:.3f}")
        seconds = f"{statistics.median(row.choice_s):.1f} to {max(row.choice_s):.1f}"
        busy = "yes" if row.neighbour else "no"
        table.add_row(row.model, row.precision, busy, *figures, *told, str(row.wrong), seconds)
    console.print(table)
    for neighbour in sorted({row.neighbour for row in rows}):
        some = [row for row in rows if row.neighbour is neighbour]
        total = sum(sum(row.chosen.values()) for row in some)
        right = 1 - sum(row.wrong for row in some) / total
        means = {
            precision: statistics.geometric_mean(row.ratio for row in some if row.precision == precision)
            for precision in dict.fromkeys(row.precision for row in some)
        }
        products = ", ".join(f"{precision} {mean:.3f}" for precision, mean in means.items())
        where = "beside a busy process" if neighbour else "alone"
        console.print(f"{where}: {right:.1%} of {total} choices are right; geometric means {products}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults", description=__doc__.splitlines()[0])
    folder = pathlib.Path("build/networks")
    parser.add_argument("--networks", type=pathlib.Path, default=folder, metavar="DIR", help="where networks are kept")
    parser.add_argument("--models", type=pathlib.Path, metavar="DIR", help="measure models of a folder, not networks")
    parser.add_argument("--only", metavar="NAMES", help="networks, or globs of files or folders; default: all")
    parser.add_argument("--precision", default="fp32,bf16,int8", metavar="NAMES", help="default: fp32,bf16,int8")
    parser.add_argument("--choices", type=int, default=5, metavar="N", help="compilations of each; default: 5")
    parser.add_argument("--neighbour", action="store_true", help="choose beside a busy process, too")
    parser.add_argument("--rounds", type=int, default=31, metavar="N", help="turns of each form; default: 31")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures as one JSON object")
    return parser


if __name__ == "__main__":
    sys.exit(main())
