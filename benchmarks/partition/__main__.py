"""Measures the cut: ``python -m benchmarks.partition [--peers] [--sizes 1000,10000] [--only local] [--json]``.

Returns 1 if a bar fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console

from benchmarks.environment import describe_environment
from benchmarks.partition import collection
from benchmarks.partition.bars import check
from benchmarks.partition.graphs import FAMILIES, generate, supports
from benchmarks.partition.measure import Row, measure
from benchmarks.partition.peers import ORT_HELPER, PEERS, Peer, Prepare, load
from benchmarks.partition.tables import print_bars, print_collection, print_family

SIZES = (250, 1_000, 10_000, 100_000)
SHARES = (0.01, 0.1, 0.3)
COLLECTION = "collection"

WIDTH = 130
"""Columns of the tables where the output is no terminal."""


def main() -> int:
    """Measure, print, and return 1 if a bar fails."""
    arguments = _arguments()
    console = Console(stderr=arguments.json, markup=False)
    console = console if console.is_terminal else Console(width=WIDTH, stderr=arguments.json, markup=False)
    environment = describe_environment()
    console.print(f"{environment['processor']}, {environment['cores']} cores, load {environment['load_average']}")
    drivers, left_out = _load_peers(PEERS if arguments.peers else (ORT_HELPER,))
    rows: list[Row] = []
    for part in arguments.only:
        if part != COLLECTION:
            rows += _measure_family(console, part, arguments.sizes, drivers)
        elif collection.folder().is_dir():
            rows += _measure_collection(console, drivers)
        else:
            left_out.append("Real models are left out: TRTNODE_MODEL_COLLECTION names no folder.")
    bars = check(rows)
    print_bars(console, bars)
    for sentence in left_out:
        console.print(sentence)
    if arguments.json:
        facts = {"rows": [dataclasses.asdict(row) for row in rows], "bars": [dataclasses.asdict(bar) for bar in bars]}
        print(json.dumps({"environment": environment, **facts, "left_out": left_out}))
    return 1 if any(bar.holds is False for bar in bars) else 0


def _measure_family(console: Console, family: str, sizes: Sequence[int], drivers: Mapping[Peer, Prepare]) -> list[Row]:
    rows: list[Row] = []
    for size in sizes:
        for share in SHARES:
            graph = generate(family, size=size, native_share=share)
            rows += measure(graph, supports, source=family, drivers=drivers, native_share=share)
    print_family(console, family, rows)
    return rows


def _measure_collection(console: Console, drivers: Mapping[Peer, Prepare]) -> list[Row]:
    helper = {ORT_HELPER: drivers[ORT_HELPER]}
    rows: list[Row] = []
    for name, graph, rule in collection.graphs(collection.folder()):
        rows += measure(graph, rule, source=name, drivers=helper, turns=1)
    print_collection(console, rows)
    return rows


def _load_peers(peers: Sequence[Peer]) -> tuple[dict[Peer, Prepare], list[str]]:
    loaded = {peer: load(peer) for peer in peers}
    drivers = {peer: found for peer, found in loaded.items() if not isinstance(found, str)}
    return drivers, [found for found in loaded.values() if isinstance(found, str)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partition", description="Measures the cut.")
    parser.add_argument("--peers", action="store_true", help="also torch.fx (trtnode[bench]) and OpenVINO HETERO")
    parser.add_argument("--sizes", type=_sizes, default=SIZES, metavar="N,...", help="nodes of generated graphs")
    parts = (*FAMILIES, COLLECTION)
    parser.add_argument("--only", type=_parts, default=parts, metavar="PART,...", help=f"of {', '.join(parts)}")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, the tables on stderr")
    return parser.parse_args()


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(","))


def _parts(text: str) -> tuple[str, ...]:
    parts = tuple(text.split(","))
    if unknown := set(parts) - {*FAMILIES, COLLECTION}:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(sorted(unknown))}")
    return parts


if __name__ == "__main__":
    sys.exit(main())
