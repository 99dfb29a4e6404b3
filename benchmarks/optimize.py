"""Measures what equal rewrites of graphs gain: ``python -m benchmarks.optimize [PART...]``.

Parts: ``training`` (RepVGG-A0 and MobileOne-S0 with all their branches), ``operators`` (one alone), ``networks`` (the
nine), ``models`` (those of a folder). Each is compiled with rewrites and without, for one engine, and both take turns,
each in a process of its own; the plain library, on the source, takes turns beside them. A model without a place for a
rewrite is the same file twice, so it isn't measured. Returns 1 where a gain misses its bar.
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
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.engine_coverage.collection import find_cases
from benchmarks.environment import describe_environment, describe_load
from benchmarks.latency.candidate_process import CandidateProcess, Recipe
from benchmarks.latency.interleaving import Interleaving, ratio_with_interval
from benchmarks.latency.openers import Opener, open_compiled, open_onnxruntime, open_openvino
from benchmarks.networks.catalogue import NETWORKS, TRAINING_FORMS, network_file, sample_inputs
from benchmarks.partition import collection
from engines import CompileOptions, EngineError, compile_model
from engines.artifact.files import write_atomically
from engines.backends.names import NATIVE, REWRITE_NAMES
from engines.inputs.samples import Feeds, find_samples
from engines.onnxruntime.session import NativeSession
from engines.runtime.plan_loading import signature_of
from partitioner import Graph, PartitionError, load_model

OPENVINO = "openvino"
PLAIN: Mapping[str, tuple[str, Opener]] = {
    NATIVE: ("onnxruntime", open_onnxruntime),
    OPENVINO: ("OpenVINO", open_openvino),
}
SETTLE_S = 0.08
"""Pause between turns, in which threads of the last one stop spinning."""

WIDTH = 130
LEAST_NETWORKS, LEAST_MEAN, LEAST_MODELS, FASTER, LEAST_FASTER = 0.97, 0.99, 0.97, 1.05, 3

OPERATORS: Mapping[str, tuple[str, float, str]] = {
    "Mish": (NATIVE, 4.0, "s = Softplus(x) t = Tanh(s) y = Mul(x, t)"),
    "RMSNorm by Reciprocal": (
        NATIVE,
        2.0,
        "q = Pow(x, two) m = ReduceMean <keepdims = 1> (q, last) a = Add(m, epsilon) r = Sqrt(a) i = Reciprocal(r) "
        "n = Mul(x, i) y = Mul(scale, n)",
    ),
    "HardSwish by Clip": (NATIVE, 1.3, "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)"),
    "GELU by tanh": (
        OPENVINO,
        2.0,
        "cube = Pow(x, three) c = Mul(cube, small) a = Add(x, c) u = Mul(a, root) t = Tanh(u) g = Add(t, one) "
        "h = Mul(x, half) y = Mul(h, g)",
    ),
}
"""Engine, bar and nodes of each operator; x and y are float32[1, 256, 768]."""

NUMBERS = {"zero": 0, "half": 0.5, "one": 1, "two": 2, "three": 3, "six": 6, "epsilon": 1e-6}
SHAPE = (1, 256, 768)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model to compile with rewrites and without.

    Attributes:
        part: Part of the run.
        name: Of the model.
        file: Its file.
        feeds: A request.
        engine: To compile for.
        bar: Least gain; None where the part has one for all.
    """

    part: str
    name: str
    file: pathlib.Path
    feeds: Feeds
    engine: str
    bar: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Figures of one subject.

    Attributes:
        part: Part of the run.
        name: Of the model.
        engine: It was compiled for.
        rules: Number of places by rule; nothing was measured without any.
        p50_ms: Median latency by candidate: plain library, without rewrites, with rewrites.
        gain: Time without rewrites over that with them, a median over rounds.
        low: Lower end of its 95 % bootstrap interval.
        high: Upper end.
        error: Largest difference with rewrites, over the largest element of the outputs.
        bar: Least gain.
    """

    part: str
    name: str
    engine: str
    rules: Mapping[str, int]
    p50_ms: Mapping[str, float] = dataclasses.field(default_factory=dict)
    gain: float = 1.0
    low: float = 1.0
    high: float = 1.0
    error: float = 0.0
    bar: float | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a gain misses its bar."""
    given = _parser().parse_args(arguments)
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    environment = describe_environment()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as name:
        for part in given.parts or PARTS:
            for subject in PARTS[part](pathlib.Path(name), given):
                try:
                    rows.append(_measure(subject, given.rounds, given.threads))
                except (EngineError, PartitionError) as error:
                    print(f"{subject.name}: left out: {error}", file=sys.stderr, flush=True)
                    continue
                print(f"{subject.name}, {subject.engine}: {rows[-1].gain:.3f}", file=sys.stderr, flush=True)
    environment["load_average_after"] = describe_load()
    _print(rows, environment, console)
    if given.json:
        facts = {"environment": environment, "threads": given.threads, "rows": [dataclasses.asdict(r) for r in rows]}
        write_atomically(given.json, json.dumps(facts, indent=1).encode())
    problems = list(_problems(rows))
    for problem in problems:
        console.print(problem)
    return 1 if problems else 0


