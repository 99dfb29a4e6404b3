"""Prints what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.harness.comparison import Comparison
from benchmarks.harness.results import Result, Row, geometric_means
from benchmarks.harness.settings import NATIVE

LEGEND = (
    "ratio: native time over this row's, with its 95 % interval, in interleaved rounds; above 1 is faster. mean10: of "
    "ten requests after the first two. cosine, max abs, top-1: the worst against native over several samples. load, "
    "peak: of a fresh process."
)


def print_result(result: Result, console: Console) -> None:
    """Latencies, then accuracy and costs, a row a setting; and what belongs to them."""
    environment = result.environment
    console.print(
        f"{environment['processor']} ({', '.join(environment['features'])}), {environment['cores']} cores, "
        f"load {environment['load_average']} before and {environment['load_average_after']} after",
        markup=False,
    )
    console.print(_latencies(result.rows))
    console.print(_costs(result.rows))
    console.print(LEGEND, markup=False)
    means = geometric_means(row for row in result.rows if row.setting != NATIVE)
    for (setting, via, batch), mean in means.items():
        console.print(f"Geometric mean of ratios, {setting}, {via}, batch {batch}: {mean:.3f}", markup=False)
    for left_out in result.left_out:
        console.print(f"{left_out.network}: no {left_out.setting}: {left_out.reason}", markup=False)
    if not result.complete:
        console.print("[bold]Not complete[/bold]: the measurement was ended before its time.")


def _latencies(rows: Sequence[Row]) -> Table:
    table = _table("network", "batch", "via", "setting", "engine", "p50 ms", "p95 ms", "p99 ms", "mean10 ms", "ratio",
                   "95 %", "over process")  # fmt: skip
    for row in rows:
        table.add_row(
            escape(row.network),
            str(row.batch),
            row.via,
            row.setting,
            row.engine,
            *(f"{ms:.3f}" for ms in (row.p50_ms, row.p95_ms, row.p99_ms, row.mean10_ms)),
            *_ratio(row),
            _number(row.over_process_ms, "%+.3f"),
        )
    return table


def _costs(rows: Sequence[Row]) -> Table:
    """They are the same whatever way a model is asked."""
    table = _table("network", "batch", "setting", "computes in", "cosine", "max abs", "top-1", "compile s", "load s",
                   "engines MB", "peak MB")  # fmt: skip
    for row in {(row.network, row.batch, row.setting): row for row in rows}.values():
        table.add_row(
            escape(row.network),
            str(row.batch),
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
    return table


def print_comparison(comparison: Comparison, console: Console) -> None:
    """A row for each that both runs have, and the verdict."""
    table = _table("network", "batch", "via", "setting", "ratio before", "95 %", "ratio now", "95 %", "")
    for change in comparison.changes:
        table.add_row(
            escape(change.after.network),
            str(change.after.batch),
            change.after.via,
            change.after.setting,
            *_ratio(change.before),
            *_ratio(change.after),
            "[bold red]slower[/]" if change.is_regression else "",
        )
    console.print(table)
    for what, rows in (("only in the earlier run", comparison.missing), ("new", comparison.new)):
        if rows:
            console.print(f"{what}: {_listed(rows)}", markup=False)
    if not comparison.changes:
        console.print("The two runs have no row in common, so nothing was compared.")
    else:
        console.print(f"{len(comparison.regressions)} of {len(comparison.changes)} rows are slower beyond chance.")


def _table(*headings: str) -> Table:
    table = Table()
    for heading in headings:
        is_text = heading in ("network", "via", "setting", "engine", "computes in", "")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=True)
    return table


def _ratio(row: Row) -> tuple[str, str]:
    return f"{row.ratio:.3f}", f"{row.ratio_low:.3f}-{row.ratio_high:.3f}"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form % value


def _listed(rows: Sequence[Row]) -> str:
    return ", ".join(f"{row.network} {row.setting} {row.via} batch {row.batch}" for row in rows)
