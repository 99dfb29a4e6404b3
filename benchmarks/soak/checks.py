"""Checks of a soak: figures with limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.soak.outcomes import Tally
from benchmarks.soak.process_stats import Growth, ProcessStats

MB_PER_MINUTE = 1.0
MB_PER_RELOADS = 2.0
"""Memory that allocators may keep after all reloads: a model that leaked at each reload is far more."""

MORE_THREADS = 16
"""Threads that pools may add, as they start threads on demand and keep them. A leak at each reload adds more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One requirement.

    Attributes:
        name: The checked property.
        found: The figure.
        wanted: The limit.
        passed: True if the figure is within the limit.
    """

    name: str
    found: str
    wanted: str
    passed: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The end of the server.

    Attributes:
        code: Its exit code; None if it did not end in time.
        seconds: Time that it took.
        lost: Requests that its log counts as answered and whose answers did not reach their clients.
        complaints: Lines of its log about unexpected errors.
    """

    code: int | None
    seconds: float
    lost: int
    complaints: list[str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Results of a soak.

    Attributes:
        tallies: Requests of each stage, by its name.
        samples: The server under steady load.
        growth: Of memory under steady load.
        alone: Bytes that a request adds to memory, by kind, without clients of other kinds.
        rests: The server without clients: after the warm-up, after the steady load, after the reloads.
        reloads: Number of models that were reloaded under full load.
        stop: The end of the server.
    """

    tallies: Mapping[str, Tally]
    samples: Sequence[ProcessStats]
    growth: Growth
    alone: Mapping[str, float]
    rests: tuple[ProcessStats, ProcessStats, ProcessStats]
    reloads: int
    stop: Stop

    def checks(self) -> Iterator[Check]:
        """Compare each figure with its limit."""
        warm, steady, reloaded = self.rests
        for stage, tally in self.tallies.items():
            yield _at_most(f"{stage}: lost, wrong or with an unexpected status", tally.faults, 0)
        slope = self.growth.mb_per_minute
        yield Check("memory under steady load", str(self.growth), f"< {MB_PER_MINUTE:g} MB/min", slope < MB_PER_MINUTE)
        grown, most = reloaded.rss_mb - steady.rss_mb, MB_PER_RELOADS
        yield Check(f"memory after {self.reloads} reloads", f"{grown:+.1f} MB", f"<= {most:+g} MB", grown <= most)
        yield _at_most("threads at rest", reloaded.threads, warm.threads + MORE_THREADS)
        yield _at_most("file descriptors at rest", reloaded.descriptors, warm.descriptors)
        yield _at_most("unexpected errors in the log", len(self.stop.complaints), 0)
        yield _at_most("answers lost by the stop", abs(self.stop.lost), 0)
        code = "killed" if self.stop.code is None else str(self.stop.code)
        yield Check("exit code after SIGTERM", code, "0", self.stop.code == 0)


def _at_most(name: str, found: int, most: int) -> Check:
    return Check(name, f"{found:,}", f"<= {most:,}" if most else "0", found <= most)
