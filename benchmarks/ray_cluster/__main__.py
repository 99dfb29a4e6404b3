"""``python -m benchmarks.ray_cluster``: tables of what is lost, of latency, and of throughput."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.ray_cluster.losses import EVENTS, during, open_scene
from benchmarks.ray_cluster.speed import CALLERS, hops, latency, replicas
from benchmarks.ray_cluster.ways import ways

LOADS = (0.5, 0.7)


def main() -> None:
    """Measure, and write a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_cluster")
    parser.add_argument("what", choices=TABLES)
    parser.add_argument("--requests", type=int, default=1000, help="losses: the least number for each event")
    parser.add_argument("--events", nargs="*", default=list(EVENTS), choices=EVENTS, help="losses: all by default")
    parser.add_argument("--rounds", type=int, default=7, help="latency, throughput: of all subjects in turns")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as folder:
        TABLES[options.what](Path(folder), options)


def _losses(folder: Path, options: argparse.Namespace) -> None:
    _head("event", "requests", "first attempts that failed", "lost with a second one", "slowest, s", "seconds")
    with open_scene(folder) as scene:
        for event in options.events:
            began = time.monotonic()
            tally = during(scene, event, options.requests)
            failed = ", ".join(f"{number} {code}" for code, number in tally.failed.items()) or "0"
            lost, seconds = str(len(tally.lost)), f"{time.monotonic() - began:.0f}"
            _row(event, str(tally.sent), failed, lost, f"{tally.slowest_s:.1f}", seconds)
            for error in tally.lost:
                print("lost:", error)


def _latency(folder: Path, options: argparse.Namespace) -> None:
    _head("model", "plain server, ms", "Ray's echo, ms", "on Ray, ms", "added, ms", "more than the echo, ms")
    for name, ms in latency(folder, options.rounds, 100):
        added = ms["on Ray"] - ms["plain"]
        _row(name, *(f"{value:.2f}" for value in (*ms.values(), added, added - ms["echo"])))


def _throughput(folder: Path, options: argparse.Namespace) -> None:
    _head("two replicas of ResNet-50", "plain servers, or expected", "on Ray", "ratio")
    for name, expected, found in replicas(folder, options.rounds, 7, LOADS):
        _row(name, f"{expected:.1f}", f"{found:.1f}", f"{found / expected:.2f}")


def _hops(folder: Path, options: argparse.Namespace) -> None:
    _head(f"a small model, {CALLERS} callers", "figure")
    for name, figure in hops(folder, options.rounds, 4):
        _row(name, f"{figure:.3g}" if figure < 100 else f"{figure:.0f}")


def _ways(folder: Path, options: argparse.Namespace) -> None:
    _head("way", "model", "one caller, ms", f"{CALLERS} callers, answers/s")
    for way, name, ms, rate in ways(folder, options.rounds, 100, 3):
        _row(way, name, f"{ms:.2f}", f"{rate:.0f}")


def _head(*names: str) -> None:
    _row(*names)
    _row(*("---" for _ in names))


def _row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


TABLES: Mapping[str, Callable[[Path, argparse.Namespace], None]] = {
    "losses": _losses,
    "latency": _latency,
    "hops": _hops,
    "ways": _ways,
    "throughput": _throughput,
}


if __name__ == "__main__":
    main()
