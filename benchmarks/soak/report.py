"""Reports the results of a soak as tables and as JSON."""

from __future__ import annotations

import dataclasses
import json
import pathlib

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.soak.checks import Results
from benchmarks.soak.scenario import SoakPlan
from trtnode.bench.environment import describe_environment
from trtnode.engines.artifact.files import write_atomically

MOST_LINES = 20
"""Number of lines of the log that are printed."""


def print_results(console: Console, results: Results) -> None:
    """Print requests by status, checks with their figures, and examples of faults."""
    requests = Table("requests", "stage", "status", box=box.SIMPLE_HEAD, show_edge=False)
    requests.add_column("count", justify="right")
    for stage, tally in results.tallies.items():
        for (kind, status), count in sorted(tally.counts.items()):
            requests.add_row(kind, stage, status, f"{count:,}")
    console.print(requests)
    checks = Table("check", "found", "wanted", "", box=box.SIMPLE_HEAD, show_edge=False)
    for check in results.checks():
        checks.add_row(check.name, check.found, check.wanted, "ok" if check.passed else "[bold red]FAILED")
    console.print(checks)
    alone = Table("each kind alone", "memory, bytes a request", box=box.SIMPLE_HEAD, show_edge=False)
    for kind, growth in results.alone.items():
        alone.add_row(kind, f"{growth:+.1f}")
    console.print(alone)
    for line in (
        *(one for tally in results.tallies.values() for one in tally.examples),
        *results.stop.complaints[:MOST_LINES],
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def write_results(file: pathlib.Path, plan: SoakPlan, results: Results) -> None:
    """Write all results, with the plan to repeat them.

    Raises:
        OutputFileError: The file can't be written.
    """
    content = {
        "environment": describe_environment(),
        "plan": dataclasses.asdict(plan),
        "checks": [dataclasses.asdict(check) for check in results.checks()],
        "requests": [
            {"stage": stage, "kind": kind, "status": status, "count": count}
            for stage, tally in results.tallies.items()
            for (kind, status), count in sorted(tally.counts.items())
        ],
        "faults": {stage: tally.examples for stage, tally in results.tallies.items()},
        "growth": dataclasses.asdict(results.growth),
        "alone": dict(results.alone),
        "rests": [dataclasses.asdict(rest) for rest in results.rests],
        "steady": [dataclasses.asdict(sample) for sample in results.samples],
        "stop": dataclasses.asdict(results.stop),
    }
    write_atomically(file, json.dumps(content).encode())
