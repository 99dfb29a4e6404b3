"""Processor time of a compilation, by phase."""

from __future__ import annotations

import contextlib
import os
import pathlib
import types
from collections.abc import Iterator, Mapping

PROC = pathlib.Path("/proc")


class ProcessorTimes:
    """Seconds of processor time that phases took, those of child processes included.

    Attributes:
        seconds: By phase, in the order in which they began.
    """

    def __init__(self, seconds: Mapping[str, float] = types.MappingProxyType({})) -> None:
        """Begin with what earlier phases have taken."""
        self.seconds = dict(seconds)

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Add what the block takes to a phase."""
        began, before = processor_s(), self.seconds.setdefault(phase, 0.0)
        try:
            yield
        finally:
            self.seconds[phase] = before + processor_s() - began


def processor_s(process: int | None = None) -> float:
    """Return the processor time of a process, by default this one, and of those below it, ended ones included."""
    root = os.getpid() if process is None else process
    return _used_s(root) + sum(map(_used_s, _below(root)))


def _below(process: int) -> Iterator[int]:
    with contextlib.suppress(OSError):  # a process may end meanwhile
        for thread in (PROC / str(process) / "task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from _below(child)


def _used_s(process: int) -> float:
    """Return the processor time of a process that nobody has waited for, and of its children that have ended."""
    with contextlib.suppress(OSError):
        fields = (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0
