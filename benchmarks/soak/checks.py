"""What a soak must show, as figures with limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.soak.outcomes import Tally
from benchmarks.soak.vitals import Growth, Vitals

MB_PER_MINUTE = 1.0
MB_PER_RELOADS = 2.0
"""What allocators may keep after all reloads together: a model that stays behind each time is far more."""

MORE_THREADS = 16
"""Pools start threads when they need them, and keep them. Those of OpenVINO grow by about a dozen in a hundred reloads,
and by less and less; a thread that stays behind at each reload is found."""


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One requirement.

    Attributes:
        name: What is looked at.
        found: The figure.
        wanted: The limit.
        passed: Whether the figure keeps it.
    """

    name: str
    found: str
    wanted: str
    passed: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """How the server ended.

    Attributes:
        code: Its exit code; None if it did not end in time.
        seconds: How long it took.
        lost: Requests that it answered, as its log says, and whose answers did not reach their clients.
        complaints: Lines of its log about what it did not expect.
    """

    code: int | None
    seconds: float
    lost: int
    complaints: list[str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What a soak found.

    Attributes:
        tallies: Requests of each stage, by its name.
        samples: The server under steady load.
        growth: Of memory under steady load.
        rests: The server without any client: after the warm-up, after the steady load, after the reloads.
        reloads: How many models were loaded anew under full load.
        stop: How the server ended.
    """

    tallies: Mapping[str, Tally]
    samples: Sequence[Vitals]
    growth: Growth
    rests: tuple[Vitals, Vitals, Vitals]
    reloads: int
    stop: Stop

    def checks(self) -> Iterator[Check]:
        """Hold everything against its limit."""
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
