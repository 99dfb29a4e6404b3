"""Soaks a server under mixed load, with reloads and a stop under full load: ``python -m benchmarks.soak``."""

from __future__ import annotations

import argparse
import pathlib
import secrets
import sys
import tempfile

from rich.console import Console

from benchmarks.soak.report import print_results, write_results
from benchmarks.soak.scenario import SoakPlan, soak
from trtnode.bench.load.arguments import amount
from trtnode.serving.cli.command import positive

WIDTH = 120
"""Columns of the tables where the output is no terminal."""


def main(arguments: list[str]) -> int:
    """Run a soak; return 0 if every check passed, else 1."""
    options = _parser().parse_args(arguments)
    plan = SoakPlan(seconds=60 * options.minutes, mutated=options.mutated, reloads=options.reloads, seed=options.seed)
    terminal = Console()
    console = terminal if terminal.is_terminal else Console(width=WIDTH)
    console.print(f"seed {plan.seed}", highlight=False)
    with tempfile.TemporaryDirectory(prefix="trtnode-soak-") as folder:
        results = soak(plan, pathlib.Path(folder), console.print)
    if options.json:
        write_results(options.json, plan, results)
    print_results(console, results)
    return 0 if all(check.passed for check in results.checks()) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=amount, default=5.0, help="of warm-up and steady load (default: 5)")
    parser.add_argument(
        "--mutated", type=positive, default=100_000, help="requests with damaged bytes (default: 100000)"
    )
    parser.add_argument("--reloads", type=positive, default=100, help="under full load, twice (default: 100)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="repeats the choices of a run")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to this file")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("The soak was ended before its time, so nothing is known.")
