"""Measures the server: ``python -m benchmarks.serving [--peers] [--quick] [--only small,streams] [--json FILE]``.

Returns 1 if a target is missed, 2 if the arguments are wrong. README.md in this folder says how to install the peers.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence

from rich.console import Console

from benchmarks.serving.load_generators import PythonClient, find_perf_analyzer
from benchmarks.serving.peers import PEERS, PeerServer
from benchmarks.serving.scenarios import SCENARIOS, RunPlan, ScenarioResult, run_scenario
from benchmarks.serving.tables import print_scenario, print_targets
from trtnode.bench.environment import describe_environment, describe_load
from trtnode.bench.errors import BenchmarkError
from trtnode.engines.artifact.files import check_output, write_atomically
from trtnode.engines.errors import EngineError

STARTS, ROUNDS, SECONDS = 4, 2, 1.2
QUICK_ROUNDS, QUICK_SECONDS = 3, 0.6
NETWORKS = pathlib.Path("~/.cache/trtnode/networks")
WIDTH = 130
"""Columns of the tables where the output is no terminal."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return _measure(arguments)
    except (BenchmarkError, EngineError) as error:
        sys.stderr.write(f"{error}\n")
        return int(getattr(error, "exit_code", 1))


def _measure(arguments: argparse.Namespace) -> int:
    console = Console(markup=False, highlight=False)
    console = console if console.is_terminal else Console(width=WIDTH, markup=False, highlight=False)
    environment = describe_environment()
    console.print(f"{environment['processor']}, {environment['cores']} cores, load {environment['load_average']}")
    if arguments.json:
        check_output(arguments.json)
    results: list[ScenarioResult] = []
    with tempfile.TemporaryDirectory(prefix="trtnode-serving-") as folder:
        plan = _plan(arguments, pathlib.Path(folder), console)
        for name in arguments.only:
            for result in run_scenario(name, plan):
                print_scenario(console, result)
                results.append(result)
    rows = [row for result in results for row in result.rows]
    print_targets(console, rows)
    if arguments.json:
        environment["load_average_after"] = describe_load()
        scenarios = [result.as_json() for result in results]
        write_atomically(arguments.json, json.dumps({"environment": environment, "races": scenarios}).encode())
    return 1 if any(row.holds is False for row in rows) else 0


def _plan(arguments: argparse.Namespace, folder: pathlib.Path, console: Console) -> RunPlan:
    found = find_perf_analyzer(arguments.perf_analyzer)
    if isinstance(found, str):
        console.print(f"{found}, so this project's own client in Python puts the load on.")
    programs = {peer: getattr(arguments, _field(peer)) for peer in PEERS} if arguments.peers else {}
    return RunPlan(
        load=PythonClient() if isinstance(found, str) else found,
        starts=1 if arguments.quick else STARTS,
        rounds=QUICK_ROUNDS if arguments.quick else ROUNDS,
        seconds=QUICK_SECONDS if arguments.quick else SECONDS,
        peers={peer: program for peer, program in programs.items() if program is not None},
        missing={peer.name: peer.missing if arguments.peers else "Peers take part with --peers." for peer in PEERS},
        folder=folder,
        networks=NETWORKS.expanduser(),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving", description="Measures the server beside the least that one can do."
    )
    parser.add_argument("--peers", action="store_true", help="also measure the other servers that are installed")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: to see that everything works")
    parser.add_argument(
        "--only",
        type=_scenarios,
        default=tuple(SCENARIOS),
        metavar="SCENARIO,...",
        help=f"of {', '.join(SCENARIOS)}; default: all",
    )
    for peer in PEERS:
        parser.add_argument(
            peer.option,
            type=_program,
            default=os.environ.get(peer.variable),
            metavar="PATH",
            help=f"{peer.name}: {peer.program}; default: ${peer.variable}",
        )
    parser.add_argument("--perf-analyzer", type=_program, metavar="PATH", help="default: beside this Python")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures as JSON")
    return parser


def _field(peer: PeerServer) -> str:
    return peer.option.removeprefix("--").replace("-", "_")


def _scenarios(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := sorted(set(names) - set(SCENARIOS)):
        raise argparse.ArgumentTypeError(f"there is no scenario {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
    return names


def _program(text: str) -> pathlib.Path:
    path = pathlib.Path(text).expanduser().absolute()  # not resolved: an environment's Python is a link
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise argparse.ArgumentTypeError(f"{text} is no program")
    return path


if __name__ == "__main__":
    sys.exit(main())
