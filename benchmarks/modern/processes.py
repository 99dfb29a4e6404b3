"""Memory and processor time of a command and all its children."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Value = TypeVar("Value")

INTERVAL_S = 0.03
"""Between two looks at the memory; each takes some ms of the kernel's time in the process looked at."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Figures of a command that has ended.

    Attributes:
        peak_mb: Largest sum of the proportional set sizes of all its processes.
        processor_s: Processor time of all its processes.
        after_s: Time between a line of its output that was waited for and its end; 0 if there is no such line.
        output: What it wrote to stdout and stderr.
    """

    peak_mb: float
    processor_s: float
    after_s: float
    output: str


def measure(command: Sequence[str], *, mark: str = "\0") -> Usage:
    """Run a command to its end.

    Args:
        command: Program and arguments.
        mark: Start of the line that `Usage.after_s` counts from.

    Raises:
        SystemExit: It fails; with its output.
    """
    before = _children_s()
    lines, marked = [], 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        peak = _Peak(child.pid)
        assert child.stdout is not None
        for line in child.stdout:
            lines.append(line)
            marked = time.monotonic() if line.startswith(mark) else marked
        child.wait()
        ended = time.monotonic()
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {child.returncode}:\n{''.join(lines)}")
    after = ended - marked if marked else 0.0
    return Usage(peak_mb=peak.close(), processor_s=_children_s() - before, after_s=after, output="".join(lines))


def memory_mb(process: int, *, children: bool = True) -> float:
    """Return the proportional set size of a process and, if asked, of all below it."""
    return sum(map(_memory_mb, _tree(process) if children else [process]))


class _Peak:
    """Looks at the memory of a tree of processes until it is closed."""

    def __init__(self, process: int) -> None:
        self._process, self._peak, self._ended = process, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def close(self) -> float:
        self._ended.set()
        self._thread.join()
        return self._peak

    def _look(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self._peak = max(self._peak, memory_mb(self._process))


def _tree(process: int) -> Iterator[int]:
    yield process
    none: list[pathlib.Path] = []
    for task in _read(lambda: list(pathlib.Path(f"/proc/{process}/task").iterdir()), none):
        for child in _read((task / "children").read_text, "").split():
            yield from _tree(int(child))


def _memory_mb(process: int) -> float:
    rollup = _read(pathlib.Path(f"/proc/{process}/smaps_rollup").read_text, "")
    found = re.search(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def _read(read: Callable[[], Value], ended: Value) -> Value:
    try:
        return read()
    except OSError:  # the process has ended since it was listed
        return ended


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
