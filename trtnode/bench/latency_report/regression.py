"""Compares a run with an earlier one, and finds ratios that fell beyond chance."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from trtnode.bench.latency_report.results import LatencyResult, LatencyRow

TOLERANCE = 0.03
"""Share of a ratio that may be lost, because tuning ignores smaller differences."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A row of both runs. Ratios are compared, not times, because the machine's speed may have changed."""

    before: LatencyRow
    after: LatencyRow

    @property
    def is_regression(self) -> bool:
        """True if the intervals are disjoint and the ratio fell by more than the tolerance."""
        apart = self.after.ratio_high < self.before.ratio_low
        return apart and self.after.ratio < (1 - TOLERANCE) * self.before.ratio


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """Two runs, row by row.

    Attributes:
        changes: Rows of both, in the order of the new run.
        missing: Rows of the earlier run alone.
        new: Rows of the new run alone.
    """

    changes: Sequence[Change]
    missing: Sequence[LatencyRow]
    new: Sequence[LatencyRow]

    @property
    def regressions(self) -> list[Change]:
        """Rows that became slower."""
        return [change for change in self.changes if change.is_regression]

    @property
    def passes(self) -> bool:
        """True if rows were compared and none became slower."""
        return bool(self.changes) and not self.regressions


def compare_results(earlier: LatencyResult, result: LatencyResult) -> RunComparison:
    """Compare rows of the same network, setting, transport, batch and threads."""
    pairs = [(earlier.find(row.key), row) for row in result.rows]
    return RunComparison(
        changes=[Change(before=before, after=after) for before, after in pairs if before],
        missing=[row for row in earlier.rows if result.find(row.key) is None],
        new=[after for before, after in pairs if before is None],
    )
