"""The status page: what it shows in a real browser."""

from __future__ import annotations

import html.parser
import itertools
import pathlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from browser import DumpDom
from tests.serving.conftest import Running, StartFake, given
from trtnode.serving.pages.status_page import render_status_page
from trtnode.serving.rest import app

pytestmark = pytest.mark.browser

TOKEN = "all-models-0123456789"


class Page(html.parser.HTMLParser):
    """A page as a browser left it: its text without scripts and styles, its links, and facts about its root."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.links: list[str] = []
        self.tags: list[str] = []
        self.root: dict[str, str | None] = {}
        self.hidden: dict[str, bool] = {}
        self.labels: list[str] = []
        self.rows: list[dict[str, str]] = []
        self._inside = ""
        self._label = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        self._inside = tag
        self.tags.append(tag)
        if tag == "html":
            self.root = facts
        self.labels += [str(facts[name]) for name in ("title", "aria-label") if facts.get(name)]
        if facts.get("class") == "model":
            self.rows.append({})
        if tag in ("tr", "td"):
            self._label = facts.get("data-label") or ""
        if facts.get("href"):
            self.links.append(str(facts["href"]))
        if facts.get("id"):
            self.hidden[str(facts["id"])] = "hidden" in facts

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text += data + " "
            if self._label:
                self.rows[-1][self._label] = self.rows[-1].get(self._label, "") + data

    def tile(self, label: str) -> str:
        """The total that stands above a label."""
        return re.search(rf"(?<!\S){re.escape(label)}\s+(\S+(?: [µm]?s)?)", self.text)[1]


@pytest.fixture
def browse(dump_dom: DumpDom) -> Callable[..., Page]:
    """Open an address in Chromium, let seconds pass there, and read the page back."""

    def browse(url: str, seconds: int = 5, *, width: int = 1440) -> Page:
        page = Page(dump_dom(url, seconds=seconds, width=width))
        assert page.root.get("data-errors") is None, page.root
        return page

    return browse


def infer(running: Running, model: str = "fake") -> None:
    running.client.infer(model, [given("x", np.zeros(1, np.float32))])


NOW_S = 1000.0
SLOT = 100
"""The slot of ``NOW_S``."""


def slot(number: int, answered: int = 0, failed: int = 0, **more: float) -> list[float]:
    """A row of a history."""
    facts = {"p50_us": 0, "p99_us": 0, "waited_s": 0, "cpu_s": 0, **more}
    return [number, answered, failed, *facts.values()]


def model_facts(**changes: Any) -> dict[str, Any]:
    counts = {"success": 0, "waiting": 0, "padding": 0, "shapes": 0}
    lists = ("failures", "rejections", "fallbacks", "latencies", "batches", "recent_latencies",
             "buckets", "sequences")  # fmt: skip
    runs = {"engine": "openvino", "segments": 2, "engine_nodes": 9, "native_nodes": 3, "precision": "fp16",
            "rejected": [], "stand_in": False}  # fmt: skip
    facts = {"name": "m", "version": "1", "state": "READY", "reason": "", "required": True, "runs": runs}
    last = {"last_s": 0, "last_failure": None, "variants": [], "history": []}
    return {**facts, **last, **changes, "counts": {**counts, **{key: [] for key in lists}, **changes.get("counts", {})}}


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch, start_fake: StartFake) -> Callable[..., str]:
    """Let a server tell its page these facts, one after the other, and return the page's address."""

    def tell_facts(*facts: dict[str, Any]) -> str:
        polls = itertools.chain(facts, itertools.repeat(facts[-1]))
        given = {"version": "1.2.3", "not_ready": [], "time_s": NOW_S, "uptime_s": 7200.0, "memory_bytes": 300 << 20,
                 "processes": 2, "unknown_requests": 0, "libraries": {"onnxruntime": "9.9"}}  # fmt: skip
        monkeypatch.setattr(app, "server_facts", lambda service, grant, since: {**given, **next(polls)})
        return f"{start_fake().http}/"

    return tell_facts