def _measure(subject: Subject, rounds: int, threads: int | None) -> Row:
    options = CompileOptions(engine=subject.engine, threads=threads, all_engines=True)
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as name, contextlib.ExitStack() as running:
        files = {kind: pathlib.Path(name) / f"{kind}.onnx" for kind in ("without", "with")}
        compiled = compile_model(subject.file, options)
        compiled.save(files["with"])
        rules = {one.rule: len(one.nodes) for one in compiled.report.rewrites}
        row = Row(part=subject.part, name=subject.name, engine=subject.engine, rules=rules, bar=subject.bar)
        if not rules:
            return row
        compile_model(subject.file, dataclasses.replace(options, without_rewrites=REWRITE_NAMES)).save(files["without"])
        plain, open_plain = PLAIN[subject.engine]
        recipe = functools.partial(Recipe, engine=subject.engine, threads=threads)
        open_ours = open_onnxruntime if subject.engine == NATIVE else open_compiled
        recipes = [recipe(setting=kind, open=open_ours, model=file) for kind, file in files.items()]
        recipes.append(recipe(setting=plain, open=open_plain, model=subject.file))
        processes = {one.setting: running.enter_context(CandidateProcess(one)) for one in recipes}
        answers = {kind: process.answer([subject.feeds])[0] for kind, process in processes.items()}
        turns = {kind: functools.partial(process.take_turn, subject.feeds) for kind, process in processes.items()}
        interleaving = Interleaving(turns, seconds_per_turn=0.1, settle_s=SETTLE_S)
        interleaving.run(rounds)
    latencies = interleaving.latencies()
    gain, low, high = ratio_with_interval(latencies["without"], latencies["with"])
    p50 = {kind: times.percentile_ms(50) for kind, times in latencies.items()}
    error = _error(answers["without"], answers["with"])
    return dataclasses.replace(row, p50_ms=p50, gain=gain, low=low, high=high, error=error)


def _error(expected: Sequence[np.ndarray], actual: Sequence[np.ndarray]) -> float:
    """Return the largest difference of any output over the largest element of that output."""
    floats = [(e, a) for e, a in zip(expected, actual, strict=True) if e.dtype.kind == "f" and e.size]
    return max((float(np.abs(e - a).max() / (np.abs(e).max() or 1)) for e, a in floats), default=0.0)


def _training_forms(folder: pathlib.Path, _: argparse.Namespace) -> Iterator[Subject]:
    for name in TRAINING_FORMS:
        bar = 3.0 if name.startswith("mobileone") else 1.08
        file, feeds = network_file(name, folder), sample_inputs(name, 1, 0)
        for engine in PLAIN:
            yield Subject(part="training", name=name, file=file, feeds=feeds, engine=engine, bar=bar)


def _operators(folder: pathlib.Path, _: argparse.Namespace) -> Iterator[Subject]:
    feeds = {"x": np.random.default_rng(0).standard_normal(SHAPE, np.float32) * 3}
    for name, (engine, bar, nodes) in OPERATORS.items():
        file = folder / f"{name}.onnx"
        onnx.save(_operator(nodes), file)
        yield Subject(part="operators", name=name, file=file, feeds=feeds, engine=engine, bar=bar)


