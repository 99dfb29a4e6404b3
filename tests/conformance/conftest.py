"""Counts the results of the conformance suite, and prints them."""

from __future__ import annotations

import dataclasses

import pytest

REQUIRED = 1766
"""Number of cases that must pass compiled with OpenVINO."""

COMPILED = "test_case_passes_compiled_if_it_passes_natively"
SIMULATED = "test_case_passes_on_a_simulated_gpu_if_it_passes_natively"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Outcome of the cases of the onnx backend suite that one test has run."""

    run: int
    native: int
    passed: int
    failed: int

    @classmethod
    def of(cls, config: pytest.Config, test: str) -> Counts:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        stats = reporter.stats if reporter else {}
        cases = {r.nodeid: r for reports in stats.values() for r in reports if _is_case(r, test)}.values()
        return cls(
            run=len(cases),
            native=sum(dict(r.user_properties).get("passes_natively", False) for r in cases),
            passed=sum(r.passed for r in cases),
            failed=sum(r.failed for r in cases),
        )


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


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    counts = Counts.of(session.config, COMPILED)
    if counts.run >= REQUIRED > counts.passed:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_case(report: object, test: str) -> bool:
    """Return whether a report is the one of a case: of the call, or of a failure or skip before it."""
    return (
        isinstance(report, pytest.TestReport)
        and f"test_onnx_backend.py::{test}[" in report.nodeid
        and (report.when == "call" or not report.passed)
    )
