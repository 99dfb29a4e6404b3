"""Measures what equal rewrites of graphs gain: ``python -m benchmarks.optimize [PART...]``.

Parts: ``operators`` (patterns alone and in context), ``training`` (RepVGG-A0 and MobileOne-S0 with all their
branches), ``networks`` (the nine), ``models`` (those of a folder). Each is prepared with rewrites and without, for each
engine. Both take turns, each in a process of its own; the plain library, on the source, takes turns beside them. A
model without a place for a rewrite is the same file twice, so it isn't timed. Returns 1 where a gain misses its bar.

With ``--keep DIR``, files and figures stay, and a later run goes on where this one ended. ``--prepare`` writes files
and times nothing; ``--measure`` times what is prepared.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence

from rich.console import Console

from benchmarks.optimize.measure import measure
from benchmarks.optimize.prepare import PARTS, Given, prepare
from benchmarks.optimize.subject import Subject, keep_figures, kept_figures, kept_subjects
from benchmarks.optimize.tables import print_table, problems
from benchmarks.partition import collection
from trtnode.bench.environment import describe_environment, describe_load
from trtnode.engines.errors import EngineError

WIDTH = 150


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare, measure, print, and return 1 if a gain misses its bar."""
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as name:
        root = options.keep or pathlib.Path(name)
        parts = options.parts or list(PARTS)
        given = Given(root=root, models=options.models, only=options.only, threads=options.threads)
        for part in parts if options.prepare or not options.measure else ():
            prepare(part, given)
        return 0 if options.prepare else _measure_and_print(root, parts, options)


def _measure_and_print(root: pathlib.Path, parts: Sequence[str], options: argparse.Namespace) -> int:
    environment = describe_environment()
    subjects = [subject for part in parts for subject in kept_subjects(root, part)]
    _measure_all(root, [subject for subject in subjects if subject.rules], options)
    measured = [(s, figures) for s in subjects if (figures := kept_figures(s.folder(root))) is not None]
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    load = f"load {environment['load_average']} before and {describe_load()} after"
    console.print(f"{environment['processor']}, {environment['cores']} cores, {load}")
    print_table(measured, console)
    same = [subject for subject in subjects if not subject.rules]
    console.print(f"{len(same)} of {len(subjects)} have no place for a rewrite: the same file with them and without.")
    found = list(problems(measured, same))
    for problem in found:
        console.print(problem)
    return 1 if found else 0


def _measure_all(root: pathlib.Path, subjects: Sequence[Subject], options: argparse.Namespace) -> None:
    """Measure what has no figures yet, or all that is named again, until the time is over."""
    ends = time.monotonic() + options.seconds
    for subject in subjects:
        folder = subject.folder(root)
        named = fnmatch.fnmatch(subject.name, options.only)
        if not named or (kept_figures(folder) is not None and not options.again) or time.monotonic() > ends:
            continue
        try:
            figures = measure(root, subject, options.rounds, options.threads)
        except EngineError as error:
            print(f"{subject.name}, {subject.engine}: left out: {error}", file=sys.stderr, flush=True)
            continue
        keep_figures(folder, figures)
        print(f"{subject.name}, {subject.engine}: {figures.gain:.3f}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optimize", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("--models", type=pathlib.Path, default=collection.folder(), metavar="DIR", help="the folder")
    parser.add_argument("--only", default="*", metavar="GLOB", help="models with such a name; default: all")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="turns of each; default: 9")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of all; default: the libraries' choice")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep files and figures here, and go on there")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--prepare", action="store_true", help="write files, and time nothing")
    only.add_argument("--measure", action="store_true", help="time what is prepared, and write no file")
    parser.add_argument("--again", action="store_true", help="time again what has figures")
    parser.add_argument("--seconds", type=float, default=1e9, metavar="S", help="start no timing later than this")
    return parser


if __name__ == "__main__":
    # Child processes import what they run by its module's name.
    sys.exit(importlib.import_module("benchmarks.optimize.__main__").main())
