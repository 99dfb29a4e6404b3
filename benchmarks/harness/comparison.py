"""Whether a run is slower than an earlier one, beyond what chance explains."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from benchmarks.harness.results import Result, Row

TOLERANCE = 0.03
"""Part of a ratio that may be lost: tuning itself calls a smaller difference none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A row of both runs. Ratios are compared, not times: a machine that is slower today is slower for both."""

    before: Row
    after: Row

    @property
    def is_regression(self) -> bool:
        """Whether the intervals stand apart and the ratio has fallen by more than the tolerance."""
        apart = self.after.ratio_high < self.before.ratio_low
        return apart and self.after.ratio < (1 - TOLERANCE) * self.before.ratio


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs, row by row.

    Attributes:
        changes: Rows of both, in the order of the new run.
        missing: Rows that only the earlier run has.
        new: Rows that only the new run has.
    """

    changes: Sequence[Change]
    missing: Sequence[Row]
    new: Sequence[Row]

    @property
    def regressions(self) -> list[Change]:
        """Rows that became slower."""
        return [change for change in self.changes if change.is_regression]

    @property
    def passes(self) -> bool:
        """Whether anything was compared and nothing became slower."""
        return bool(self.changes) and not self.regressions


def compare_results(earlier: Result, result: Result) -> Comparison:
    """Compare rows of the same network, setting, way, batch and threads."""
    pairs = [(earlier.find(row.key), row) for row in result.rows]
    return Comparison(
        changes=[Change(before=before, after=after) for before, after in pairs if before],
        missing=[row for row in earlier.rows if result.find(row.key) is None],
        new=[after for before, after in pairs if before is None],
    )
