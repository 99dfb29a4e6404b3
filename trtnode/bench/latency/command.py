"""``trtnode bench networks`` and ``trtnode bench model``: measures, reports and compares."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from trtnode.bench.environment import describe_environment, describe_load
from trtnode.bench.latency.measurement import Measurement
from trtnode.bench.latency.plan import Plan
from trtnode.bench.latency.recipes import PEERS
from trtnode.bench.latency.subjects import LatencySubject, model_subjects, network_subjects
from trtnode.bench.latency_report.page import render_page
from trtnode.bench.latency_report.regression import compare_results
from trtnode.bench.latency_report.results import LatencyResult, read_result
from trtnode.bench.latency_report.tables import print_comparison, print_result
from trtnode.bench.networks.catalogue import NETWORKS
from trtnode.engines.artifact.files import check_output, write_atomically
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.registry import abilities_of, resolve_engine
from trtnode.engines.errors import NotRunHereError
from trtnode.serving.cli.compile_flags import given_options
from trtnode.serving.cli.terminal.console import open_console


def bench_networks(arguments: argparse.Namespace) -> int:
    """Measure the project's own networks, each built just before its measurement.

    Raises:
        BenchmarkError: There is no such network, or the file to compare with is no result.
        EngineError: A network can't be compiled or run, or a file can't be written.
    """
    names = arguments.only or list(NETWORKS)
    folder = (arguments.cache or pathlib.Path("build")).expanduser() / "networks"
    subjects = network_subjects(names, arguments.batch, folder)
    return _bench(arguments, subjects, len(names) * len(arguments.batch))


def bench_models(arguments: argparse.Namespace) -> int:
    """Measure a user's models.

    Raises:
        PartitionError: A model can't be read.
        BenchmarkError: The inputs don't fit a model, or the file to compare with is no result.
        EngineError: A model can't be compiled or run, or a file can't be read or written.
    """
    subjects = model_subjects(arguments.models, arguments.batch, arguments.inputs)
    return _bench(arguments, subjects, len(subjects))


def _bench(arguments: argparse.Namespace, subjects: Iterable[LatencySubject], count: int) -> int:
    """Measure and report. An interruption reports the complete rounds; figures are in the JSON file as they come."""
    engine = resolve_engine(arguments.engine)
    if reason := abilities_of(engine, BuildOptions()).idle:
        raise NotRunHereError("bench", engine, reason)
    earlier = read_result(arguments.compare) if arguments.compare else None
    _check_folders(arguments.json, arguments.html)
    plan = Plan(
        precisions=arguments.precision,
        peers=list(PEERS) if "process" in arguments.via else [],  # peers run in process alone
        engine=arguments.engine,
        via=arguments.via,
        threads=arguments.threads,
        rounds=arguments.rounds,
        nan=arguments.nan,
        without_rewrites=given_options(arguments).get("no_optimize", ()),
    )
    result = LatencyResult(environment={**describe_environment(), "compiled_with": plan.compiled_with})
    console = open_console()
    try:
        _measure(subjects, count, plan, result, arguments.json)
    finally:
        result.environment["load_average_after"] = describe_load()
        if result.rows or result.complete:
            _report(arguments, result, console)
    if earlier is None:
        return 0
    comparison = compare_results(earlier, result)
    print_comparison(comparison, console)
    return 0 if comparison.passes else 1


def _measure(
    subjects: Iterable[LatencySubject], count: int, plan: Plan, result: LatencyResult, file: pathlib.Path | None
) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = open_console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=count * plan.steps)

        def step(what: str) -> None:
            progress.update(task, advance=1, description=what)
            if not console.is_terminal:
                done = progress.tasks[task]
                console.print(f"[{done.completed:.0f}/{done.total:.0f}] {what}", markup=False, highlight=False)

        for subject in subjects:
            Measurement(subject, plan, result, step).run()
            _save(file, result)
    result.complete = True


def _save(file: pathlib.Path | None, result: LatencyResult) -> None:
    if file:
        write_atomically(file, result.as_json())


def _report(arguments: argparse.Namespace, result: LatencyResult, console: Console) -> None:
    print_result(result, console)
    _save(arguments.json, result)
    if arguments.html:
        write_atomically(arguments.html, render_page(result).encode())


def _check_folders(*files: pathlib.Path | None) -> None:
    """Refuse files that can't be written, before the measurement."""
    for file in files:
        if file:
            check_output(file)
