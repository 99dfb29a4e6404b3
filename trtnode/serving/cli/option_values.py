"""The engine cache that command-line options name."""

from __future__ import annotations

import argparse
import pathlib

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.cache_folder import default_cache_folder
from trtnode.serving.errors import InvalidOptionError

CACHE_BYTES = 20 * 10**9
"""Largest size of the engine cache."""


def cache_folder_from(arguments: argparse.Namespace) -> pathlib.Path | None:
    """Translate ``--cache``; None where it isn't given and this user has no home folder.

    Raises:
        InvalidOptionError: It begins with the home folder of a user who has none.
    """
    if arguments.cache is None:
        return default_cache_folder()
    try:
        given: pathlib.Path = arguments.cache.expanduser()
    except RuntimeError:
        raise InvalidOptionError("--cache", f"there is no home folder {arguments.cache.parts[0]} here") from None
    return given


def cache_from(arguments: argparse.Namespace) -> EngineCache | None:
    """The engine cache that command-line arguments name, if any.

    Raises:
        InvalidOptionError: Its folder begins with the home folder of a user who has none.
    """
    return None if arguments.no_cache else EngineCache(cache_folder_from(arguments), CACHE_BYTES)
