"""What the server must reach, and whether it does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from benchmarks.serving.loads import Figures
from benchmarks.serving.rounds import Measure, Ratio, ratio

OURS = "trtnode"
WORKERS = "trtnode, batching, 2 workers"
SHARED = "trtnode, shared memory"
CEILING = "ceiling"
CEILINGS = "ceiling, 2 processes"
ENGINE = "engine, in process"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A ratio that is to be reached.

    Attributes:
        what: What is asked for.
        candidate: Who is to reach it.
        baseline: What it is compared with.
        measure: The figure that is compared.
        limit: The ratio; at least this for throughput, at most this for latency. None for a row that is only shown.
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
        return f"{'at most' if self.measure == 'p50_ms' else 'at least'} {self.limit:g} x"

    def holds(self, measured: Ratio) -> bool | None:
        """Whether a ratio reaches it; None where there is no limit."""
        if self.limit is None:
            return None
        return measured.median <= self.limit if self.measure == "p50_ms" else measured.median >= self.limit


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A bar, and what was measured.

    Attributes:
        bar: What is asked for.
        ratio: What was measured; None where something was missing.
        holds: Whether that is enough; None where it isn't known.
        missing: Why there is no ratio.
    """

    bar: Bar
    ratio: Ratio | None
    holds: bool | None
    missing: str = ""


def judge(bars: Sequence[Bar], figures: Mapping[str, Sequence[Figures]], missing: Mapping[str, str]) -> list[Row]:
    """Hold bars against what was measured.

    Args:
        bars: Of one race.
        figures: By candidate, one entry a round.
        missing: Why a candidate wasn't measured, by its name.
    """
    rows = []
    for bar in bars:
        absent = next((name for name in (bar.candidate, bar.baseline) if name not in figures), None)
        if absent is not None:
            rows.append(Row(bar=bar, ratio=None, holds=None, missing=missing.get(absent, f"{absent} wasn't measured")))
            continue
        measured = ratio(figures[bar.candidate], figures[bar.baseline], bar.measure)
        rows.append(Row(bar=bar, ratio=measured, holds=bar.holds(measured)))
    return rows
