"""Builds every model of a folder with TensorRT for RTX: ``python -m benchmarks.engine_coverage [--models DIR]``.

Returns 1 if a target is missed, 2 if there is no model or no library.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Sequence

from rich.console import Console

from benchmarks.engine_coverage.collection import find_cases
from benchmarks.engine_coverage.measure import ENGINE, CoverageRow, measure_apart
from benchmarks.engine_coverage.tables import print_models, print_reasons, print_targets
from benchmarks.engine_coverage.targets import CoverageTarget, check_targets
from benchmarks.partition import collection
from trtnode.bench.environment import describe_environment
from trtnode.engines.artifact.files import write_atomically
from trtnode.engines.backends.registry import get_backend
from trtnode.partitioner.cut.options import Allowance, PartitionOptions

WIDTH = 170
"""Columns of the tables where the output is no terminal."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a target is missed."""
    given = _parser().parse_args(arguments)
    if problem := get_backend(ENGINE).unavailable_reason():
        print(problem, file=sys.stderr)
        return 2
    cases = find_cases(given.models, given.only)
    if not cases:
        print(f"{str(given.models)!r} has no model {given.only!r}; name a folder: --models DIR", file=sys.stderr)
        return 2
    console = Console(markup=False)
    console = console if console.is_terminal else Console(width=WIDTH, markup=False)
    environment = describe_environment()
    console.print(f"{environment['processor']}, {environment['cores']} cores, load {environment['load_average']}")
    options = PartitionOptions(
        allow=tuple(Allowance(name) for name in given.allow), freeze_initializers=given.freeze_initializers
    )
    rows = []
    for number, case in enumerate(cases, start=1):
        print(f"{number}/{len(cases)} {case.name}", file=sys.stderr, flush=True)
        rows.append(measure_apart(case, options))
    targets = check_targets(rows)
    print_models(console, rows)
    print_reasons(console, rows)
    print_targets(console, targets)
    if given.json:
        write_atomically(given.json, _as_json(environment, options, rows, targets))
    return 1 if any(target.holds is False for target in targets) else 0


def _as_json(
    environment: dict[str, object],
    options: PartitionOptions,
    rows: Sequence[CoverageRow],
    targets: Sequence[CoverageTarget],
) -> bytes:
    facts = {
        "environment": environment,
        "options": dataclasses.asdict(options),
        "rows": [dataclasses.asdict(row) for row in rows],
        "sums": [dataclasses.asdict(target) for target in targets],
    }
    return json.dumps(facts, indent=1).encode()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine_coverage", description=__doc__)
    parser.add_argument(
        "--models",
        type=pathlib.Path,
        default=collection.folder(),
        metavar="DIR",
        help="folder of ONNX models; default: TRTNODE_MODEL_COLLECTION, or ../shared/models",
    )
    parser.add_argument("--only", default="*", metavar="GLOB", help="models with such a name; default: all")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures as one JSON object")
    parser.add_argument("--freeze-initializers", action="store_true", help="as `trtnode compile` takes it")
    parser.add_argument(
        "--allow", action="append", choices=tuple(Allowance), default=[], help="as `trtnode compile` takes it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
