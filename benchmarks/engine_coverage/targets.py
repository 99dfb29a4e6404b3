"""The figures of a whole collection, beside those that they should be."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from benchmarks.engine_coverage.measure import CoverageRow, InSegments

LONG_S = 1.0
"""CPU time of the library alone from which the added time is judged."""

MOST_ADDED = 2.0
"""Limit of the added time over that of the library alone."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CoverageTarget:
    """A figure of all models.

    Attributes:
        text: The figure's name.
        value: The figure.
        holds: True if it is good enough; None where there is no limit.
    """

    text: str
    value: str
    holds: bool | None = None


def check_targets(rows: Sequence[CoverageRow]) -> list[CoverageTarget]:
    """Sum up a collection."""
    found = [row.in_segments for row in rows if row.in_segments]
    whole = [row for row in rows if row.whole.built]
    ours = [row for row in whole if row.in_segments and row.in_segments.is_one_engine]
    return [
        CoverageTarget(text="models, with a compiled model", value=f"{len(found)} of {len(rows)}"),
        CoverageTarget(
            text="models that the library builds whole, and that are one engine here",
            value=f"{len(ours)} of {len(whole)}",
        ),
        CoverageTarget(
            text="nodes in engines that were built, of those labelled, of all",
            value=f"{_sum(found, 'engine_nodes'):,} of {_sum(found, 'labelled'):,} of {_sum(found, 'nodes'):,}",
        ),
        CoverageTarget(
            text="nodes in engines, or in a whole model that the library alone builds",
            value=f"{sum(map(_best_nodes, rows)):,}",
        ),
        CoverageTarget(
            text="builds refused, of all",
            value=f"{_sum(found, 'refused_builds')} of {_sum(found, 'build_calls')}",
        ),
        CoverageTarget(
            text="segments before builds; of ONNX Runtime's helper, from the same labels",
            value=f"{_sum(found, 'segments')}; {_sum(found, 'helper_segments')}",
        ),
        CoverageTarget(
            text="crashes: of the library in a worker; of the library alone; of the compiling process",
            value=f"{_sum(found, 'crashes')}; {sum(row.whole.crashed for row in rows)}; {_lost(rows)}",
            holds=_lost(rows) == 0,
        ),
        _added_time(rows),
    ]


def _added_time(rows: Sequence[CoverageRow]) -> CoverageTarget:
    ratios = {row.name: row.ratio for row in rows if row.ratio is not None and row.whole.seconds >= LONG_S}
    text = f"CPU time added to the builds, over the library alone (models over {LONG_S:g} s; at most {MOST_ADDED:g})"
    if not ratios:
        return CoverageTarget(text=text, value="no such model")
    worst = max(ratios, key=lambda name: ratios[name] or 0.0)
    above = sum(ratio > MOST_ADDED for ratio in ratios.values() if ratio is not None)
    value = f"{ratios[worst]:.2f} ({worst}); {above} of {len(ratios)} above"
    return CoverageTarget(text=text, value=value, holds=above == 0)


def _sum(found: Sequence[InSegments], field: str) -> int:
    return sum(getattr(one, field) for one in found)


def _best_nodes(row: CoverageRow) -> int:
    if row.in_segments is None:
        return 0
    return row.in_segments.nodes if row.whole.built else row.in_segments.engine_nodes


def _lost(rows: Sequence[CoverageRow]) -> int:
    """Count the models whose whole measurement crashed or took too long."""
    return sum("crashed" in row.problem or "took longer" in row.problem for row in rows)
