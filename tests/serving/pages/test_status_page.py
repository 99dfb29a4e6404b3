"""The status page: what the server tells it, and, in a real browser, what it shows."""

from __future__ import annotations

import html.parser
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton

from engines import CompileOptions, compile_model
from serving.pages.status_page import render_status_page
from serving.rest import app
from serving.telemetry.request_stats import Durations, ModelCounts, latency_bound_us
from tests.serving.conftest import Eventually, Running, Starter, StartFake

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
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
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        self._inside = tag
        self.tags.append(tag)
        if tag == "html":
            self.root = facts
        if facts.get("href"):
            self.links.append(str(facts["href"]))
        if facts.get("id"):
            self.hidden[str(facts["id"])] = "hidden" in facts

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text += data + " "

    def tile(self, label: str) -> str:
        """The value that stands above a label."""
        return re.search(rf"(?<!\S){re.escape(label)}\s+(\S+(?: [µm]?s)?)", self.text)[1]


@pytest.fixture
def browse(tmp_path: pathlib.Path) -> Callable[..., Page]:
    """Open an address in Chromium, let seconds pass there, and read the page back."""
    if BROWSER is None:
        pytest.skip("no Chromium here")

    def browse(url: str, seconds: int = 5) -> Page:
        quiet = (
            "no-first-run disable-gpu disable-quic disable-background-networking disable-component-update disable-sync"
        )
        command = [BROWSER, "--headless", "--no-sandbox", *(f"--{option}" for option in quiet.split())]
        command += [f"--user-data-dir={tmp_path / 'profile'}", f"--virtual-time-budget={seconds * 1000}"]
        done = subprocess.run([*command, "--dump-dom", url], check=True, capture_output=True, timeout=240)
        page = Page(done.stdout.decode())
        assert page.root.get("data-errors") is None, page.root
        return page

    return browse


def told(running: Running, **headers: str) -> dict[str, Any]:
    request = urllib.request.Request(f"{running.http}/status.json", headers=headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def infer(running: Running, model: str = "fake") -> None:
    x = triton.InferInput("x", [1], "FP32")
    x.set_data_from_numpy(np.zeros(1, np.float32))
    running.client.infer(model, [x])


def model_facts(**changes: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("success", "failures", "rejections", "fallbacks", "waiting"), 0)
    runs = {"engine": "openvino", "segments": 2, "engine_nodes": 9, "native_nodes": 3, "precision": "fp16",
            "rejected": [], "stand_in": False}  # fmt: skip
    facts = {"name": "m", "version": "1", "state": "READY", "reason": "", "required": True, "runs": runs}
    return {**facts, **changes, "counts": {**counts, "latencies": [], "batches": [], **changes.get("counts", {})}}


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch, start_fake: StartFake) -> Callable[..., str]:
    """Let a server tell its page these facts, one after the other, and return the page's address."""

    def tell_facts(*facts: dict[str, Any]) -> str:
        polls = itertools.chain(facts, itertools.repeat(facts[-1]))
        given = {"version": "1.2.3", "not_ready": [], "time_s": 0.0}
        monkeypatch.setattr(app, "server_facts", lambda service, grant: {**given, **next(polls)})
        return f"{start_fake().http}/"

    return tell_facts


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = render_status_page()

    assert Page(text).links == ["metrics"]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import|<link|<iframe|innerHTML", text)
    assert "default-src 'none'" in text
    assert "connect-src 'self'" in text


@pytest.mark.parametrize("path", ["/", "/status"])
def test_the_page_holds_nothing_of_the_server(shared: Running, path: str) -> None:
    assert fetch(f"{shared.http}{path}") == (200, render_status_page())


def test_the_server_tells_what_happened_to_each_version(start_fake: StartFake) -> None:
    running = start_fake()
    for _ in range(5):
        infer(running)

    facts = told(running)

    (model,) = facts["models"]
    assert (model["name"], model["version"], model["state"], model["required"]) == ("fake", "1", "READY", True)
    assert model["counts"]["success"] == 5
    assert sum(count for _, count in model["counts"]["latencies"]) == 5
    assert model["counts"]["batches"] == [[1, 5]]
    assert facts["not_ready"] == []


def test_a_model_that_failed_is_told_with_its_reason(
    start: Starter, models: pathlib.Path, tmp_path: pathlib.Path, eventually: Eventually
) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    running = start(
        f"- {{name: two, path: {models}/two.onnx, engine: native}}\n- {{name: bad, path: bad.onnx, required: false}}\n"
    )
    eventually(lambda: told(running)["models"][1]["state"] != "LOADING")

    _, bad = told(running)["models"]

    assert (bad["state"], bad["required"], bad["runs"]) == ("UNAVAILABLE", False, None)
    assert "bad.onnx" in bad["reason"]


def test_where_nodes_run_adds_up_to_the_model(start: Starter) -> None:
    running = start(f"- {{name: digits, path: {DIGITS}, engine: openvino, partition: {{native_ops: [Relu]}}}}\n")

    (model,) = told(running)["models"]
    status, page = fetch(f"{running.http}/models/digits/versions/1/explain")

    runs = model["runs"]
    assert runs["engine_nodes"] + runs["native_nodes"] == 13
    assert runs["native_nodes"] >= 1
    assert (runs["engine"], runs["precision"], runs["rejected"]) == ("openvino", "fp32", [])
    assert status == 200
    assert f"{runs['engine_nodes']}</dd>" in page
    assert page.count('data-index="') > 13
    assert "USER_EXCLUDED" in page


