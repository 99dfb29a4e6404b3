"""The garbage collector, paused while large graphs are built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Pause the garbage collector. Nearly all new objects stay alive, so a collection would find nothing.

    Afterwards they count as old, else the next collection of new objects would visit them all.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():  # nobody else's objects would be thawed
                gc.freeze()
                gc.unfreeze()
            gc.enable()
