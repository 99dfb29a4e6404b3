"""The CPU cores of the threads of the ports.

They hand the interpreter's lock to each other dozens of times a request. Where the next thread sleeps on another core,
that core is woken first, which takes longer than what it then does. Threads that keep to one of two cores answer more
small requests a second.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

LONG_NS = 100_000
"""A run that keeps its thread busy for longer gains more from a free core than its request loses on the way there."""

IN_A_ROW = 3
"""So many long runs, one after the other, tell a model with long runs from a machine that was busy for a moment."""

P = ParamSpec("P")
T = TypeVar("T")

_thread = threading.local()


class PortCores:
    """The cores that the threads of one process's ports keep to."""

    def __init__(self, count: int | None = None, place: int = 0) -> None:
        """Choose them.

        Args:
            count: How many; None for one where there are two. Where there are more, it was not measured whether one
                is enough for both the lock and what gRPC does without it, so None keeps to none.
            place: Of the process among those of the server, so that each has cores of its own.
        """
        self._all = os.sched_getaffinity(0)
        cores = sorted(self._all)
        count = count or (1 if len(cores) == 2 else len(cores))
        chosen = {cores[(place * count + n) % len(cores)] for n in range(count)}
        self._chosen = chosen if len(chosen) < len(cores) and self._may_choose() else None

    def settle(self) -> None:
        """Keep the calling thread, and threads that it starts, to the chosen cores, but for long runs."""
        if self._chosen is not None:
            _move(self._chosen)
            _thread.cores, _thread.settled = self, True

    def leave(self) -> None:
        """Let the calling thread, and threads that it starts, run on all cores."""
        if self._chosen is not None:
            _move(self._all)
            _thread.cores = None

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep threads that start within to the chosen cores."""
        self.settle()
        try:
            yield
        finally:
            self.leave()

    def place(self, *, short: bool) -> None:
        """Move a thread that has settled to the chosen cores for short runs, else away from them."""
        if self._chosen is not None and _thread.settled is not short:
            _move(self._chosen if short else self._all)
            _thread.settled = short

    def _may_choose(self) -> bool:
        try:
            os.sched_setaffinity(0, self._all)
        except OSError:  # some sandboxes forbid it
            return False
        return True


def placed(run: Callable[P, T]) -> Callable[P, T]:
    """Return ``run`` such that threads that have settled keep to their cores for it while it is short, else leave them.

    A thread stays where it is until a run wants it elsewhere: moving to and fro costs more than short runs gain. Its
    own time is measured only after a run that took long by the clock on the wall: asking for it takes ten times as long
    as reading that clock.
    """
    long_runs = IN_A_ROW  # the first run may start threads, which inherit the cores of the one that starts them
    watched = True

    def run_in_place(*args: P.args, **kwargs: P.kwargs) -> T:
        nonlocal long_runs, watched
        cores: PortCores | None = getattr(_thread, "cores", None)
        if cores is None:
            return run(*args, **kwargs)
        cores.place(short=long_runs < IN_A_ROW)
        is_watched = watched  # another thread's run may change it meanwhile
        clock = time.thread_time_ns if is_watched else time.perf_counter_ns
        started = clock()
        result = run(*args, **kwargs)
        is_long = clock() - started > LONG_NS
        if is_watched:
            long_runs = long_runs + 1 if is_long else 0
        watched = is_long
        return result

    return run_in_place


def _move(cores: set[int]) -> None:
    with contextlib.suppress(OSError):  # the cores may have been taken from the process meanwhile
        os.sched_setaffinity(0, cores)
