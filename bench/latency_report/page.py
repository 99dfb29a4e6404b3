"""Renders a result as one HTML file without scripts, libraries or requests."""

from __future__ import annotations

import jinja2

from trtnode.bench.latency_report.results import NATIVE, LatencyResult, compiled_with, geometric_means, group_rows

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("trtnode.bench.latency_report"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render_page(result: LatencyResult) -> str:
    """Render a result as a web page: ratios with their intervals, and every figure.

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
        groups=group_rows(result.rows),
        highest=max((row.ratio for row in result.rows), default=1.0),
    )
