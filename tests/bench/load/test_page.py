"""The page that ``bench server --html`` writes, with other servers beside."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

import pytest

from browser import browser_of
from simulated_server import SimulatedServer
from trtnode.serving.cli.program import main

HOSTILE = "</script><script>throw 1<"


@pytest.fixture
def other(bench: Callable[..., int], simulated: SimulatedServer, tmp_path: pathlib.Path) -> pathlib.Path:
    """The measurement of another server."""
    file = tmp_path / "earlier.json"
    assert bench(simulated.address, "--concurrency", "2,4", "--json", str(file)) == 0
    return file


def test_servers_are_drawn_beside_each_other(
    bench: Callable[..., int], simulated: SimulatedServer, other: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "page.html"

    code = bench(simulated.address, "--concurrency", "1,2", "--html", str(file), "--compare", str(other))

    assert code == 0
    dom = browser_of(tmp_path)(file.as_uri(), seconds=1, width=1440)
    drawn = dom[: dom.index("<h2>Every figure")]
    titles = re.findall("<figcaption><b>(.*?)</b>(.*?)</figcaption>", drawn)
    assert [title for title, _ in titles] == [
        *("Answers per second", "Latency, p50", "Latency, p99"),
        *("1 caller", "2 callers", "4 callers"),
    ]
    assert [[name in legend for name in (simulated.address, "earlier")] for _, legend in titles] == [
        *[[True, True]] * 3,
        *([True, False], [True, True], [False, True]),
    ]
    assert re.search(rf"2: {re.escape(simulated.address)} [\d,.]+, earlier [\d,.]+<", drawn)
    assert "callers, each with one request at a time" in drawn
    assert dom.count("<tr") == 1 + 2 + 2


def test_a_page_needs_nothing_else_and_names_are_text(
    bench: Callable[..., int], simulated: SimulatedServer, other: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    file, hostile = tmp_path / "page.html", tmp_path / "hostile.json"
    hostile.write_text(other.read_text().replace('"plus"', f'"{HOSTILE}"'))

    assert bench(simulated.address, "--rate", "200", "--html", str(file), "--compare", str(hostile)) == 0

    text = file.read_text()
    assert not re.search(r"https?:(?!//www.w3.org/2000/svg)|url\(|@import|<link|<iframe|\ssrc=|\shref=", text)
    assert "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" in text
    assert text.count("<script") == 2


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param("no JSON", "is no result of a benchmark", id="no-json"),
        pytest.param('{"environment": {}, "rows": []}', "is no result of a benchmark (rows: ", id="no-rows"),
        pytest.param('{"environment": {}, "rows": [{}]}', "(rows.0.server: Field required)", id="other-rows"),
    ],
)
def test_what_is_no_result_is_refused_before_anything_is_measured(
    bench: Callable[..., int],
    simulated: SimulatedServer,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    content: str,
    problem: str,
) -> None:
    file = tmp_path / "other.json"
    file.write_text(content)

    code = bench(simulated.address, "--html", str(tmp_path / "page.html"), "--compare", str(file))

    assert code == 2
    assert problem in capsys.readouterr().err
    assert simulated.requests == []


def test_a_comparison_needs_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["bench", "server", "127.0.0.1:8001", "--model", "plus", "--compare", "other.json"])

    assert code == 2
    assert "Give --html FILE" in capsys.readouterr().err
