"""Targets of the cut, and their check."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from benchmarks.partition.graphs import FAMILIES
from benchmarks.partition.measure import OURS, CutRow
from benchmarks.partition.peers import ORT_HELPER, TORCH_FX, PeerPartitioner
from benchmarks.partition.whole_command import EXPLAIN, ORT, CommandRow
from benchmarks.partition.whole_command import SIZES as COMMAND_SIZES

MS_LIMITS = {10_000: 100.0, 100_000: 2_000.0}
"""Limits in milliseconds for labelling and cutting, by number of nodes."""

GROWTH_SIZES = (10_000, 100_000)
GROWTH_LIMIT = 1.2
COMMAND_LIMIT = 1.0
PAGE_MB_LIMIT = 3.0
FX_NODES, FX_FACTOR = 1_000, 100.0
CONST_FED_LIMIT = 0.5

Row = CutRow | CommandRow


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CutTarget:
    """A target and its result.

    Attributes:
        text: The requirement.
        worst: The graph that is nearest to the limit, or furthest beyond it.
        holds: True if the target is met; None if nothing relevant was measured.
    """

    text: str
    worst: str
    holds: bool | None


def check_targets(rows: Sequence[CutRow]) -> list[CutTarget]:
    """Compare rows with every target."""
    ours = [row for row in rows if row.method == OURS]
    generated = [row for row in rows if row.source in FAMILIES]
    helper, fx = _pairs(rows, ORT_HELPER), _pairs(generated, TORCH_FX)
    fed = [(mine, theirs) for mine, theirs in _pairs(generated, ORT_HELPER) if mine.source == "const_fed"]
    times = [(row, row.ms) for row in ours if row.source in FAMILIES]
    factors = [(mine, theirs.ms / mine.ms) for mine, theirs in fx if mine.nodes == FX_NODES]
    return [
        _most("segments beyond the exact minimum: 0", ((r, r.segments - r.minimum) for r in ours), 0, "{:.0f}"),
        _least("supported nodes in segments: 100 %", ((r, r.score.coverage) for r in ours), 1.0, "{:.1%}"),
        _least("legal cuts: all", ((r, float(r.score.legal)) for r in ours), 1.0, "{:.0f}"),
        _most("crossing tensors: at most the ORT helper's", _ratios(helper), 1.0, "{:.2f} x"),
        _most(
            f"on const_fed: at most {CONST_FED_LIMIT} x the ORT helper's, or just those that cross in every cut",
            ((m, r) for m, r in _ratios(fed) if m.score.crossing_tensors > m.unavoidable or r <= CONST_FED_LIMIT),
            CONST_FED_LIMIT,
            "{:.2f} x",
        ),
        _most("crossing tensors of the families: at most torch.fx's", _ratios(fx), 1.0, "{:.2f} x"),
        *(
            _most(
                f"label and cut {size:,} nodes: at most {limit:,.0f} ms",
                ((row, ms) for row, ms in times if row.nodes == size),
                limit,
                "{:,.0f} ms",
            )
            for size, limit in MS_LIMITS.items()
        ),
        _most(
            f"growth exponent from {GROWTH_SIZES[0]:,} to {GROWTH_SIZES[1]:,} nodes: at most {GROWTH_LIMIT}",
            growth(rows).values(),
            GROWTH_LIMIT,
            "{:.2f}",
        ),
        _least(f"times faster than torch.fx at {FX_NODES:,} nodes: {FX_FACTOR:.0f}", factors, FX_FACTOR, "{:,.0f} x"),
    ]


def check_commands(rows: Sequence[CommandRow]) -> list[CutTarget]:
    """Compare the whole command with a plain load of the same file by ONNX Runtime; its page must be small."""
    pages = [(row, row.page_bytes / 1e6) for row in rows if row.page_bytes is not None]
    return [
        *(
            _most(
                f"whole explain of {size:,} nodes: at most {COMMAND_LIMIT} x the CPU time of onnxruntime's load",
                ((row, ratio) for row, ratio in cpu_ratios(rows) if row.method == EXPLAIN and row.nodes == size),
                COMMAND_LIMIT,
                "{:.2f} x",
            )
            for size in COMMAND_SIZES
        ),
        _most(f"its page: at most {PAGE_MB_LIMIT:.0f} MB", pages, PAGE_MB_LIMIT, "{:.2f} MB"),
    ]


def cpu_ratios(rows: Iterable[CommandRow]) -> list[tuple[CommandRow, float]]:
    """Return our rows, each with the ratio of its CPU time to that of ONNX Runtime on the same file."""
    rows = list(rows)
    loads = {(row.source, row.nodes): row.cpu_s for row in rows if row.method == ORT}
    return [(row, row.cpu_s / loads[row.source, row.nodes]) for row in rows if row.method != ORT]


def growth(rows: Iterable[CutRow]) -> Mapping[tuple[str, float], tuple[CutRow, float]]:
    """Return our growth exponents by family and share of native nodes, each with the row of the larger graph."""
    ours = {row.graph: row for row in rows if row.method == OURS}
    small, large = GROWTH_SIZES
    found: dict[tuple[str, float], tuple[CutRow, float]] = {}
    for (source, nodes, share), row in ours.items():
        before = ours.get((source, small, share))
        if nodes == large and before is not None:
            found[source, share] = row, math.log(row.ms / before.ms) / math.log(large / small)
    return found


def name_graph(row: Row) -> str:
    """Return a graph's family, size and share of native nodes as text."""
    return f"{row.source}, {row.nodes:,} nodes, {row.native_share:.0%} native"


def _pairs(rows: Sequence[CutRow], peer: PeerPartitioner) -> list[tuple[CutRow, CutRow]]:
    """Return our row and the peer's of each graph that both cut."""
    theirs = {row.graph: row for row in rows if row.method == peer.name}
    return [(row, theirs[row.graph]) for row in rows if row.method == OURS and row.graph in theirs]


def _ratios(pairs: Iterable[tuple[CutRow, CutRow]]) -> list[tuple[CutRow, float]]:
    """Return the ratio of tensors that cross in our cut to those in the peer's."""
    found = []
    for mine, theirs in pairs:
        few, many = mine.score.crossing_tensors, theirs.score.crossing_tensors
        found.append((mine, few / many if many else 1.0 if few == 0 else math.inf))
    return found


def _most(text: str, found: Iterable[tuple[Row, float]], limit: float, form: str) -> CutTarget:
    return _target(text, max(found, key=lambda pair: pair[1], default=None), form, lambda value: value <= limit)


def _least(text: str, found: Iterable[tuple[CutRow, float]], limit: float, form: str) -> CutTarget:
    return _target(text, min(found, key=lambda pair: pair[1], default=None), form, lambda value: value >= limit)


def _target(text: str, worst: tuple[Row, float] | None, form: str, reached: Callable[[float], bool]) -> CutTarget:
    if worst is None:
        return CutTarget(text=text, worst="", holds=None)
    row, value = worst
    return CutTarget(text=text, worst=f"{form.format(value)} ({name_graph(row)})", holds=reached(value))