def test_what_can_not_be_explained_says_why(start: Starter, tmp_path: pathlib.Path) -> None:
    compile_model(DIGITS, CompileOptions()).save(tmp_path / "compiled.onnx")
    running = start(f"- {{name: compiled, path: {tmp_path}/compiled.onnx}}\n")

    status, text = fetch(f"{running.http}/models/compiled/explain")

    assert status == 501
    assert "is compiled already" in json.loads(text)["error"]
    assert fetch(f"{running.http}/models/none/explain")[0] == 404
    assert told(running)["models"][0]["runs"]["engine_nodes"] == 13


@pytest.mark.parametrize("microseconds", [0.001, 1, 49.9, 1000, 123456, 5e6])
def test_a_latency_is_told_to_nine_percent(microseconds: float) -> None:
    counts = ModelCounts()
    counts.add_success(Durations(total=int(microseconds * 1000)))

    ((step, count),) = counts.snapshot().latencies.items()

    assert count == 1
    assert latency_bound_us(step) / 1.0906 <= microseconds <= latency_bound_us(step)


@pytest.mark.browser
def test_the_page_shows_the_models_of_a_real_server(start_fake: StartFake, browse: Callable[..., Page]) -> None:
    running = start_fake()
    for _ in range(7):
        infer(running)

    page = browse(f"{running.http}/")

    assert int(page.root["data-polls"] or 0) >= 2
    assert (page.tile("answered"), page.tile("failed"), page.tile("waiting")) == ("7", "0", "0")
    assert "as of" in page.text
    assert "1 native, fp32" in page.text
    assert "models/fake/versions/1/explain" in page.links
    assert page.hidden["ask"]


@pytest.mark.browser
def test_rates_and_percentiles_are_those_of_the_last_polls(
    tell: Callable[..., str], browse: Callable[..., Page]
) -> None:
    before = model_facts(counts={"success": 1000, "latencies": [[1e6, 1000]], "batches": [[1, 10]]})
    after = model_facts(
        counts={"success": 1100, "latencies": [[1000, 50], [2000, 45], [4000, 5], [1e6, 1000]], "waiting": 3}
    )
    polls = [{"models": [before], "time_s": 10.0}, {"models": [after], "time_s": 15.0}]

    page = browse(tell(*polls), seconds=3)

    assert page.tile("requests/s") == "20"
    assert (page.tile("p50"), page.tile("p95"), page.tile("p99")) == ("1.00 ms", "2.00 ms", "3.93 ms")
    assert page.tile("waiting") == "3"


@pytest.mark.browser
def test_batches_rejections_and_reasons_are_shown(tell: Callable[..., str], browse: Callable[..., Page]) -> None:
    batches = [[rows, rows * 10] for rows in range(1, 17)]
    shown = model_facts(counts={"batches": batches, "rejections": 4, "fallbacks": 2, "failures": 6})
    broken = model_facts(name="n", state="UNAVAILABLE", reason="<img src=x onerror='throw 1'>", runs=None)

    page = browse(tell({"models": [shown, broken], "not_ready": ["model 'n' is unavailable"]}))

    assert (page.tile("rejected"), page.tile("fell"), page.tile("failed")) == ("4", "back", "6")
    assert "120 12 580 > 12" in re.sub(r"\s+", " ", page.text)
    assert "9 in 2 openvino segments, 3 native, fp16" in page.text
    assert "<img src=x onerror='throw 1'>" in page.text
    assert "img" not in page.tags
    assert "not ready" in page.text
    assert "model 'n' is unavailable" in page.text


@pytest.mark.browser
def test_the_page_asks_for_a_token_where_one_is_needed(
    start_fake: StartFake, browse: Callable[..., Page], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tokens.yaml"
    file.touch(0o600)
    file.write_text(f"tokens: [{{name: all, token: {TOKEN}}}]")
    running = start_fake(server=f"auth: {{tokens_file: {file}}}")

    asking = browse(f"{running.http}/")
    typing = f"""<script>setTimeout(() => {{
        document.getElementById("token").value = "{TOKEN}";
        document.getElementById("ask").requestSubmit();
    }}, 500)</script>"""
    # The page's own policy would refuse the script that stands in for the user.
    text = render_status_page().replace('http-equiv="Content-Security-Policy"', "") + typing
    monkeypatch.setattr(app, "render_status_page", lambda: text)
    allowed = browse(f"{running.http}/")

    assert "a token is needed" in asking.text
    assert not asking.hidden["ask"]
    assert allowed.hidden["ask"]
    assert "version 1" in allowed.text


@pytest.mark.browser
def test_a_page_whose_server_fails_says_so(
    tell: Callable[..., str], browse: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = tell({"models": [model_facts()]}, {})

    page = browse(url)

    assert page.root["class"] == "lost"
    assert "not up to date" in page.text
    assert "version 1" in page.text
