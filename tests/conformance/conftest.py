"""Counts the results of the conformance suite, and prints them."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
from collections.abc import Collection

import pytest

REQUIRED = 2000
"""Number of cases that must pass compiled with OpenVINO."""

MOST_GIVEN_AWAY = 60
"""Number of cases that TensorRT for RTX may build although the table refuses them, each for a reason."""

SWEEPS = {"test_kernels.py", "test_rounding.py"}
"""Modules for ``--conformance=all`` alone; the ordinary tests have samples of them."""

COMPILED = "test_case_passes_compiled_if_it_passes_natively"
SIMULATED = "test_case_passes_on_a_simulated_gpu_if_it_passes_natively"
BUILT = "test_case_is_built_as_the_table_says_and_runs_natively"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Outcome of the cases of the onnx backend suite that one test has run."""

    run: int
    native: int
    passed: int
    failed: int

    @classmethod
    def of(cls, config: pytest.Config, test: str) -> Counts:
        cases = _cases(config, test)
        return cls(
            run=len(cases),
            native=sum(dict(r.user_properties).get("passes_natively", False) for r in cases),
            passed=sum(r.passed for r in cases),
            failed=sum(r.failed for r in cases),
        )


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    return True if collection_path.name in SWEEPS and config.getoption("conformance") != "all" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts = Counts.of(terminalreporter.config, COMPILED)
    if counts.run:
        terminalreporter.write_line(
            f"onnx backend suite, engine openvino: {counts.run} cases run, {counts.native} pass on plain onnxruntime, "
            f"{counts.passed} pass compiled with either engine, {counts.failed} fail; all of them: "
            f"{REQUIRED} must pass compiled"
        )
    counts = Counts.of(terminalreporter.config, SIMULATED)
    if counts.run:
        terminalreporter.write_line(
            f"onnx backend suite, TensorRT and GPU simulated: {counts.run} cases run, {counts.passed} pass with "
            f"engines, {counts.failed} fail; of the others no node is labelled for TensorRT"
        )

    _summarize_builds(terminalreporter)


def _summarize_builds(terminalreporter: pytest.TerminalReporter) -> None:
    facts = [dict(case.user_properties) for case in _cases(terminalreporter.config, BUILT)]
    if not facts:
        return
    outcomes = collections.Counter(str(fact.get("outcome", "not judged")) for fact in facts)
    groups = collections.Counter(str(fact["group"]) for fact in facts if "group" in fact)
    terminalreporter.write_line(
        f"onnx backend suite, engine tensorrt-rtx: {len(facts)} cases run; "
        + ", ".join(f"{outcome}: {number}" for outcome, number in sorted(outcomes.items()))
        + f"; crashes of the worker: {sum(bool(fact.get('crashed')) for fact in facts)}; required: table yes, parser "
        f"no: 0; table yes, build no: 0; table no, build yes: at most {MOST_GIVEN_AWAY}"
    )
    if groups:
        listed = ", ".join(f"{name} {number}" for name, number in groups.most_common())
        terminalreporter.write_line(f"  table no, build yes: {listed}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    counts = Counts.of(session.config, COMPILED)
    given_away = sum("group" in dict(case.user_properties) for case in _cases(session.config, BUILT))
    if counts.run >= REQUIRED > counts.passed or given_away > MOST_GIVEN_AWAY:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _cases(config: pytest.Config, test: str) -> Collection[pytest.TestReport]:
    """Return the reports of the cases that one test has run, one a case."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    stats = reporter.stats if reporter else {}
    return {r.nodeid: r for reports in stats.values() for r in reports if _is_case(r, test)}.values()


def _is_case(report: object, test: str) -> bool:
    """Return whether a report is the one of a case: of the call, or of a failure or skip before it."""
    return (
        isinstance(report, pytest.TestReport)
        and f".py::{test}[" in report.nodeid
        and (report.when == "call" or not report.passed)
    )
