"""The client for whom a thread works, so that work far below a handler can end when nobody waits for it."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Protocol


class Caller(Protocol):
    """The part of gRPC's ``ServicerContext`` that tells whether a client still waits."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Register what to call when the call ends, however it does; return False if it has ended already."""
        ...


_CALLER: contextvars.ContextVar[Caller | None] = contextvars.ContextVar("caller", default=None)


@contextlib.contextmanager
def answering(caller: Caller) -> Iterator[None]:
    """Let a block work for a client."""
    before = _CALLER.set(caller)
    try:
        yield
    finally:
        _CALLER.reset(before)


def when_caller_leaves(callback: Callable[[], None]) -> None:
    """Call back when the client of this thread leaves, at once if it has left; never where nobody waits."""
    caller = _CALLER.get()
    if caller is not None and not caller.add_callback(callback):
        callback()
