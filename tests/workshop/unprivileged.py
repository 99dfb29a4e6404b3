"""A user without rights, home folder and entry in the system's list of users, for commands that root starts."""

from __future__ import annotations

import os
import shutil

import pytest

NOBODY = 54321


def become(user: int = NOBODY) -> list[str]:
    """Return what to put before a command to run it as a user who may read all files, such as the interpreter."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become a user without an entry, with setpriv")
    may_read = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *may_read]
