"""Turns of compilations that share a cache: while one of them measures, the others wait.

Times that were taken while another compilation computes tell little. So all compilations share the lock of a file. To
measure, one gives its share back, waits until every other one ends or wants to measure, too, and holds the lock alone.
A second file, the gate, keeps new ones from beginning meanwhile. The locks are those of flock(2).
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import fcntl
import os
import pathlib
import time
from collections.abc import Iterator

LOCK, GATE = "compiling.lock", "measuring.lock"
MOST_WAIT_S, LOOK_S = 60.0, 0.005
"""A compilation goes on after so long a wait whatever the others do, and looks so often."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Locks:
    """Descriptors of the two files."""

    lock: int
    gate: int

    def share(self) -> None:
        """Compute beside others, once none of them measures or waits for that."""
        _take(self.gate, fcntl.LOCK_EX)
        _take(self.lock, fcntl.LOCK_SH)
        fcntl.flock(self.gate, fcntl.LOCK_UN)

    def take(self) -> None:
        """Compute alone."""
        fcntl.flock(self.lock, fcntl.LOCK_UN)
        _take(self.gate, fcntl.LOCK_EX)
        _take(self.lock, fcntl.LOCK_EX)

    def let_go(self) -> None:
        """Compute beside others again."""
        with contextlib.suppress(BlockingIOError):  # another one measures, after too long a wait
            fcntl.flock(self.lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(self.gate, fcntl.LOCK_UN)


_held: contextvars.ContextVar[_Locks | None] = contextvars.ContextVar("held", default=None)


@contextlib.contextmanager
def compiling(folder: pathlib.Path | None) -> Iterator[None]:
    """Compute beside other compilations while the block runs, in this thread; begin when none of them measures.

    Args:
        folder: That of the cache; None where nobody shares one.
    """
    with contextlib.ExitStack() as opened:
        locks = None
        if folder is not None and _held.get() is None:
            with contextlib.suppress(OSError):  # no such folder yet, or it can't be written
                locks = _Locks(_opened(folder / LOCK, opened), _opened(folder / GATE, opened))
        if locks is None:
            yield
            return
        locks.share()
        before = _held.set(locks)
        try:
            yield
        finally:
            _held.reset(before)


@contextlib.contextmanager
def measuring() -> Iterator[None]:
    """Compute alone while the block runs, as far as other compilations go."""
    locks = _held.get()
    if locks is None:
        yield
        return
    locks.take()
    try:
        yield
    finally:
        locks.let_go()


def _opened(path: pathlib.Path, closing: contextlib.ExitStack) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    closing.callback(os.close, descriptor)
    return descriptor


def _take(descriptor: int, kind: int) -> None:
    """Lock a file, or go on without it once others hold it for too long."""
    until = time.monotonic() + MOST_WAIT_S
    while time.monotonic() < until:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOOK_S)
        else:
            return
