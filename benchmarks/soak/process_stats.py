"""Memory, threads and descriptors of a process, sampled while it works, and the growth of memory. Linux only."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

WINDOW_S = 5.0
"""Length of a window of samples. Growth is fitted to medians of windows, which short-lived allocations don't change."""

BOOTSTRAP_SAMPLES = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessStats:
    """A process at one moment.

    Attributes:
        seconds: Time on the monotonic clock.
        rss_mb: Resident memory in 10^6 bytes.
        threads: Number of threads.
        descriptors: Number of open files, sockets and pipes.
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


def read_stats(process: int) -> ProcessStats:
    """Read the stats of a process.

    Raises:
        OSError: There is no such process, or it belongs to another user.
    """
    folder = pathlib.Path(f"/proc/{process}")
    pages = int((folder / "statm").read_text().split()[1])
    return ProcessStats(
        seconds=time.monotonic(),
        rss_mb=pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        threads=_count(folder / "task"),
        descriptors=_count(folder / "fd"),
    )


def _count(folder: pathlib.Path) -> int:
    return sum(1 for _ in folder.iterdir())


class StatsSampler:
    """Samples a process in its own thread while the context lasts, and keeps the samples."""

    def __init__(self, process: int, interval_s: float = 0.5) -> None:
        self.samples: list[ProcessStats] = []
        self._process = process
        self._interval_s = interval_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="process-stats")

    def __enter__(self) -> StatsSampler:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(self._interval_s):
            self.samples.append(read_stats(self._process))


def wait_until_settled(process: int, good: Callable[[ProcessStats], bool], limit_s: float = 10.0) -> ProcessStats:
    """Read the stats until they are good or the time limit has passed; return the last ones."""
    deadline = time.monotonic() + limit_s
    while not good(seen := read_stats(process)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return seen


def growth(samples: Sequence[ProcessStats]) -> Growth:
    """Fit a line to the memory of a process.

    Neighbouring samples are correlated, so the line is fitted to medians of windows. The interval comes from drawing
    windows with replacement.

    Args:
        samples: Samples of three windows at least.

    Raises:
        ValueError: There are fewer windows.
    """
    start = samples[0].seconds if samples else 0.0
    windows: dict[int, list[ProcessStats]] = {}
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


def growth_per_request(samples: Sequence[ProcessStats], requests: int) -> float:
    """Return by how many bytes memory grew with each request, from the slope of the second half of some samples.

    The first half fills what is kept once: connections, kernels, shapes, and memory that allocators don't give back.

    Args:
        samples: Of a process, taken while its clients sent requests at an even rate.
        requests: Their number.
    """
    late = samples[len(samples) // 2 :]
    if len(late) < 2 or not requests:
        return 0.0
    seconds, memory = (np.array([getattr(one, name) for one in late]) for name in ("seconds", "rss_mb"))
    return 1e6 * _slope(seconds, memory) * (samples[-1].seconds - samples[0].seconds) / requests


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    centred = x - x.mean()
    return float(centred @ (y - y.mean()) / (centred @ centred))
