"""Renders a result as an HTML file that needs nothing else: no network, no library."""

from __future__ import annotations

import jinja2

from trtnode.bench.latency_report.results import NATIVE, LatencyResult, compiled_with, geometric_means, group_rows
from trtnode.serving.pages.explain_page import TEMPLATES as PAGES

_OWN = jinja2.PackageLoader("trtnode.bench.latency_report")
_TEMPLATES = PAGES.overlay(loader=jinja2.ChoiceLoader([_OWN, jinja2.PackageLoader("trtnode.serving.pages")]))


def render_page(result: LatencyResult) -> str:
    """Render a result as a web page: ratios with their intervals, and every figure.

    Names come from files, so they are not trusted: the page's policy forbids scripts and requests.

    Args:
        result: The result.

    Returns:
        The page. The same result gives the same text.
    """
    settings = list(dict.fromkeys(row.setting for row in result.rows))
    highest = max((row.ratio for row in result.rows), default=1.0)
    return _TEMPLATES.get_template("bench.html.j2").render(
        result=result,
        hues={setting: index - 1 for index, setting in enumerate(settings)},
        native=NATIVE,
        compiled_with=compiled_with(result),
        means=geometric_means(result.rows),
        networks={row.network for row in result.rows},
        groups=group_rows(result.rows),
        highest=highest,
        ticks=_ticks(highest),
    )


def _ticks(highest: float) -> list[float]:
    """Return the marks of an axis from 0: at most seven round numbers."""
    step = next(step for power in range(9) for one in (0.5, 1, 2) if 6 * (step := one * 10**power) >= highest)
    return [step * index for index in range(int(highest / step) + 1)]
