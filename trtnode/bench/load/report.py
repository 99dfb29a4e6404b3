"""Reports rows as a table, and as warnings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from trtnode.bench.load.load_level import Level
from trtnode.bench.load.rows import LoadRow
from trtnode.bench.load.samples import Samples, percentile

TIMES = ("mean", "p50", "p90", "p95", "p99", "max")

BUSY_CORES = 0.9
"""Share of a core above which a client process may be too busy to send more."""

LATE_MS, LATE_SHARE = 1.0, 0.1
"""Limits of the 99th percentile of the send lag: in ms, and as a share of that of the latency."""


def warnings(level: Level, samples: Samples) -> Iterator[str]:
    """Yield the reasons that make a row doubtful."""
    for status, count in samples.errors.items():
        yield f"{level}: {count} of {samples.requests} requests failed with {status}: {samples.messages[status]}"
    if samples.unanswered:
        yield f"{level}: {samples.unanswered} requests were still on their way when it was interrupted."
    if not samples.requests:
        yield f"{level}: no request was due in this time. Give more --seconds."
    if max(samples.client_cores) > BUSY_CORES:
        yield (
            f"{level}: the client itself was busy ({max(samples.client_cores):.2f} of a core in a process), so the "
            "server may be able to do more. Give more --processes, or measure from another machine."
        )
    lag, latency = percentile(samples.lags_ms, 99), percentile(samples.latencies_ms, 99)
    if lag and latency and lag > max(LATE_MS, LATE_SHARE * latency):
        yield (
            f"{level}: requests were sent late (99 % within {lag:g} ms), which is in their latencies. The client's "
            "machine is too busy, or needs more --processes."
        )


def print_table(console: Console, rows: Sequence[LoadRow]) -> None:
    """Print a line per row; times in milliseconds."""
    is_open = any(row.rate_per_s for row in rows)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    headings = ("rate/s" if is_open else "callers", "sent", "errors", "OK/s", *TIMES)
    for heading in (*headings, *(("lag",) if is_open else ()), "cores"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        times = [getattr(row, f"{name}_ms") for name in (*TIMES, *(("send_lag_p99",) if is_open else ()))]
        counts = (f"{row.rate_per_s or row.concurrency:g}", f"{row.requests:,}", f"{sum(row.errors.values()):,}")
        table.add_row(*counts, *map(_digits, (row.throughput_per_s, *times)), f"{row.client_cores:.2f}")
    console.print(table)
    since = "when a request was due" if is_open else "when a request was sent"
    console.print(f"\nOK/s: requests that succeeded, a second; their times in ms, from {since} to its answer.")
    if is_open:
        console.print("lag: ms within which 99 % of them were sent after they were due.")
    console.print("cores: how many the client itself kept busy.")


def _digits(number: float | None) -> str:
    """Return a number with three significant digits, or all in front of the point."""
    if number is None:
        return "-"
    return f"{number:#.3g}" if number < 99.95 else f"{number:,.0f}"
