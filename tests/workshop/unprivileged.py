"""A user without rights, home folder and entry in the system's list of users, for commands that root starts."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
NOBODY = 54321


def become(user: int = NOBODY) -> list[str]:
    """Return what to put before a command to run it as a user who may read all files, such as the interpreter."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become a user without an entry, with setpriv")
    may_read = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *may_read]
    if subprocess.run(
        [*prefix, sys.executable, "-c", "import trtnode.serving"], cwd=ROOT, capture_output=True
    ).returncode:
        pytest.skip("this machine doesn't let such a user read the interpreter")
    return prefix
