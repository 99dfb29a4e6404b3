"""A short soak finds no fault, and each check fails on its own fault."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable

import grpc
import numpy as np
import pytest

from benchmarks.soak import __main__ as command
from benchmarks.soak import process_stats, scenario
from benchmarks.soak.checks import Results, Stop
from benchmarks.soak.outcomes import Outcome, Tally
from benchmarks.soak.process_stats import Growth, ProcessStats

pytestmark = pytest.mark.slow

OK, INTERNAL, UNAVAILABLE = grpc.StatusCode.OK, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE


def samples(slope_mb_per_minute: float, noise_mb: float = 0.0, seconds: int = 120) -> list[ProcessStats]:
    rng = np.random.default_rng(0)
    noise = noise_mb * rng.standard_normal(seconds)
    return [ProcessStats(t, 200 + slope_mb_per_minute * t / 60 + noise[t], 40, 16) for t in range(seconds)]


@pytest.fixture
def results() -> Results:
    """Of a soak in which nothing went wrong."""
    still = ProcessStats(0.0, 200.0, 40, 16)
    return Results(
        tallies={"steady load": Tally()},
        samples=[],
        growth=Growth(0.1, -0.2, 0.4),
        alone={"infer": 0.5},
        rests=(still, still, still),
        reloads=100,
        stop=Stop(code=0, seconds=0.5, lost=0, complaints=[]),
    )


def failed(results: Results) -> list[str]:
    return [check.name for check in results.checks() if not check.passed]


def grown(results: Results, **more: float) -> Results:
    last = results.rests[2]
    later = dataclasses.replace(last, **{name: getattr(last, name) + value for name, value in more.items()})
    return dataclasses.replace(results, rests=(*results.rests[:2], later))


def with_fault(results: Results) -> Results:
    results.tallies["steady load"].add("infer", Outcome("OK", "a wrong answer"))
    return results


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        pytest.param(with_fault, "steady load: lost, wrong or with an unexpected status", id="wrong answer"),
        pytest.param(
            lambda r: dataclasses.replace(r, growth=Growth(1.2, 0.9, 1.5)), "memory under steady load", id="slope"
        ),
        pytest.param(lambda r: grown(r, rss_mb=9.0), "memory after 100 reloads", id="reloads"),
        pytest.param(lambda r: grown(r, threads=30), "threads at rest", id="threads"),
        pytest.param(lambda r: grown(r, descriptors=1), "file descriptors at rest", id="descriptors"),
        pytest.param(
            lambda r: dataclasses.replace(r, stop=dataclasses.replace(r.stop, lost=1)),
            "answers lost by the stop",
            id="lost",
        ),
        pytest.param(
            lambda r: dataclasses.replace(r, stop=dataclasses.replace(r.stop, code=1)),
            "exit code after SIGTERM",
            id="exit code",
        ),
    ],
)
def test_each_check_fails_on_what_it_is_there_for(
    results: Results, spoil: Callable[[Results], Results], name: str
) -> None:
    assert failed(results) == []

    assert failed(spoil(results)) == [name]


def test_a_short_soak_finds_no_fault(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"REST_S": 0.3, "BEFORE_STOP_S": 0.5}.items():
        monkeypatch.setattr(scenario, name, value)
    monkeypatch.setattr(process_stats, "WINDOW_S", 0.6)
    file = tmp_path / "soak.json"

    command.main(["--minutes", "0.05", "--mutated", "100", "--reloads", "2", "--seed", "1", "--json", str(file)])

    result = json.loads(file.read_text())
    unsettled = ("memory under", "memory after", "threads at rest")  # these take minutes to tell
    assert [c for c in result["checks"] if not c["passed"] and not c["name"].startswith(unsettled)] == []
    assert {one["kind"] for one in result["requests"]} >= {"infer", "stream", "mutated", "reload", "scrape"}
    assert result["plan"]["seed"] == 1
    assert result["alone"].keys() >= {"infer", "stream", "mistake", "embed"}


def test_growth_is_told_by_request_and_without_what_comes_at_first() -> None:
    late = samples(6.0)
    early = [dataclasses.replace(one, rss_mb=one.rss_mb + 50) for one in late[:30]]

    assert process_stats.growth_per_request([*early, *late[30:]], requests=1000) == pytest.approx(11_900)
    assert process_stats.growth_per_request(late, requests=0) == 0


@pytest.mark.parametrize("wrong", [["--minutes", "-1"], ["--minutes", "nan"], ["--mutated", "0"], ["--reloads", "x"]])
def test_a_plan_without_anything_to_do_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(wrong)

    assert ended.value.code == 2
    assert f"argument {wrong[0]}: " in capsys.readouterr().err
