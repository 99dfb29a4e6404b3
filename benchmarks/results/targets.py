"""Targets of the figures on a processor with fast bfloat16 and int8, with two threads, at batch 1."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trtnode.bench.latency_report.results import NATIVE, LatencyResult, LatencyRow, geometric_means, interval_text

NEEDED_FEATURES = ("avx512_bf16", "avx512_vnni")
THREADS = 2

MEANS = {"fp32": 1.03, "bf16": 1.65, "int8": 2.5}
"""Least geometric mean of the ratios to native, by setting."""

SLOWEST, SLOWEST_MS = 0.97, 0.005
"""Limits of the slowest network: the ratio to native, and the time that native is faster by."""

BUDGET_COSINE = 0.99
"""Least cosine of the answers with ``auto``."""

GRPC_MS = 0.1
"""Largest difference between the time that gRPC adds to native and to compiled.

A network misses the target only if the whole interval of its difference is beyond it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTarget:
    """A requirement and its measured figure.

    Attributes:
        text: The requirement.
        figure: The measured figure.
        met: True if the figure meets the requirement.
    """

    text: str
    figure: str
    met: bool


def missing_conditions(environment: Mapping[str, Any], rows: Sequence[LatencyRow]) -> list[str]:
    """Return the conditions of the targets that a run lacks."""
    lacks = [feature for feature in NEEDED_FEATURES if feature not in environment.get("features", ())]
    if any((row.threads or environment.get("cores")) != THREADS for row in rows):
        lacks.append(f"{THREADS} threads")
    return lacks


def check_targets(result: LatencyResult) -> list[LatencyTarget]:
    """Compare a run with every target that it has rows for."""
    rows = [row for row in result.rows if row.via == "process" and row.batch == 1]
    means = {setting: mean for (setting, _, _), mean in geometric_means(rows).items()}
    targets = [
        LatencyTarget(
            text=f"{name}: geometric mean at least {least}", figure=f"{means[name]:.3f}", met=means[name] >= least
        )
        for name, least in MEANS.items()
        if name in means
    ]
    return [*targets, *_judge_slowest(rows), *_judge_auto(rows, means), *_judge_grpc(result)]


def _judge_slowest(rows: Sequence[LatencyRow]) -> Iterator[LatencyTarget]:
    native = {row.network: row for row in rows if row.setting == NATIVE}
    for setting in (*MEANS, "auto"):
        mine = [row for row in rows if row.setting == setting]
        if not mine:
            continue
        late = [r for r in mine if r.ratio < SLOWEST and r.p50_ms > native[r.network].p50_ms + SLOWEST_MS]
        yield LatencyTarget(
            text=f"{setting}: no network below {SLOWEST} and more than {SLOWEST_MS * 1e3:g} µs slower",
            figure=", ".join(f"{row.network} {row.ratio:.3f}" for row in late) or "none",
            met=not late,
        )


def _judge_auto(rows: Sequence[LatencyRow], means: Mapping[str, float]) -> Iterator[LatencyTarget]:
    inaccurate = {row.setting for row in rows if row.cosine is None or row.cosine < BUDGET_COSINE}
    singles = {name: mean for name, mean in means.items() if name in MEANS and name not in inaccurate}
    if "auto" not in means or not singles:
        return
    best = max(singles, key=lambda name: singles[name])
    yield LatencyTarget(
        text=f"auto: at least {best}, the best setting within a cosine of {BUDGET_COSINE}",
        figure=f"{means['auto']:.3f} against {singles[best]:.3f}",
        met=means["auto"] >= singles[best],
    )


def _judge_grpc(result: LatencyResult) -> Iterator[LatencyTarget]:
    gaps = {f"{r.network} {r.setting}": r.over_native_ms for r in result.rows if r.batch == 1 and r.over_native_ms}
    if not gaps:
        return
    apart = [name for name, (_, low, high) in gaps.items() if low > GRPC_MS or high < -GRPC_MS]
    widest = max(gaps, key=lambda name: abs(gaps[name][0]))
    yield LatencyTarget(
        text=f"gRPC adds the same to native and compiled within {GRPC_MS} ms, beyond chance",
        figure=f"{', '.join(apart) or 'none'} further apart; widest: {widest}, {interval_text(gaps[widest])} ms",
        met=not apart,
    )
