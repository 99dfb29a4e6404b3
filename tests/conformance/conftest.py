"""Counts what the conformance suite proves, and prints it."""

from __future__ import annotations

import dataclasses

import pytest

REQUIRED = 1766
"""How many of all cases must pass compiled."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Outcome of the cases of the onnx backend suite that were run."""

    run: int
    native: int
    compiled: int
    failed: int

    @classmethod
    def of(cls, config: pytest.Config) -> Counts:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        stats = reporter.stats if reporter else {}
        cases = {r.nodeid: r for reports in stats.values() for r in reports if _is_case(r)}.values()
        return cls(
            run=len(cases),
            native=sum(dict(r.user_properties).get("passes_natively", False) for r in cases),
            compiled=sum(r.passed for r in cases),
            failed=sum(r.failed for r in cases),
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts = Counts.of(terminalreporter.config)
    if counts.run:
        terminalreporter.write_line(
            f"onnx backend suite, engine openvino: {counts.run} cases run, {counts.native} pass on plain onnxruntime, "
            f"{counts.compiled} pass compiled with either engine, {counts.failed} fail; all of them: "
            f"{REQUIRED} must pass compiled"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    counts = Counts.of(session.config)
    if counts.run >= REQUIRED > counts.compiled:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_case(report: object) -> bool:
    """One report a case: the call itself, or whatever kept it from being called."""
    return (
        isinstance(report, pytest.TestReport)
        and "test_onnx_backend.py::" in report.nodeid
        and (report.when == "call" or not report.passed)
    )
