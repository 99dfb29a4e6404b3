"""Draws latency, variant and load over time as SVG."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from benchmarks.variants.ramp import Answer, Step

WIDTH, HEIGHT, GAP, LEFT, TOP, RIGHT = 900, 180, 60, 76, 56, 20
"""Sizes in pixels: of a panel, of the space between two, and of the margins."""

COLOURS = ("#3b82c4", "#d98a2b", "#2f9e5b", "#a855b5")
STYLE = "text{font:12px system-ui,sans-serif;fill:#333}.title{font-size:14px;font-weight:600}line{stroke:#d8dde3}"
TICKS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """The answers of a server under the load, and how many requests it refused."""

    title: str
    answers: Sequence[Answer]
    refused: int


def draw(runs: Sequence[Run], steps: Sequence[Step], variants: Sequence[str], target_ms: float) -> str:
    """Return a chart: a panel of latencies a run, all on one scale, and one of the load.

    Args:
        runs: With the same load; each has an answer.
        steps: The load.
        variants: Names, at most four.
        target_ms: Drawn as a line.
    """
    end_s = sum(step.seconds for step in steps)
    latencies = [one.latency_ms for run in runs for one in run.answers]
    scale = _Scale(math.floor(math.log10(min(latencies))), math.ceil(math.log10(max(latencies))))
    panels = [_latencies(run, scale, end_s, variants, target_ms) for run in runs]
    panels.append(_load(steps, end_s))
    placed = [
        f'<g transform="translate({LEFT} {TOP + index * (HEIGHT + GAP)})">{panel}{_times(end_s)}</g>'
        for index, panel in enumerate(panels)
    ]
    size = LEFT + WIDTH + RIGHT, TOP + len(panels) * (HEIGHT + GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}">'
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
        f"{''.join(_legend(variants))}{''.join(placed)}</svg>\n"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Scale:
    """Powers of ten at the lower and upper edge of a panel."""

    low: int
    high: int

    def y(self, latency_ms: float) -> float:
        return HEIGHT * (self.high - math.log10(latency_ms)) / (self.high - self.low)


def _latencies(run: Run, scale: _Scale, end_s: float, variants: Sequence[str], target_ms: float) -> str:
    parts = [_title(run.title)]
    parts += [_level(scale.y(10.0**power), f"{10.0**power:g} ms") for power in range(scale.low, scale.high + 1)]
    y = scale.y(target_ms)
    parts.append(f'<line x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" style="stroke:#c4320a;stroke-dasharray:5 4"/>')
    for one in run.answers:
        x, colour = one.due_s / end_s * WIDTH, COLOURS[variants.index(one.variant)]
        parts.append(f'<circle cx="{x:.1f}" cy="{scale.y(one.latency_ms):.1f}" r="1.6" fill="{colour}"/>')
    return "".join(parts)


def _load(steps: Sequence[Step], end_s: float) -> str:
    most = max(step.rate for step in steps)
    ends = itertools.accumulate((step.seconds for step in steps), initial=0.0)
    corners = [
        f"{at / end_s * WIDTH:.1f},{HEIGHT * (1 - step.rate / most):.1f}"
        for step, (began, ended) in zip(steps, itertools.pairwise(ends), strict=True)
        for at in (began, ended)
    ]
    line = f'<polyline points="{" ".join(corners)}" fill="none" stroke="#5c6670" stroke-width="1.5"/>'
    return f"{_title('Requests a second')}{_level(0, f'{most:.0f}')}{_level(HEIGHT, '0')}{line}"


def _legend(variants: Sequence[str]) -> Iterator[str]:
    for index, name in enumerate(variants):
        x = LEFT + index * 130
        yield f'<circle cx="{x + 5}" cy="18" r="5" fill="{COLOURS[index]}"/><text x="{x + 16}" y="22">{name}</text>'
    x = LEFT + len(variants) * 130
    yield f'<path d="M{x} 18h24" stroke="#c4320a" stroke-dasharray="5 4"/><text x="{x + 30}" y="22">target</text>'


def _title(text: str) -> str:
    return f'<text y="-10" class="title">{text}</text>'


def _level(y: float, label: str) -> str:
    text = f'<text x="-8" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    return f'<line x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>{text}'


def _times(end_s: float) -> str:
    places = ((WIDTH * tick / TICKS, end_s * tick / TICKS) for tick in range(TICKS + 1))
    y = HEIGHT + 18
    return "".join(f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{seconds:.0f} s</text>' for x, seconds in places)