@pytest.fixture
def act(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a script stand in for the user, once the page has shown what the server told first."""

    def act(script: str) -> None:
        # The page's own policy would refuse the script.
        text = render_status_page().replace('http-equiv="Content-Security-Policy"', "")
        text += f"<script>setTimeout(() => {{ {script} }}, 1000)</script>"
        monkeypatch.setattr(app, "render_status_page", lambda: text)

    return act


def test_the_page_shows_the_models_of_a_real_server(start_fake: StartFake, browse: Callable[..., Page]) -> None:
    running = start_fake()
    for _ in range(7):
        infer(running)

    page = browse(f"{running.http}/")

    (row,) = page.rows
    assert (row["answered"], row["failed"], row["waiting"]) == ("7", "0", "0")
    assert row["p50"].endswith("s")
    assert float(row["requests/s"]) > 0
    assert "as of" in page.text
    assert "native, fp32" in page.text
    assert page.hidden["ask"]


def test_rates_and_percentiles_are_there_at_once(tell: Callable[..., str], browse: Callable[..., Page]) -> None:
    busy = model_facts(
        counts={
            "success": 1100,
            "waiting": 3,
            "latencies": [[1000, 50], [2000, 45], [4000, 5], [1e6, 1000]],
            "recent_latencies": [[1000, 50], [2000, 45], [4000, 5]],
        },
        history=[slot(SLOT - 40, 9000), slot(SLOT - 2, 150), slot(SLOT - 1, 250)],
    )

    page = browse(tell({"models": [busy]}), seconds=1)

    (row,) = page.rows
    assert int(page.root["data-polls"] or 0) == 1
    assert row["requests/s"] == "20"
    assert (row["p50"], row["p95"], row["p99"]) == ("1.00 ms", "2.00 ms", "3.93 ms")
    assert page.tile("requests/s") == "20"
    assert (page.tile("answered"), page.tile("waiting")) == ("1,100", "3")
    assert "at most 150" in " ".join(page.labels)  # of a minute


def test_a_latency_just_below_a_power_of_ten_is_written_without_an_exponent(
    tell: Callable[..., str], browse: Callable[..., Page]
) -> None:
    fast = model_facts(counts={"success": 100, "latencies": [[100, 100]], "recent_latencies": [[100, 100]]})

    page = browse(tell({"models": [fast]}), seconds=1)

    assert (page.rows[0]["p50"], page.rows[0]["p99"]) == ("96 µs", "100 µs")


def test_what_idle_values_are_is_told(tell: Callable[..., str], browse: Callable[..., Page]) -> None:
    idle = model_facts(counts={"success": 9, "latencies": [[1000, 9]]}, last_s=NOW_S - 200)

    page = browse(tell({"models": [idle, model_facts(name="n")]}), seconds=1)

    assert (page.rows[0]["requests/s"], page.rows[0]["p50"]) == ("0", "959 µs")
    assert page.rows[1]["p50"] == "\N{EN DASH}"
    assert "idle for 3 minutes" in page.text
    assert "no request yet" in page.text
    assert "since the start: no request in the last 30 seconds" in page.labels


def test_a_server_with_many_models_tells_a_few_reasons_and_the_number_of_the_others(
    tell: Callable[..., str], browse: Callable[..., Page]
) -> None:
    reasons = [f"model 'm{number}' is loading" for number in range(20)]

    page = browse(tell({"models": [model_facts()], "not_ready": reasons}))

    assert "model 'm2' is loading, and 17 more" in page.text
    assert "model 'm3' is loading" not in page.text


def test_totals_uptime_memory_and_versions_are_shown(tell: Callable[..., str], browse: Callable[..., Page]) -> None:
    broken = model_facts(name="n", state="UNAVAILABLE", reason="<img src=x onerror='throw 1'>", runs=None)
    facts = {"models": [model_facts(), broken], "not_ready": ["model 'n' is unavailable"], "unknown_requests": 8}

    page = browse(tell(facts))

    assert re.search(r"models ready\s+1 of 2", page.text)
    assert re.search(r"up for\s+2 hours", page.text)
    assert re.search(r"memory\s+315 MB", page.text)
    assert page.tile("for unknown models") == "8"
    assert "onnxruntime 9.9" in page.text
    assert "<img src=x onerror='throw 1'>" in page.text
    assert "img" not in page.tags
    assert "not ready" in page.text
    assert "model 'n' is unavailable" in page.text


def test_details_show_batches_reasons_and_a_chart_with_axes(
    tell: Callable[..., str], browse: Callable[..., Page], act: Callable[[str], None]
) -> None:
    shown = model_facts(
        counts={
            "batches": [[rows, rows * 10] for rows in range(1, 17)],
            "failures": [["OTHER", 6], ["REJECTED", 4]],
            "rejections": [["queue_full", 4]],
            "fallbacks": [["building", 2]],
            "buckets": [[16, 5], [24, 7]],
            "padding": 1234,
            "shapes": 9,
        },
        history=[
            slot(SLOT - 40, failed=3),
            slot(SLOT - 8, 900, 4, p50_us=1500, p99_us=9000, waited_s=25, cpu_s=15),
        ],
        last_failure={"reason": "OTHER", "detail": "input 'x' has another shape", "time_s": NOW_S - 1},
        variants=[
            {"name": "big", "quality": 0.9, "answers": True, "p95_ms": 4},
            {"name": "small", "quality": 0.8, "answers": False, "p95_ms": 2},
        ],
    )
    act("document.querySelector('.name').click()")

    page = browse(tell({"models": [shown]}))

    text = re.sub(r"\s+", " ", page.text)
    assert (page.rows[0]["failed, 5 min"], page.rows[0]["failed"]) == ("4", "10")
    assert page.tile("failed in 5 minutes") == "4"
    assert "6 the request was at fault" in text
    assert "4 the model's queue was full" in text
    assert "2 building" in text
    assert "Executions by padded length" in text
    assert "1,234 elements of padding, 9 shapes" in text
    assert "input 'x' has another shape" in text
    assert "12 rows: 120 executions" in text
    assert "> 12 rows: 580 executions" in text
    assert "9 in 2 openvino segments, 3 native, fp16" in text
    assert "big, quality 0.9: 4.00 ms, answers small, quality 0.8: 2.00 ms" in text
    for title, told in (
        ("Requests/s", "90 requests/s, 0.40 failed/s"),
        ("Latency", "p50 1.50 ms, p99 9.00 ms"),
        ("Waiting requests", "2.5"),
        ("CPU, in cores", "1.5"),
    ):
        assert title in text
        assert f"1.3 min ago: {told}" in text
    assert "60 min ago 30 min ago now" in text
    assert "models/m/versions/1/explain" in page.links


def test_the_page_remembers_the_slots_that_are_told_once(
    tell: Callable[..., str], browse: Callable[..., Page], act: Callable[[str], None]
) -> None:
    first = model_facts(history=[slot(SLOT - 8, 90), slot(SLOT, 1)])
    then = model_facts(history=[slot(SLOT, 7), slot(SLOT + 1, 20)])
    act("document.querySelector('.name').click()")

    page = browse(tell({"models": [first]}, {"models": [then], "time_s": NOW_S + 10}))

    assert "1.5 min ago: 9 requests/s" in page.text
    assert "10 s ago: 0.70 requests/s" in page.text


def test_a_young_server_is_drawn_by_fewer_minutes(tell: Callable[..., str], browse: Callable[..., Page]) -> None:
    page = browse(tell({"models": [model_facts(history=[slot(SLOT - 1, 10)])], "uptime_s": 70.0}))

    assert "last 5 minutes" in page.text


def test_the_filter_shows_the_models_that_match(
    tell: Callable[..., str], browse: Callable[..., Page], act: Callable[[str], None]
) -> None:
    models = [model_facts(name=f"m{i}", state="READY" if i % 2 else "LOADING") for i in range(12)]
    act("document.getElementById('filter').value = 'M1 ready'; page.filter.dispatchEvent(new InputEvent('input'))")

    page = browse(tell({"models": models}))

    assert len(page.rows) == 2
    assert "2 of 12 models" in page.text


def test_twenty_models_fit_on_one_screen(
    tell: Callable[..., str], browse: Callable[..., Page], act: Callable[[str], None]
) -> None:
    busy = {"counts": {"recent_latencies": [[1000, 50]], "success": 1234567}, "history": [slot(SLOT - 1, 10)]}
    models = [model_facts(name=f"a_model_with_a_name_{i}", required=False, **busy) for i in range(20)]
    act(
        "const rows = [...document.querySelectorAll('tr.model')];"
        "root.dataset.fits = rows.at(-1).getBoundingClientRect().bottom <= innerHeight;"
    )

    page = browse(tell({"models": models}))

    assert len(page.rows) == 20
    assert page.root["data-fits"] == "true"


@pytest.mark.parametrize("width", [1440, 1200, 800, 500])
def test_nothing_is_cut_at_any_width(
    tell: Callable[..., str], browse: Callable[..., Page], act: Callable[[str], None], width: int
) -> None:
    busy = {"counts": {"recent_latencies": [[1000, 50]], "success": 1234567}, "history": [slot(SLOT - 1, 10)]}
    models = [model_facts(name=f"a_model_with_a_name_{i}", required=False, **busy) for i in range(3)]
    act(
        "document.querySelector('.name').click();"
        "root.dataset.cut = document.documentElement.scrollWidth - document.documentElement.clientWidth;"
    )

    page = browse(tell({"models": models}), width=width)

    assert page.root["data-cut"] == "0"


def test_the_page_asks_for_a_token_where_one_is_needed(
    start_fake: StartFake, browse: Callable[..., Page], tmp_path: pathlib.Path, act: Callable[[str], None]
) -> None:
    file = tmp_path / "tokens.yaml"
    file.touch(0o600)
    file.write_text(f"tokens: [{{name: all, token: {TOKEN}}}]")
    running = start_fake(server=f"auth: {{tokens_file: {file}}}")

    asking = browse(f"{running.http}/")
    typing = """
        document.getElementById("token").value = "TOKEN";
        document.getElementById("ask").requestSubmit();"""
    act(typing.replace("TOKEN", "another-token-0123456789"))
    refused = browse(f"{running.http}/")
    act(typing.replace("TOKEN", TOKEN))
    allowed = browse(f"{running.http}/")

    assert "a token is needed" in asking.text
    assert "This server asks for a token" in asking.text
    assert "server.auth.tokens_file" in asking.text
    assert (asking.hidden["ask"], asking.hidden["refused"], asking.hidden["shown"]) == (False, True, True)
    assert "The server doesn't know this token." in refused.text
    assert allowed.hidden["ask"]
    assert "version 1" in allowed.text


def test_a_page_whose_server_fails_says_so(
    tell: Callable[..., str], browse: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = tell({"models": [model_facts()]}, {})

    page = browse(url)

    assert page.root["class"] == "lost"
    assert "not up to date" in page.text
    assert "version 1" in page.text
