"""Options and fixtures of all tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--conformance",
        choices=("sample", "all"),
        default="sample",
        help="how much of the onnx backend test suite to run",
    )
