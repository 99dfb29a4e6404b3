"""Prints models, sums, and the reasons of models that the library takes whole and this project does not."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.engine_coverage.measure import CoverageRow
from benchmarks.engine_coverage.targets import CoverageTarget

HEADINGS = (
    "model", "nodes", "labelled", "in engines", "segments", "engines", "builds", "refused", "ORT helper", "alone",
    "alone s", "builds s", "added s", "ratio",
)  # fmt: skip

LONGEST_REASON = 200
"""Characters of a reason to print."""


def print_models(console: Console, rows: Sequence[CoverageRow]) -> None:
    """Print a line a model."""
    table = Table(title="models")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=heading != "model")
    for row in rows:
        table.add_row(row.name, *_cells(row))
    console.print(table)
    console.print(
        "alone: the library on the whole file. builds: also of parts of refused segments. ORT helper: segments, each "
        "one build, of ONNX Runtime's partitioning helper from the same labels. Seconds are of CPU time. "
        "ratio: added s / alone s."
    )


def _cells(row: CoverageRow) -> list[str]:
    alone = "crash" if row.whole.crashed else "engine" if row.whole.built else "no"
    seconds = f"{row.whole.seconds:.2f}"
    found = row.in_segments
    if found is None:
        return [*[""] * 8, alone, seconds, "", "", ""]
    return [
        f"{found.nodes:,}",
        f"{found.labelled:,}",
        f"{found.engine_nodes:,}",
        str(found.segments),
        "one for all" if found.is_one_engine else str(found.engines),
        str(found.build_calls),
        str(found.refused_builds),
        str(found.helper_segments),
        alone,
        seconds,
        f"{found.build_s:.2f}",
        f"{found.added_s:.2f}",
        "" if row.ratio is None else f"{row.ratio:.2f}",
    ]


def print_reasons(console: Console, rows: Sequence[CoverageRow]) -> None:
    """Print why models are not one engine although the library builds them whole, and why others failed."""
    table = Table("model", "native", "the most frequent reason", title="The library alone builds these as one engine")
    for row in rows:
        found = row.in_segments
        if row.problem:
            console.print(f"{row.name}: {row.problem}"[:LONGEST_REASON])
        if found and row.whole.built and not found.is_one_engine:
            reason = found.reasons[0][0] if found.reasons else "several segments"
            table.add_row(row.name, str(found.nodes - found.engine_nodes), reason[:LONGEST_REASON])
    if table.row_count:
        console.print(table)


def print_targets(console: Console, targets: Sequence[CoverageTarget]) -> None:
    """Print sums, and whether those with a limit are good enough."""
    words = {True: "holds", False: "FAILS", None: ""}
    table = Table("all models", "", "", title="Sums")
    for target in targets:
        table.add_row(target.text, target.value, words[target.holds])
    console.print(table)
