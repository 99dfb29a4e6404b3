"""The order of loads: one at a time, so that builds leave each other the cores. An endless one holds up no other."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

PATIENCE_S = 60.0
"""Time after which a load that still runs keeps no other one waiting."""
MOST = 4
"""Loads at a time."""
LOOK_S = 0.5


class Turns:
    """Tells loads when to begin. Those of one model never overlap."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def taken(self, model: str) -> Iterator[None]:
        """Wait until a model may load, and let others wait while the block runs."""
        with self._changed:
            while not self._may_begin(model):
                self._changed.wait(LOOK_S)
            self._began[model] = time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                del self._began[model]
                self._changed.notify_all()

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no model loads; return False if that takes longer than ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._began, timeout_s)

    def _may_begin(self, model: str) -> bool:
        late = time.monotonic() - PATIENCE_S
        others = self._began.values()
        return model not in self._began and len(others) < MOST and all(began < late for began in others)
