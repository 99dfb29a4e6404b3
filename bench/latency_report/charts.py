"""Geometry of the page's charts in pixels: bars of ratios, and distributions of latencies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from trtnode.bench.latency_report.results import NATIVE, LatencyRow

BAR_HEIGHT, BAR_STEP, GROUP_GAP = 14, 19, 12
BARS_WIDTH = 560
PANEL_WIDTH, PANEL_HEIGHT = 300, 120
MOST_TICKS = 6
SHOWN_QUANTILES = 39
"""Number of quantiles in a chart, of 41: those up to 95 %, because the slowest calls would stretch the axis."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A mark of an axis."""

    x: float
    label: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar of a ratio with its interval: y is the upper edge, the others are distances from the axis."""

    row: LatencyRow
    y: float
    end: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BarGroup:
    """The bars of one model, batch size and transport."""

    title: str
    y: float
    bars: Sequence[Bar]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BarChart:
    """Bars of the ratios of all rows but the baseline's."""

    groups: Sequence[BarGroup]
    ticks: Sequence[Tick]
    one: float
    height: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The share of calls (up) that took at most a time (right), as points of a polyline."""

    row: LatencyRow
    points: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The distributions of one model, batch size and transport."""

    title: str
    curves: Sequence[Curve]
    ticks: Sequence[Tick]


def draw_bars(rows: Sequence[LatencyRow]) -> BarChart:
    """Return the bars of all ratios to native."""
    groups = [(title, [row for row in group if row.setting != NATIVE]) for title, group in group_rows(rows)]
    groups = [(title, group) for title, group in groups if group]
    highest = max((row.ratio_high for _, group in groups for row in group), default=1.0)
    scale = BARS_WIDTH / max(highest, 1.0)
    drawn: list[BarGroup] = []
    y = 0.0
    for title, group in groups:
        bars = [
            Bar(
                row=row,
                y=y + index * BAR_STEP,
                end=row.ratio * scale,
                low=row.ratio_low * scale,
                high=row.ratio_high * scale,
            )
            for index, row in enumerate(group)
        ]
        drawn.append(BarGroup(title=title, y=y, bars=bars))
        y += len(bars) * BAR_STEP + GROUP_GAP
    return BarChart(groups=drawn, ticks=_ticks(0.0, max(highest, 1.0), BARS_WIDTH), one=scale, height=y)


def draw_panels(rows: Sequence[LatencyRow]) -> list[Panel]:
    """Return the distributions of latencies; rows that are compared share an axis."""
    return [_panel(title, group) for title, group in group_rows(row for row in rows if row.quantiles_ms)]


def group_rows(rows: Iterable[LatencyRow]) -> list[tuple[str, list[LatencyRow]]]:
    """Return groups of rows that were measured in turns, with a title, in the order of measurement."""
    groups: dict[tuple[str, int, str], list[LatencyRow]] = {}
    for row in rows:
        groups.setdefault((row.network, row.batch, row.via), []).append(row)
    return [(_title(*key), group) for key, group in groups.items()]


def _title(network: str, batch: int, via: str) -> str:
    return network + (f", batch {batch}" if batch > 1 else "") + (f", {via}" if via != "process" else "")


def _panel(title: str, rows: Sequence[LatencyRow]) -> Panel:
    low = min(row.quantiles_ms[0] for row in rows)
    high = max(max(row.quantiles_ms[:SHOWN_QUANTILES]) for row in rows)
    scale = PANEL_WIDTH / ((high - low) or 1.0)
    curves = []
    for row in rows:
        step = PANEL_HEIGHT / ((len(row.quantiles_ms) - 1) or 1)
        points = enumerate(row.quantiles_ms[:SHOWN_QUANTILES])
        path = " ".join(f"{(ms - low) * scale:.1f},{PANEL_HEIGHT - index * step:.1f}" for index, ms in points)
        curves.append(Curve(row=row, points=path))
    return Panel(title=title, curves=curves, ticks=_ticks(low, high, PANEL_WIDTH))


def _ticks(low: float, high: float, width: float) -> list[Tick]:
    """Return ticks at round numbers on an axis from low to high."""
    span = (high - low) or 1.0
    power = 10.0 ** math.floor(math.log10(span / MOST_TICKS))
    step = next(factor * power for factor in (1, 2, 5, 10) if span / (factor * power) <= MOST_TICKS)
    digits = max(0, -math.floor(math.log10(step)))
    first = math.ceil(low / step)
    return [
        Tick(x=(index * step - low) / span * width, label=f"{index * step:.{digits}f}")
        for index in range(first, math.floor(high / step) + 1)
    ]
