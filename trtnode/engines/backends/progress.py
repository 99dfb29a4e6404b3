"""Progress of long work: the code that works reports it, and a listener shows it."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """A phase of some work, and the number of its steps that are done.

    Attributes:
        phase: Its name.
        done: Steps.
        total: Steps.
        limit_s: Seconds that the work may take from now on; None leaves it at the limit that it has.
        what: The work of the next step, for people; empty where the phase says it.
    """

    phase: str
    done: int
    total: int
    limit_s: float | None = None
    what: str = ""


Listener = Callable[[Progress], object]


def _log(progress: Progress) -> None:
    if progress.done == 0:
        logger.info("%s (%d steps)", progress.phase, progress.total)


_listeners: list[Listener] = [_log]


def report(progress: Progress) -> None:
    """Send progress to the listener; without one, phases are logged. Any thread may call this."""
    _listeners[-1](progress)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send reports to a listener until the block ends."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
