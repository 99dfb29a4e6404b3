"""Prints results and comparisons as tables."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from trtnode.bench.latency_report.regression import RunComparison
from trtnode.bench.latency_report.results import (
    NATIVE,
    LatencyResult,
    LatencyRow,
    compiled_with,
    geometric_means,
    group_rows,
    interval_text,
)

TEXTS = ("model", "setting", "engine", "in", "verdict")
"""Headings of columns with text, not figures."""

LISTED = 4
"""Largest number of rows that are named in a list."""

LEGEND = (
    "ratio: native time over this row's, with its 95 % interval, in interleaved rounds; above 1 is faster. mean10: of "
    "ten requests after the first two. cosine, max abs, top-1: the worst against native over several samples. load, "
    "peak: of a fresh process; in: the precision that engines compute in. over process: what gRPC adds, in ms; "
    "over native: what of that native doesn't have."
)


def print_result(result: LatencyResult, console: Console) -> None:
    """Print verdicts, latencies, accuracy and costs, with a row per setting; then means and reasons."""
    for line in _verdicts(result.rows):
        console.print(line, markup=False)
    environment = result.environment
    console.print(
        f"{environment['processor']} ({', '.join(environment['features'])}), {environment['cores']} cores, "
        f"load {environment['load_average']} before and {environment['load_average_after']} after",
        markup=False,
    )
    console.print(f"Compiled with: {compiled_with(result)}", markup=False)
    for about in dict.fromkeys(f"{row.setting}: {row.about}" for row in result.rows if row.about):
        console.print(about, markup=False)
    console.print(_latencies(result.rows))
    if any(row.over_process_ms is not None for row in result.rows):
        console.print(_added(result.rows))
    console.print(_costs(result.rows))
    console.print(LEGEND, markup=False)
    means = geometric_means(row for row in result.rows if row.setting != NATIVE)
    for (setting, via, batch), mean in means.items():
        console.print(f"Geometric mean of ratios, {setting}, {via}, batch {batch}: {mean:.3f}", markup=False)
    for left_out in result.left_out:
        console.print(f"{left_out.network}: no {left_out.setting}: {left_out.reason}", markup=False)
    if not result.complete:
        console.print("[bold]Not complete[/bold]: the measurement was ended before its time.")


def _verdicts(rows: Sequence[LatencyRow]) -> Iterator[str]:
    """Yield a sentence about each compiled model, and a remedy where one isn't faster."""
    slow = False
    for title, group in group_rows(rows):
        for row in group:
            if row.about:
                slow = slow or (row.engine != NATIVE and row.ratio_low <= 1)
                yield f"{title}, {row.setting}: {_speed(row)} (ratio {' in '.join(_ratio(row))}, measured)."
    if slow:
        yield "To try: `trtnode explain` tells why."


def _speed(row: LatencyRow) -> str:
    if row.engine == NATIVE:
        return "no engine is kept, so it runs natively"
    if row.ratio_low > 1:
        return f"faster than native, {row.ratio:.3g} times"
    return "slower than native" if row.ratio_high < 1 else "neither faster nor slower than native beyond chance"


def print_comparison(comparison: RunComparison, console: Console) -> None:
    """Print a row per common row of both runs, and the verdict."""
    changes = {change.after.key: change for change in comparison.changes}
    headings = ("model", "setting", "ratio before", "95 % before", "ratio now", "95 % now", "verdict")
    lines = [
        (
            title,
            row.setting,
            *_ratio(changes[row.key].before),
            *_ratio(row),
            "slower" if changes[row.key].is_regression else "",
        )
        for title, group in group_rows(change.after for change in comparison.changes)
        for row in group
    ]
    if lines:
        console.print(_table(headings, lines))
    for what, rows in (("only in the earlier run", comparison.missing), ("new", comparison.new)):
        if rows:
            console.print(f"{what}: {_listed(rows)}", markup=False)
    if comparison.changes:
        console.print(f"{len(comparison.regressions)} of {len(comparison.changes)} rows are slower beyond chance.")
    else:
        console.print("The two runs have no row in common, so nothing was compared.")


def _latencies(rows: Sequence[LatencyRow]) -> Table:
    headings = (
        "model",
        "setting",
        "engine",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "mean10 ms",
        "ratio",
        "95 %",
    )
    return _table(
        headings,
        [
            (
                title,
                row.setting,
                row.engine,
                *(f"{ms:.3f}" for ms in (row.p50_ms, row.p95_ms, row.p99_ms, row.mean10_ms)),
                *_ratio(row),
            )
            for title, group in group_rows(rows)
            for row in group
        ],
    )


def _added(rows: Sequence[LatencyRow]) -> Table:
    """Return the table of the time that gRPC adds."""
    headings = ("model", "setting", "over process", "over native (95 %)")
    served = [row for row in rows if row.over_process_ms is not None]
    return _table(
        headings,
        [
            (
                title,
                row.setting,
                _number(row.over_process_ms, "%+.3f"),
                interval_text(row.over_native_ms) if row.over_native_ms else "",
            )
            for title, group in group_rows(served)
            for row in group
        ],
    )


def _costs(rows: Sequence[LatencyRow]) -> Table:
    """Return the table of accuracy and costs, which don't depend on the transport."""
    headings = ("model", "setting", "in", "cosine", "max abs", "top-1", "compile s", "load s", "engines MB", "peak MB")
    unique = {(row.network, row.batch, row.setting): dataclasses.replace(row, via="process") for row in rows}
    return _table(
        headings,
        [
            (
                title,
                row.setting,
                row.precision,
                _number(row.cosine, "%.6f"),
                _number(row.max_abs, "%.1e"),
                _number(row.top1_agreement, "%.3f"),
                _number(row.compile_s, "%.1f"),
                f"{row.load_s:.2f}",
                f"{row.engine_bytes / 1e6:.1f}",
                f"{row.peak_rss_mb:.0f}",
            )
            for title, group in group_rows(unique.values())
            for row in group
        ],
    )


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    """Return a table without empty columns, with a line under the last row of each model, if there are several.

    In a narrow terminal, headings break at their spaces; figures are never cut.
    """
    several = len({line[0] for line in lines}) > 1
    filled = [i for i in range(len(headings)) if any(line[i] for line in lines) and (several or headings[i] != "model")]
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for index in filled:
        justify: JustifyMethod = "left" if headings[index] in TEXTS else "right"
        table.add_column(headings[index], justify=justify, overflow="fold")
    for line, following in itertools.pairwise([*lines, [""]]):
        table.add_row(*(escape(line[index]) for index in filled), end_section=line[0] != following[0])
    return table


def _ratio(row: LatencyRow) -> tuple[str, str]:
    return f"{row.ratio:.3f}", f"{row.ratio_low:.3f}-{row.ratio_high:.3f}"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form % value


def _listed(rows: Sequence[LatencyRow]) -> str:
    named = [f"{row.network} {row.setting} {row.via} batch {row.batch}" for row in rows[:LISTED]]
    return ", ".join(named) + (f" and {len(rows) - LISTED} more" if len(rows) > LISTED else "")
