"""Counts what the conformance suite proves, and prints it."""

from __future__ import annotations

import pytest

NATIVE_FAILS = "plain onnxruntime does not pass this case"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    here = [r for reports in terminalreporter.stats.values() for r in reports if _is_case(r)]
    if not here:
        return
    passed = sum(r.when == "call" and r.passed for r in here)
    failed = sum(r.failed for r in here)
    native_fails = sum(r.skipped and NATIVE_FAILS in str(r.longrepr) for r in here)
    terminalreporter.write_line(
        f"onnx backend suite, engine openvino: {passed + failed + native_fails} cases run, "
        f"{passed + failed} pass on plain onnxruntime, {passed} of those pass compiled, {failed} fail"
    )


def _is_case(report: object) -> bool:
    return isinstance(report, pytest.TestReport) and "test_onnx_backend.py::" in report.nodeid
