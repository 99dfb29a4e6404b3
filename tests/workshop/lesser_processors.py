"""Runs tests as on a lesser processor: OpenVINO and ONNX Runtime leave newer instruction sets unused."""

from __future__ import annotations

import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Mapping

import pytest

HELD_BACK = pathlib.Path(__file__).parent / "held_back"
ROOT = pathlib.Path(__file__).parents[2]


def held_back_to(instruction_set: str) -> Mapping[str, str]:
    """The environment of a process that is held back; see ``held_back/sitecustomize.py``."""
    if platform.machine() != "x86_64":
        pytest.skip("only processors of x86-64 are held back")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**kept, "ONEDNN_MAX_CPU_ISA": instruction_set, "PYTHONPATH": str(HELD_BACK)}


def run_tests(instruction_set: str, *arguments: str) -> str:
    """Run tests held back, and return their summary; they must pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=held_back_to(instruction_set), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout
