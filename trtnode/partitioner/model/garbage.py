"""The garbage collector, paused while large graphs are built."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_frozen = threading.Event()


def freeze() -> None:
    """Take every object that there is out of the collector's sight, for good: a server's modules, for example."""
    _frozen.set()
    gc.freeze()


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
            # Nobody else's objects may be thawed. Counting the frozen ones visits each of them.
            if not _frozen.is_set() and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
