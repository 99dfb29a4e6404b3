"""Work that never ends, or takes all memory, for worker processes."""

from __future__ import annotations

import threading


def stall(*_: object) -> None:
    threading.Event().wait()


def allocate(*_: object) -> int:
    return len(bytearray(2**40))
