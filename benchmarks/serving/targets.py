"""Ratios that the server must reach, and the check of measured figures against them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from benchmarks.serving.interleaving import Measure, Ratio, ratio
from benchmarks.serving.load_generators import LoadFigures

OURS = "trtnode"
WORKERS = "trtnode, 2 workers"
SHARED = "trtnode, shared memory"
INSTANCES = "trtnode, an instance a core"
UNARY = "trtnode, unary calls"
BARE_SERVER = "bare server"
BARE_SERVERS = "bare server, 2 processes"
ENGINE = "engine, in process"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SpeedTarget:
    """A ratio that is to be reached.

    Attributes:
        what: Load and figure, for tables.
        candidate: Name of the server that is to reach it.
        baseline: Name of the server that it is compared with.
        limit: The ratio; a lower limit of throughput, an upper limit of latency and of CPU time. None for a row that is
            only shown.
        measure: The figure that is compared.
    """

    what: str
    candidate: str
    baseline: str
    limit: float | None
    measure: Measure = "throughput_per_s"

    @property
    def text(self) -> str:
        """The limit in words."""
        if self.limit is None:
            return "-"
        return f"{'at least' if self.measure == 'throughput_per_s' else 'at most'} {self.limit:g} x"

    def holds(self, measured: Ratio) -> bool | None:
        """Return whether a ratio reaches the target; None without a limit."""
        if self.limit is None:
            return None
        return measured.median >= self.limit if self.measure == "throughput_per_s" else measured.median <= self.limit


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow:
    """A target and its measured ratio.

    Attributes:
        target: The target.
        ratio: The measured ratio; None if a candidate was missing.
        holds: True if the ratio reaches the target; None if that isn't known.
        missing: Reason why there is no ratio.
    """

    target: SpeedTarget
    ratio: Ratio | None
    holds: bool | None
    missing: str = ""


def check_targets(
    targets: Sequence[SpeedTarget], figures: Mapping[str, Sequence[LoadFigures]], missing: Mapping[str, str]
) -> list[TargetRow]:
    """Compare figures with targets.

    Args:
        targets: Of one scenario.
        figures: By candidate, one entry per round.
        missing: Reasons why candidates weren't measured, by name.
    """
    rows = []
    for target in targets:
        absent = next((name for name in (target.candidate, target.baseline) if name not in figures), None)
        if absent is not None:
            rows.append(
                TargetRow(
                    target=target, ratio=None, holds=None, missing=missing.get(absent, f"{absent} wasn't measured")
                )
            )
            continue
        measured = ratio(figures[target.candidate], figures[target.baseline], target.measure)
        rows.append(TargetRow(target=target, ratio=measured, holds=target.holds(measured)))
    return rows
