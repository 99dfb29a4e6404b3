"""Attacks both ports of a server, and checks its memory, log and probes: ``python -m benchmarks.attacks``."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import multiprocessing
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from benchmarks.attacks.grpc_attacks import GRPC_ATTACKS
from benchmarks.attacks.http_attacks import HTTP_ATTACKS, nothing
from benchmarks.attacks.memory_attacks import MEMORY_ATTACKS
from benchmarks.attacks.message_attacks import (
    BODIES,
    MESSAGES,
    SIZES,
    STRINGS,
    TEXT_PATH,
    bodies,
    messages,
    strings_behind_json,
    strings_in_json,
    unread_calls,
    unread_streams,
)
from benchmarks.attacks.probes import Prober
from benchmarks.attacks.server import AttackedServer
from benchmarks.attacks.sockets import Address
from benchmarks.soak.process_stats import StatsSampler, read_stats
from trtnode.bench.load.arguments import amount
from trtnode.serving.cli.command import positive

MOST_MB = 150.0
UNREAD_CALLS_MB = 300.0
"""Of calls that are all answered within the quarter of a second that each client has (SECURITY.md): 200 of 1 MiB."""
MOST_S = 1.0
PROMPT_S = 0.2
"""Of probes beside what the shape of a request gives away, and clients of shared memory."""
MOST_LINES = 100

Attack = Callable[[Address, float], None]


ATTACKS: dict[str, tuple[str, Attack]] = {
    "nothing": ("http", nothing),  # how long the probes take on this machine at this time
    **{f"http {attack.__name__}": ("http", attack) for attack in HTTP_ATTACKS},
    **{f"grpc {attack.__name__}": ("grpc", attack) for attack in (*GRPC_ATTACKS, *MEMORY_ATTACKS)},
    **{f"grpc {attack.__name__}": ("grpc", attack) for attack in (unread_streams, unread_calls)},
    **{f"grpc {make.__name__}": ("grpc", functools.partial(messages, make)) for make in (*MESSAGES, *SIZES)},
    **{f"http {make.__name__}": ("http", functools.partial(bodies, make)) for make in BODIES},
    "http strings_in_json": ("http", functools.partial(bodies, strings_in_json, path=TEXT_PATH)),
    "http strings_behind_json": ("http", strings_behind_json),
}
PROMPT = frozenset(name for name in ATTACKS if name.endswith(tuple(make.__name__ for make in (*SIZES, *STRINGS))))
"""Attacks that the shape of a request gives away, so that probes wait for nothing."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A server under one attack.

    Attributes:
        attack: Its name.
        more_mb: Most memory beyond that at rest, in 10^6 bytes.
        http_s: Longest time of ``/readyz``.
        grpc_s: Longest time of gRPC's health service.
        http_failed: Answers of ``/readyz`` that were none, or another than that the server is ready.
        grpc_failed: The same of gRPC's health service.
        lines: Lines of the log.
        alive: Whether the process still runs.
    """

    attack: str
    more_mb: float
    http_s: float
    grpc_s: float
    http_failed: int
    grpc_failed: int
    lines: int
    alive: bool

    @property
    def passed(self) -> bool:
        """True if every figure is within its limit."""
        most_s = PROMPT_S if self.attack in PROMPT or "shared" in self.attack else MOST_S
        prompt = max(self.http_s, self.grpc_s) <= most_s and not self.http_failed + self.grpc_failed
        most_mb = UNREAD_CALLS_MB if "unread_calls" in self.attack else MOST_MB
        return self.alive and prompt and self.more_mb <= most_mb and self.lines <= MOST_LINES


def measure(name: str, options: argparse.Namespace) -> Measured:
    """Attack a fresh server."""
    port, attack = ATTACKS[name]
    with (
        tempfile.TemporaryDirectory(prefix="trtnode-attack-") as folder,
        AttackedServer(pathlib.Path(folder), options.descriptors, options.workers) as server,
    ):
        with Prober(server.http, server.grpc):
            time.sleep(2)  # first answers take memory that the server keeps
        idle_mb, lines = read_stats(server.pid).rss_mb, len(server.log_lines())
        attacker = multiprocessing.get_context("spawn").Process(
            target=attack, args=(getattr(server, port), time.monotonic() + options.seconds + 1), daemon=True
        )
        with StatsSampler(server.pid, 0.1) as sampler, Prober(server.http, server.grpc) as prober:
            attacker.start()
            attacker.join(options.seconds + 5)
            attacker.kill()
            attacker.join()
        return Measured(
            attack=name,
            more_mb=max(sample.rss_mb for sample in sampler.samples) - idle_mb,
            http_s=prober.http.worst_s,
            grpc_s=prober.grpc.worst_s,
            http_failed=prober.http.failed,
            grpc_failed=prober.grpc.failed,
            lines=len(server.log_lines()) - lines,
            alive=server.alive,
        )


def main(arguments: list[str]) -> int:
    """Run the attacks; return 0 if the server withstood all, else 1."""
    options = _parser().parse_args(arguments)
    names = [name for name in ATTACKS if not options.only or any(word in name for word in options.only)]
    table = Table("attack", "MB over idle", "/readyz s", "gRPC health s", "failed", "log lines", "passed")
    outcomes = []
    for name in names:
        outcome = measure(name, options)
        outcomes.append(outcome)
        print(outcome, file=sys.stderr)
        table.add_row(
            name,
            f"{outcome.more_mb:.0f}",
            f"{outcome.http_s:.2f}",
            f"{outcome.grpc_s:.2f}",
            f"{outcome.http_failed}, {outcome.grpc_failed}",
            str(outcome.lines),
            "yes" if outcome.passed else "NO",
        )
    Console(width=120).print(table)
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(one) for one in outcomes], indent=2), encoding="utf-8")
    return 0 if all(one.passed for one in outcomes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks", description=__doc__)
    parser.add_argument("--seconds", type=amount, default=20.0, help="of each attack (default: 20)")
    parser.add_argument("--descriptors", type=positive, default=256, help="that the server may open (default: 256)")
    parser.add_argument("--workers", type=positive, default=1, help="processes of the server (default: 1)")
    parser.add_argument("--only", nargs="+", default=[], help="attacks whose names hold one of these words")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
