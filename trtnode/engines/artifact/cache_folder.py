"""The folder of the engine cache where none is named, what keeps a folder from being one, and who may read it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
from collections.abc import Mapping

NAME = "trtnode"
SOURCES = "sources"
"""The folder in a cache with copies of model files."""
PRIVATE = 0o700
"""Mode of a folder that a cache makes."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""Permissions of everybody but the owner."""
_SUFFIXES = frozenset((".json", ".engine", ".timing", ".key", ".tmp"))
"""Of the files of a cache."""


def default_cache_folder(environment: Mapping[str, str] = os.environ) -> pathlib.Path | None:
    """Return ``$XDG_CACHE_HOME/trtnode``, else ``~/.cache/trtnode``; None for a user without a home folder.

    As the XDG specification has it, a relative ``XDG_CACHE_HOME`` counts as none.
    """
    base = pathlib.Path(environment.get("XDG_CACHE_HOME", ""))
    if base.is_absolute():
        return base / NAME
    try:
        return pathlib.Path.home() / ".cache" / NAME
    except RuntimeError:
        return None


def folder_problem(folder: pathlib.Path | None) -> str | None:
    """Return why nothing can be kept in a folder, which need not be there yet; None if it can.

    A folder that can be read, but not written, is no problem: what is in it counts.
    """
    if folder is None:
        return "this user has no home folder, and XDG_CACHE_HOME is not set"
    nearest = next((place for place in (folder, *folder.parents) if os.path.lexists(place)), folder)
    if not nearest.is_dir():
        return f"{nearest} is no folder"
    if not os.access(nearest, os.R_OK | os.X_OK if nearest == folder else os.W_OK | os.X_OK):
        return f"{folder} can't be read" if nearest == folder else f"{folder} can't be made in {nearest}"
    return None


def close_to_others(folder: pathlib.Path) -> None:
    """Take the permissions of others from a cache folder of this user, and from its files.

    Engines hold the weights of models that others may not read. A folder that holds other files as well stays open.
    """
    with contextlib.suppress(OSError):  # it isn't there, or belongs to somebody else
        if not folder.stat().st_mode & OTHERS:
            return
        files = list(folder.iterdir())
        own = [file for file in files if file.suffix in _SUFFIXES and not file.is_dir()]
        if all(file in own or file.name == SOURCES for file in files):
            folder.chmod(PRIVATE)
        for file in own:
            mode = file.lstat().st_mode
            if stat.S_ISREG(mode) and mode & OTHERS:
                file.chmod(0o600)