def _operator(nodes: str) -> onnx.ModelProto:
    sizes = ",".join(map(str, SHAPE))
    text = f'<ir_version: 8, opset_import: ["": 18]> operator (float[{sizes}] x) => (float[{sizes}] y) {{ {nodes} }}'
    model = onnx.parser.parse_model(text)
    values = {name: np.array(number, np.float32) for name, number in NUMBERS.items()}
    values |= {"small": np.array(0.044715, np.float32), "root": np.array(np.sqrt(2 / np.pi), np.float32)}
    values |= {"last": np.array([-1]), "scale": np.linspace(0.5, 1.5, SHAPE[-1], dtype=np.float32)}
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in values.items() if n in read)
    return model


def _networks(folder: pathlib.Path, _: argparse.Namespace) -> Iterator[Subject]:
    for name in NETWORKS:
        for engine in PLAIN:
            file, feeds = network_file(name, folder), sample_inputs(name, 1, 0)
            yield Subject(part="networks", name=name, file=file, feeds=feeds, engine=engine)


def _models(folder: pathlib.Path, given: argparse.Namespace) -> Iterator[Subject]:
    for case in find_cases(given.models, given.only):
        file = case.unpacked(folder)
        try:
            feeds = case.request() or _generated(file)
        except (EngineError, PartitionError):
            continue
        for engine in PLAIN if feeds else ():
            yield Subject(part="models", name=case.name, file=file, feeds=feeds or {}, engine=engine)


def _generated(file: pathlib.Path) -> Feeds | None:
    samples = find_samples(NativeSession(file, name=str(file)), signature_of(Graph.of(load_model(file))).inputs, None)
    return samples[0] if samples else None


PARTS: Mapping[str, Callable[[pathlib.Path, argparse.Namespace], Iterator[Subject]]] = {
    "training": _training_forms,
    "operators": _operators,
    "networks": _networks,
    "models": _models,
}


def _problems(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence for each bar that is missed. Networks in training form are judged in the best engine."""
    best: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.bar is not None:
            best.setdefault((row.part, row.name), []).append(row)
    for (_, name), some in best.items():
        if max(row.gain for row in some) < (bar := some[0].bar or 0.0):
            yield f"{name} gains less than {bar} x."
    for row in rows:
        least = {"networks": LEAST_NETWORKS, "models": LEAST_MODELS}.get(row.part, 0.0)
        if row.gain < least:
            yield f"{row.name} has {row.gain:.3f} times its speed in {row.engine}; the least is {least}."
    networks = [row.gain for row in rows if row.part == "networks"]
    if networks and (mean := float(np.exp(np.mean(np.log(networks))))) < LEAST_MEAN:
        yield f"The networks' geometric mean is {mean:.3f}; the least is {LEAST_MEAN}."
    faster = sorted({row.name for row in rows if row.part == "models" and row.gain > FASTER})
    if any(row.part == "models" for row in rows) and len(faster) < LEAST_FASTER:
        yield f"Only {len(faster)} models are faster by more than 5 %: {', '.join(faster) or 'none'}."


def _print(rows: Sequence[Row], environment: Mapping[str, object], console: Console) -> None:
    load = f"load {environment['load_average']} before and {environment['load_average_after']} after"
    console.print(f"{environment['processor']}, {environment['cores']} cores, {load}")
    headings = ("model", "engine", "rewrites", "plain ms", "without ms", "with ms", "gain (95 %)", "error", "bar")
    table = Table(*headings, title="with rewrites and without, p50")
    for row in rows:
        if not row.rules:
            continue
        plain = PLAIN[row.engine][0]
        times = (f"{row.p50_ms[kind]:.3f}" for kind in (plain, "without", "with"))
        rules = ", ".join(f"{name} {count}" for name, count in row.rules.items())
        gain = f"{row.gain:.3f} ({row.low:.3f} to {row.high:.3f})"
        table.add_row(row.name, row.engine, rules, *times, gain, f"{row.error:.1e}", f"{row.bar or ''}")
    console.print(table)
    same = sum(not row.rules for row in rows)
    console.print(f"{same} of {len(rows)} have no place for a rewrite: the same file with them and without.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optimize", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("--models", type=pathlib.Path, default=collection.folder(), metavar="DIR", help="the folder")
    parser.add_argument("--only", default="*", metavar="GLOB", help="models with such a name; default: all")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="turns of each; default: 9")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of all; default: the libraries' choice")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures as one JSON object")
    return parser


if __name__ == "__main__":
    sys.exit(main())
