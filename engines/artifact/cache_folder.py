"""The folder of the engine cache where none is named, and what keeps a folder from being one."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping

NAME = "trtnode"


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
