"""What a process holds, sampled while it works, and whether that grows. Linux only."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

WINDOW_S = 5.0
"""Samples of so many seconds become one median, so that what allocators keep for a moment is no growth."""

BOOTSTRAP_SAMPLES = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Vitals:
    """A process at one moment.

    Attributes:
        seconds: When, by the monotonic clock.
        rss_mb: Memory that it has in use, in 10^6 bytes.
        threads: Their number.
        descriptors: Files, sockets and pipes that it has open.
    """

    seconds: float
    rss_mb: float
    threads: int
    descriptors: int


@dataclasses.dataclass(frozen=True, slots=True)
class Growth:
    """A slope fitted by least squares.

    Attributes:
        mb_per_minute: The slope.
        low: Lower end of its 95 % interval.
        high: Upper end.
    """

    mb_per_minute: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mb_per_minute:.2f} MB/min (95 % within {self.low:.2f} and {self.high:.2f})"


def read_vitals(process: int) -> Vitals:
    """Look at a process.

    Raises:
        OSError: There is none of that number, or it isn't ours.
    """
    folder = pathlib.Path(f"/proc/{process}")
    pages = int((folder / "statm").read_text().split()[1])
    return Vitals(
        seconds=time.monotonic(),
        rss_mb=pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        threads=_count(folder / "task"),
        descriptors=_count(folder / "fd"),
    )


def _count(folder: pathlib.Path) -> int:
    return sum(1 for _ in folder.iterdir())


class Sampler:
    """Looks at a process in a thread of its own while the context lasts, and after that keeps what it saw."""

    def __init__(self, process: int, interval_s: float = 0.5) -> None:
        self.samples: list[Vitals] = []
        self._process = process
        self._interval_s = interval_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="vitals")

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._over.wait(self._interval_s):
            self.samples.append(read_vitals(self._process))


def settled(process: int, good: Callable[[Vitals], bool], patience_s: float = 10.0) -> Vitals:
    """Look until what is seen is good, or patience is over; return what was seen last."""
    deadline = time.monotonic() + patience_s
    while not good(seen := read_vitals(process)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return seen


def growth(samples: Sequence[Vitals]) -> Growth:
    """Fit a line to the memory of a process.

    Neighbouring samples resemble each other, so the line is fitted to medians of windows, and the interval comes from
    drawing windows with replacement.

    Args:
        samples: Over three windows at least.

    Raises:
        ValueError: They are of fewer windows.
    """
    start = samples[0].seconds if samples else 0.0
    windows: dict[int, list[Vitals]] = {}
    for sample in samples:
        windows.setdefault(int((sample.seconds - start) / WINDOW_S), []).append(sample)
    if len(windows) < 3:
        raise ValueError(f"a slope needs samples of {3 * WINDOW_S:g} s at least")
    minutes = np.array([np.median([one.seconds for one in window]) / 60 for window in windows.values()])
    memory = np.array([np.median([one.rss_mb for one in window]) for window in windows.values()])
    drawn = np.random.default_rng(0).integers(0, len(windows), (BOOTSTRAP_SAMPLES, len(windows)))
    slopes = [_slope(minutes[one], memory[one]) for one in drawn if len(set(one)) > 1]
    low, high = np.percentile(slopes, [2.5, 97.5])
    return Growth(_slope(minutes, memory), float(low), float(high))


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    centred = x - x.mean()
    return float(centred @ (y - y.mean()) / (centred @ centred))
