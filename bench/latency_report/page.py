"""Renders a result as one HTML file without scripts, libraries or requests."""

from __future__ import annotations

import jinja2

from trtnode.bench.latency_report.charts import (
    BAR_HEIGHT,
    BARS_WIDTH,
    PANEL_HEIGHT,
    PANEL_WIDTH,
    draw_bars,
    draw_panels,
)
from trtnode.bench.latency_report.results import NATIVE, LatencyResult, compiled_with, geometric_means

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("trtnode.bench.latency_report"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render_page(result: LatencyResult) -> str:
    """Render a result as a web page: ratios with their intervals, latency distributions, and every figure.

    Names come from files, so they are not trusted: the page's policy forbids scripts and requests.

    Args:
        result: The result.

    Returns:
        The page. The same result gives the same text.
    """
    settings = list(dict.fromkeys(row.setting for row in result.rows))
    return _TEMPLATES.get_template("bench.html.j2").render(
        result=result,
        hues={setting: index for index, setting in enumerate(settings)},
        native=NATIVE,
        compiled_with=compiled_with(result),
        means=geometric_means(result.rows),
        networks={row.network for row in result.rows},
        bars=draw_bars(result.rows),
        panels=draw_panels(result.rows),
        bar_height=BAR_HEIGHT,
        bars_width=BARS_WIDTH,
        panel_width=PANEL_WIDTH,
        panel_height=PANEL_HEIGHT,
    )
