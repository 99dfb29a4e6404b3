"""``make fuzz``: gives damaged and hostile input to every way in, for minutes, and keeps what goes wrong.

Each finding is shortened and written to ``build/fuzz/<target>/``. Move it to ``tests/fuzz/corpus/<target>/`` with the
change that mends it: ``make test`` replays the corpus.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import os
import pathlib
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence

import hypothesis

sys.path += [str(pathlib.Path(__file__).parents[1] / "partitioner" / "fixtures")]

from tests.fuzz.targets import BOMBS, Target, Targets
from trtnode.engines.build.options import EVERY_ENGINE


class FindingError(Exception):
    """A case that ended as none may."""

    def __init__(self, data: bytes, wrong: str) -> None:
        super().__init__(_kind(wrong))
        self.data = data
        self.wrong = wrong


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz, print a line a target, and return 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--only", nargs="*", help="names of targets")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--ignore", type=re.compile, help="a pattern of what is found and known")
    parser.add_argument("--findings", type=pathlib.Path, default=pathlib.Path("build/fuzz"))
    arguments = parser.parse_args(argv)
    os.environ[EVERY_ENGINE] = "1"  # engines of tiny models are read and run, too
    print(f"seed {arguments.seed}")
    counts: collections.Counter[str] = collections.Counter()
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="trtnode-fuzz-") as folder:
        targets = Targets(pathlib.Path(folder))
        chosen = [target for target in targets.all() if not arguments.only or target.name in arguments.only]
        until, number = time.monotonic() + arguments.minutes * 60, 0
        try:
            while time.monotonic() < until:
                target = chosen[number % len(chosen)]
                finding = _fuzz(target, arguments.seed + number, until, counts, arguments.ignore)
                if finding is not None and (key := f"{target.name}: {finding}") not in found:
                    found[key] = _keep(arguments.findings / target.name, finding)
                    print(f"FOUND {found[key]}: {finding.wrong}", flush=True)
                number += 1
        finally:
            targets.close()
    for name, count in sorted(counts.items()):
        print(f"{name:16} {count:7}")
    print(f"{len(found)} findings")
    return 1 if found else 0


def _fuzz(
    target: Target, seed: int, until: float, counts: collections.Counter[str], ignored: re.Pattern[str] | None
) -> FindingError | None:
    """Run some cases of a target; return the shortest that is found."""

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=target.examples,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, *([hypothesis.Phase.shrink] if target.shrinks else [])],
    )
    @hypothesis.given(target.cases)
    def run(data: bytes) -> None:
        if time.monotonic() > until:
            return
        counts[target.name] += 1
        wrong = target.outcome(data)
        if BOMBS.search(wrong):
            counts[f"{target.name} bombs"] += 1
        elif wrong and ignored is not None and ignored.search(wrong):
            counts[f"{target.name} ignored"] += 1
        elif wrong:
            raise FindingError(data, wrong)

    try:
        run()
    except FindingError as finding:
        return finding
    except hypothesis.errors.FlakyFailure as flaky:  # fails only after what came before
        return next((one for one in flaky.exceptions if isinstance(one, FindingError)), None)
    return None


def _keep(folder: pathlib.Path, finding: FindingError) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / hashlib.sha256(finding.data).hexdigest()[:16]
    file.write_bytes(finding.data)
    file.with_suffix(".txt").write_text(finding.wrong)
    return str(file)


def _kind(wrong: str) -> str:
    """Return what two cases with the same cause have in common, as far as their text tells."""
    last = wrong.strip().splitlines()[-1] if wrong.strip() else ""
    return re.sub(r"0x[0-9a-f]+|\d+|'[^']*'|\"[^\"]*\"|/\S+", "", last)[:160]


if __name__ == "__main__":
    sys.exit(main())
