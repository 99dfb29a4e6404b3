"""What the figures should be on a processor with fast bfloat16 and int8, two threads, batch 1; and whether they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.harness.results import Result, Row, geometric_means, interval_text
from benchmarks.harness.settings import NATIVE

NEEDED_FEATURES = ("avx512_bf16", "avx512_vnni")
THREADS = 2

MEANS = {"fp32": 1.03, "bf16": 1.65, "int8": 2.5}
"""Least geometric mean of the ratios to native, by setting."""

SLOWEST, SLOWEST_MS = 0.97, 0.005
"""No network is slower than this ratio, or than native by this time."""

BUDGET_COSINE = 0.99
"""The accuracy that ``auto`` keeps to."""

GRPC_MS = 0.1
"""How far what gRPC adds to native and to compiled may differ. A network breaks it where the interval says so."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a bar is met.

    Attributes:
        bar: What is asked.
        figure: What was measured.
        met: Whether that is enough.
    """

    bar: str
    figure: str
    met: bool


def missing_conditions(environment: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    """What a run lacks for the bars to be meant for it."""
    lacks = [feature for feature in NEEDED_FEATURES if feature not in environment.get("features", ())]
    if any((row.threads or environment.get("cores")) != THREADS for row in rows):
        lacks.append(f"{THREADS} threads")
    return lacks


def judge(result: Result) -> list[Verdict]:
    """Compare a run with every bar for which it has rows."""
    rows = [row for row in result.rows if row.via == "process" and row.batch == 1]
    means = {setting: mean for (setting, _, _), mean in geometric_means(rows).items()}
    verdicts = [
        Verdict(bar=f"{name}: geometric mean at least {least}", figure=f"{means[name]:.3f}", met=means[name] >= least)
        for name, least in MEANS.items()
        if name in means
    ]
    return [*verdicts, *_judge_slowest(rows), *_judge_auto(rows, means), *_judge_grpc(result)]


def _judge_slowest(rows: Sequence[Row]) -> Iterator[Verdict]:
    native = {row.network: row for row in rows if row.setting == NATIVE}
    for setting in (*MEANS, "auto"):
        mine = [row for row in rows if row.setting == setting]
        if not mine:
            continue
        late = [r for r in mine if r.ratio < SLOWEST and r.p50_ms > native[r.network].p50_ms + SLOWEST_MS]
        yield Verdict(
            bar=f"{setting}: no network below {SLOWEST} and more than {SLOWEST_MS * 1e3:g} µs slower",
            figure=", ".join(f"{row.network} {row.ratio:.3f}" for row in late) or "none",
            met=not late,
        )


def _judge_auto(rows: Sequence[Row], means: Mapping[str, float]) -> Iterator[Verdict]:
    inaccurate = {row.setting for row in rows if row.cosine is None or row.cosine < BUDGET_COSINE}
    singles = {name: mean for name, mean in means.items() if name in MEANS and name not in inaccurate}
    if "auto" not in means or not singles:
        return
    best = max(singles, key=lambda name: singles[name])
    yield Verdict(
        bar=f"auto: at least {best}, the best setting within a cosine of {BUDGET_COSINE}",
        figure=f"{means['auto']:.3f} against {singles[best]:.3f}",
        met=means["auto"] >= singles[best],
    )


def _judge_grpc(result: Result) -> Iterator[Verdict]:
    gaps = {f"{r.network} {r.setting}": r.over_native_ms for r in result.rows if r.batch == 1 and r.over_native_ms}
    if not gaps:
        return
    apart = [name for name, (_, low, high) in gaps.items() if low > GRPC_MS or high < -GRPC_MS]
    widest = max(gaps, key=lambda name: abs(gaps[name][0]))
    yield Verdict(
        bar=f"gRPC adds the same to native and compiled within {GRPC_MS} ms, beyond chance",
        figure=f"{', '.join(apart) or 'none'} further apart; widest: {widest}, {interval_text(gaps[widest])} ms",
        met=not apart,
    )
