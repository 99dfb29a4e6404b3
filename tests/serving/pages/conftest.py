"""The browser of these tests."""

from __future__ import annotations

import pathlib

import pytest

from browser import DumpDom, browser_of


@pytest.fixture
def dump_dom(tmp_path: pathlib.Path) -> DumpDom:
    """Run Chromium without a window; skip where there is none."""
    return browser_of(tmp_path)
