"""A real browser for the tests of pages."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from collections.abc import Callable

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = "no-first-run disable-gpu disable-quic disable-background-networking disable-component-update disable-sync"

DumpDom = Callable[..., str]
"""Opens an address in a window of a width, lets seconds pass there, and returns what the page is then."""


def browser_of(folder: pathlib.Path) -> DumpDom:
    """Return Chromium without a window, which keeps its things in a folder; skip the test where there is none."""
    if BROWSER is None:
        pytest.skip("no Chromium here")

    def dump_dom(url: str, *, seconds: int, width: int) -> str:
        command = [BROWSER, "--headless", "--no-sandbox", *(f"--{option}" for option in QUIET.split())]
        command += [f"--user-data-dir={folder / 'profile'}", f"--virtual-time-budget={seconds * 1000}"]
        command += [f"--window-size={width},900", "--dump-dom", url]
        return subprocess.run(command, check=True, capture_output=True, timeout=240).stdout.decode()

    return dump_dom
