"""Work that stands back behind requests: on half of the cores, and there at a low priority."""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Collection, Iterator

NICENESS = 10
"""That of processes that work in the background: they get a tenth of a core that requests keep busy, so they do end."""

_IN_BACKGROUND: contextvars.ContextVar[bool] = contextvars.ContextVar("in_background", default=False)


@contextlib.contextmanager
def in_background() -> Iterator[None]:
    """Let the processes that a block starts stand back."""
    before = _IN_BACKGROUND.set(True)
    try:
        yield
    finally:
        _IN_BACKGROUND.reset(before)


def is_in_background() -> bool:
    """Return whether the work of this thread stands back."""
    return _IN_BACKGROUND.get()


def background_cores() -> Collection[int]:
    """Return the half of this process's cores, at least one, that such work may use."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[-max(1, len(cores) // 2) :]
