"""The page that ``bench --html`` writes: what is on it, that it needs nothing else, and that a browser draws it."""

from __future__ import annotations

import html.parser
import pathlib
import re
from typing import Any

import pytest

from browser import browser_of
from trtnode.bench.environment import describe_environment, describe_load
from trtnode.bench.latency_report.page import render_page
from trtnode.bench.latency_report.results import LatencyResult, LatencyRow, LeftOut

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


@pytest.mark.browser
@pytest.mark.parametrize("width", [1440, 500])
def test_a_browser_draws_the_bars(tmp_path: pathlib.Path, width: int) -> None:
    path = tmp_path / "page.html"
    report = """<script>window.addEventListener("load", () => {
        const widths = [...document.querySelectorAll(".bar")].map(bar => bar.getBoundingClientRect().width);
        const colours = [...document.querySelectorAll(".bar")].map(bar => getComputedStyle(bar).backgroundColor);
        document.body.dataset.widths = widths.map(Math.round);
        document.body.dataset.colours = new Set(colours).size;
        document.body.dataset.overflow = document.documentElement.scrollWidth > innerWidth;
    })</script>"""
    text = render_page(result("lenet5", "vgg16")).replace('http-equiv="Content-Security-Policy"', "")
    path.write_text(text + report, encoding="utf-8")

    dom = browser_of(tmp_path)(path.as_uri(), seconds=1, width=width)

    (body,) = [attributes for tag, attributes in Page(dom).elements if tag == "body"]
    native, fp32, *others = map(int, str(body["data-widths"]).split(","))
    assert others == [native, fp32]
    assert native == pytest.approx(fp32 / 1.5, abs=1)
    assert body["data-colours"] == "2"
    assert body["data-overflow"] == "false"
