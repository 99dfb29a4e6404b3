"""``trtnode bench server``: finds the model, sends one request, then measures one level of load after the other."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator

from rich.progress import BarColumn, Progress, TaskProgressColumn

from trtnode.bench.environment import describe_environment, describe_load
from trtnode.bench.load.client_pool import ClientProcessPool
from trtnode.bench.load.client_process import RepeatedRequest, connect
from trtnode.bench.load.inputs import Wanted, first_request
from trtnode.bench.load.load_level import Level
from trtnode.bench.load.report import print_table, warnings
from trtnode.bench.load.rows import LoadRow, LoadRun
from trtnode.bench.load.samples import Samples
from trtnode.bench.load.target import INFER_METHOD, find_target
from trtnode.engines.artifact.files import check_output, write_atomically
from trtnode.engines.cores import usable_cores
from trtnode.protos import ModelInferRequest
from trtnode.serving.cli.terminal.console import open_console

CORES_A_PROCESS, MOST_PROCESSES = 4, 8
"""Cores per client process, and the most processes, unless the user gives a number."""

PROGRESS = ("{task.description}", BarColumn(), TaskProgressColumn(), "{task.fields[answers]}")

WARMUP_SEED = 1_000_000
"""Added to a level's seed, so that its warm-up has other arrival times."""


def bench(arguments: argparse.Namespace) -> int:
    """Measure and print. Ctrl-C prints the rows measured so far.

    Returns:
        0; 1 if no request of a row succeeded.

    Raises:
        TargetError: The arguments don't fit the server.
        ClientError: A client process ended.
        OutputFileError: A file can't be written.
        KeyboardInterrupt: After Ctrl-C, when all is printed.
    """
    run = LoadRun(environment=describe_environment())
    if arguments.json:
        check_output(arguments.json)
    console = open_console()
    try:
        with (
            _first_answered(arguments) as request,
            ClientProcessPool(_repeated_request(arguments, request), _processes(arguments)) as pool,
        ):
            for level in _levels(arguments):
                samples = _measure(pool, level, arguments.warmup)
                run.rows.append(_row(arguments, request, level, samples))
                _save(arguments, run)
                for warning in warnings(level, samples):
                    console.print(warning, highlight=False, markup=False)
                if pool.interrupted:
                    raise KeyboardInterrupt
    finally:
        if run.rows:
            print_table(console, run.rows)
    run.environment["load_average_after"] = describe_load()
    run.complete = True
    _save(arguments, run)
    return 0 if all(row.p50_ms is not None for row in run.rows) else 1


@contextlib.contextmanager
def _first_answered(arguments: argparse.Namespace) -> Iterator[ModelInferRequest]:
    """Yield the request to repeat, which the server has answered once."""
    with connect(arguments.address) as channel:
        target = find_target(channel, arguments.address, arguments.model)
        wanted = Wanted(file=arguments.inputs, batch=arguments.batch, shapes=dict(arguments.shape))
        yield first_request(target, wanted, arguments.timeout)


def _repeated_request(arguments: argparse.Namespace, request: ModelInferRequest) -> RepeatedRequest:
    return RepeatedRequest(
        address=arguments.address,
        method=INFER_METHOD,
        request=request.SerializeToString(),
        timeout_s=arguments.timeout,
    )


def _processes(arguments: argparse.Namespace) -> int:
    by_cores = usable_cores().count // CORES_A_PROCESS
    return int(arguments.processes or max(1, min(by_cores, MOST_PROCESSES)))


def _levels(arguments: argparse.Namespace) -> list[Level]:
    requests = arguments.requests or math.inf
    seconds = math.inf if arguments.requests else arguments.seconds
    if arguments.rate:
        return [Level(rate=r, requests=requests, seconds=seconds, seed=arguments.seed) for r in arguments.rate]
    return [Level(callers=n, requests=requests, seconds=seconds) for n in arguments.concurrency]


def _measure(pool: ClientProcessPool, level: Level, warmup_s: float) -> Samples:
    """Run a level after an unmeasured warm-up of the same kind.

    Raises:
        KeyboardInterrupt: After Ctrl-C before anything was measured.
    """
    warmup = dataclasses.replace(level, requests=math.inf, seconds=warmup_s, seed=level.seed + WARMUP_SEED)
    console = open_console(stderr=True)
    with Progress(*PROGRESS, console=console, disable=not console.is_terminal, transient=True) as progress:
        if warmup_s:
            pool.run(warmup, _shown(progress, f"{level}, warm-up", warmup))
        if pool.interrupted:
            raise KeyboardInterrupt
        samples = pool.run(level, _shown(progress, str(level), level))
    if pool.interrupted and not samples.requests:
        raise KeyboardInterrupt
    return samples


def _shown(progress: Progress, title: str, level: Level) -> Callable[[int], None]:
    """Return the function that draws a level's number of answers."""
    total = min(level.requests, level.seconds)
    task = progress.add_task(title, total=total, answers="")
    start = time.monotonic()

    def show(answers: int) -> None:
        done = answers if math.isfinite(level.requests) else time.monotonic() - start
        progress.update(task, completed=done, answers=f"{answers:,} answers")

    return show


def _row(arguments: argparse.Namespace, request: ModelInferRequest, level: Level, samples: Samples) -> LoadRow:
    return LoadRow(
        server=arguments.address,
        model=arguments.model,
        inputs={tensor.name: list(tensor.shape) for tensor in request.inputs},
        concurrency=level.callers or None,
        rate_per_s=level.rate or None,
        **samples.figures(),
    )


def _save(arguments: argparse.Namespace, run: LoadRun) -> None:
    if arguments.json:
        write_atomically(arguments.json, run.as_json())
