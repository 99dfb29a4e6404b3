"""The page that ``bench --html`` writes: what is on it, that it needs nothing else, and that a browser draws it."""

from __future__ import annotations

import html.parser
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest

from trtnode.bench.environment import describe_environment, describe_load
from trtnode.bench.latency_report.charts import BARS_WIDTH, PANEL_HEIGHT, PANEL_WIDTH, draw_bars, draw_panels
from trtnode.bench.latency_report.page import render_page
from trtnode.bench.latency_report.results import LatencyResult, LatencyRow, LeftOut

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = "</script><script>throw 1</script>\" onmouseover='throw 2"


class Page(html.parser.HTMLParser):
    """A page's elements and text, as a browser reads them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def count(self, tag: str, name: str) -> int:
        return sum(t == tag and name in (a.get("class") or "").split() for t, a in self.elements)


def row(network: str, setting: str, ratio: float, **more: Any) -> LatencyRow:
    values: dict[str, Any] = {
        "engine": "openvino", "via": "process", "batch": 1, "threads": None, "p50_ms": 10.0 / ratio, "p95_ms": 20.0,
        "p99_ms": 30.0, "mean10_ms": 11.0, "ratio_low": ratio * 0.9, "ratio_high": ratio * 1.1, "cosine": None,
        "max_abs": None, "top1_agreement": None, "load_s": 0.1, "engine_bytes": 5_000_000, "peak_rss_mb": 120.0,
        "quantiles_ms": tuple(10.0 / ratio + step / 10 for step in range(41)),
    }  # fmt: skip
    return LatencyRow(network=network, setting=setting, ratio=ratio, **{**values, **more})


def result(*names: str) -> LatencyResult:
    rows = [row(name, setting, ratio) for name in names for setting, ratio in (("native", 1.0), ("fp32", 1.5))]
    environment = {**describe_environment(), "load_average_after": describe_load()}
    left_out = [LeftOut(network=name, setting="openvino", reason=f"No {name}.") for name in names]
    return LatencyResult(environment=environment, rows=rows, left_out=left_out, complete=True)


def test_the_page_asks_the_network_for_nothing_and_runs_no_script() -> None:
    text = render_page(result("lenet5"))

    assert not re.search(r"https?:|url\(|@import|<link|<iframe|<script|\ssrc=|\shref=", text)
    assert "default-src 'none'; style-src 'unsafe-inline'" in text


def test_names_are_text_and_never_markup() -> None:
    page = Page(render_page(result(HOSTILE)))

    assert HOSTILE in page.text
    assert not any(tag == "script" or "onmouseover" in attributes for tag, attributes in page.elements)


def test_every_row_has_its_figures_and_every_other_setting_its_bar() -> None:
    page = Page(render_page(result("lenet5", "vgg16")))

    assert page.count("g", "ratio") == 2
    assert page.count("line", "whisker") == 2 * 3
    assert page.count("polyline", "curve") == 4
    assert sum(tag == "tr" for tag, _ in page.elements) == 1 + 4
    assert all(text in page.text for text in ("1.350 to 1.650", "fp32, process, batch 1", "No vgg16."))


def test_the_same_result_gives_the_same_page() -> None:
    same = result("lenet5")

    assert render_page(same) == render_page(same)


def test_bars_and_whiskers_are_as_long_as_the_figures() -> None:
    chart = draw_bars([row("a", "native", 1.0), row("a", "fp32", 2.0, ratio_low=1.0, ratio_high=4.0)])

    (group,) = chart.groups
    (bar,) = group.bars
    assert (bar.low, bar.end, bar.high) == (BARS_WIDTH / 4, BARS_WIDTH / 2, BARS_WIDTH)
    assert chart.one == BARS_WIDTH / 4
    assert [tick.label for tick in chart.ticks] == ["0", "1", "2", "3", "4"]


def test_a_curve_goes_from_the_fastest_call_up() -> None:
    (panel,) = draw_panels([row("a", "native", 1.0)])

    (curve,) = panel.curves
    points = [tuple(map(float, point.split(","))) for point in curve.points.split()]
    assert points[0] == (0.0, PANEL_HEIGHT)
    assert points[-1] == (PANEL_WIDTH, pytest.approx(0.05 * PANEL_HEIGHT))
    assert points == sorted(points, key=lambda point: (point[0], -point[1]))


def test_what_is_compared_shares_an_axis_and_what_is_not_does_not() -> None:
    rows = [row("a", "native", 1.0), row("a", "fp32", 2.0), row("a", "native", 1.0, batch=8, via="grpc")]

    assert [(panel.title, len(panel.curves)) for panel in draw_panels(rows)] == [("a", 2), ("a, batch 8, grpc", 1)]


def test_latencies_that_are_all_equal_can_be_drawn() -> None:
    (panel,) = draw_panels([row("a", "native", 1.0, quantiles_ms=(2.0, 2.0, 2.0))])

    assert "nan" not in panel.curves[0].points


@pytest.mark.browser
def test_a_browser_draws_the_bars(tmp_path: pathlib.Path) -> None:
    if BROWSER is None:
        pytest.skip("no Chromium here")
    path = tmp_path / "page.html"
    report = """<script>window.addEventListener("load", () => {
        const widths = [...document.querySelectorAll(".bar")].map(bar => bar.getBoundingClientRect().width);
        const colours = [...document.querySelectorAll(".curve")].map(curve => getComputedStyle(curve).stroke);
        document.body.dataset.widths = widths.map(Math.round);
        document.body.dataset.colours = new Set(colours).size;
        document.body.dataset.overflow = document.documentElement.scrollWidth > innerWidth;
    })</script>"""
    text = render_page(result("lenet5", "vgg16")).replace('http-equiv="Content-Security-Policy"', "")
    path.write_text(text + report, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--no-first-run", "--disable-gpu", "--disable-background-networking"]
    command = [BROWSER, *options, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1300,1000"]

    done = subprocess.run([*command, "--dump-dom", path.as_uri()], check=True, capture_output=True, timeout=240)

    (body,) = [attributes for tag, attributes in Page(done.stdout.decode()).elements if tag == "body"]
    length = round(BARS_WIDTH * 1.5 / 1.65)
    assert body["data-widths"] == f"{length},{length}"
    assert body["data-colours"] == "2"
    assert body["data-overflow"] == "false"
