"""Measures the cut: ``python -m benchmarks.partition [--peers] [--sizes 1000,10000] [--only local] [--json]``.

The part ``command`` measures whole commands on graphs of the families that are named beside it, or of all.
Returns 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console

from benchmarks.partition.graphs import FAMILIES, generate, supports
from benchmarks.partition.measure import CutRow, measure
from benchmarks.partition.peers import ORT_HELPER, PEERS, PeerPartitioner, Prepare, load
from benchmarks.partition.tables import print_commands, print_family, print_targets
from benchmarks.partition.targets import check_commands, check_targets
from benchmarks.partition.whole_command import SIZES as COMMAND_SIZES
from benchmarks.partition.whole_command import CommandRow, measure_commands
from trtnode.bench.environment import describe_environment

SIZES = (250, 1_000, 10_000, 100_000)
SHARES = (0.01, 0.1, 0.3)
COMMAND = "command"

WIDTH = 130
"""Columns of the tables where the output is no terminal."""


def main() -> int:
    """Measure, print, and return 1 if a target is missed."""
    arguments = _arguments()
    console = Console(stderr=arguments.json, markup=False)
    console = console if console.is_terminal else Console(width=WIDTH, stderr=arguments.json, markup=False)
    environment = describe_environment()
    console.print(f"{environment['processor']}, {environment['cores']} cores, load {environment['load_average']}")
    drivers, left_out = _load_peers(PEERS if arguments.peers else (ORT_HELPER,))
    rows: list[CutRow] = []
    commands: list[CommandRow] = []
    for part in arguments.only:
        if part == COMMAND:
            named = [family for family in FAMILIES if family in arguments.only]
            commands = measure_commands(named or list(FAMILIES), arguments.sizes or COMMAND_SIZES)
            print_commands(console, commands)
        else:
            rows += _measure_family(console, part, arguments.sizes or SIZES, drivers)
    targets = [*check_targets(rows), *check_commands(commands)]
    print_targets(console, targets)
    for sentence in left_out:
        console.print(sentence)
    if arguments.json:
        facts = {
            "rows": [dataclasses.asdict(row) for row in rows],
            "commands": [dataclasses.asdict(row) for row in commands],
            "bars": [dataclasses.asdict(target) for target in targets],
        }
        print(json.dumps({"environment": environment, **facts, "left_out": left_out}))
    return 1 if any(target.holds is False for target in targets) else 0


def _measure_family(
    console: Console, family: str, sizes: Sequence[int], drivers: Mapping[PeerPartitioner, Prepare]
) -> list[CutRow]:
    rows: list[CutRow] = []
    for size in sizes:
        for share in SHARES:
            graph = generate(family, size=size, native_share=share)
            rows += measure(graph, supports, source=family, drivers=drivers, native_share=share)
    print_family(console, family, rows)
    return rows


def _load_peers(peers: Sequence[PeerPartitioner]) -> tuple[dict[PeerPartitioner, Prepare], list[str]]:
    loaded = {peer: load(peer) for peer in peers}
    drivers = {peer: found for peer, found in loaded.items() if not isinstance(found, str)}
    return drivers, [found for found in loaded.values() if isinstance(found, str)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partition", description="Measures the cut.")
    parser.add_argument("--peers", action="store_true", help="also torch.fx (trtnode[bench])")
    parser.add_argument("--sizes", type=_sizes, metavar="N,...", help="nodes of generated graphs")
    parts = (*FAMILIES, COMMAND)
    parser.add_argument("--only", type=_parts, default=parts, metavar="PART,...", help=f"of {', '.join(parts)}")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, the tables on stderr")
    return parser.parse_args()


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(","))


def _parts(text: str) -> tuple[str, ...]:
    parts = tuple(text.split(","))
    if unknown := set(parts) - {*FAMILIES, COMMAND}:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(sorted(unknown))}")
    return parts


if __name__ == "__main__":
    sys.exit(main())
