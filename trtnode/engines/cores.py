"""The cores that this process may use: those of its affinity, and as much of them as its control groups allow.

A container with a quota of two cores on a machine of 64 sees 64. Threads beyond the quota make the kernel stop all of
them for the rest of each period. Sources: cgroups(7), proc_pid_mountinfo(5), ``cpu.max`` in the kernel's
admin-guide/cgroup-v2, ``cpu.cfs_quota_us`` in scheduler/sched-bwc.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import pathlib
from collections.abc import Iterator

PROC = pathlib.Path("/proc/self")


@dataclasses.dataclass(frozen=True, slots=True)
class Cores:
    """A number of cores, and what limits them.

    Attributes:
        count: At least 1.
        source: ``affinity``, or the file of the quota with its value.
        is_quota: True if a quota allows less than the affinity.
    """

    count: int
    source: str
    is_quota: bool

    def __str__(self) -> str:
        return f"{self.count} {'core' if self.count == 1 else 'cores'} ({self.source})"


@functools.cache
def usable_cores() -> Cores:
    """Return the cores of this process, as they were when it was first asked."""
    return find_cores(PROC, len(os.sched_getaffinity(0)))


def quota_threads() -> int | None:
    """Return the threads that fit a quota; None where there is no quota, and libraries count the cores well."""
    cores = usable_cores()
    return cores.count if cores.is_quota else None


def find_cores(proc: pathlib.Path, affinity: int) -> Cores:
    """Return the fewest cores that the affinity or a quota allows; a quota is rounded up.

    Args:
        proc: Folder with the files ``cgroup`` and ``mountinfo`` of the process.
        affinity: Number of cores that it may run on.
    """
    quotas: list[tuple[float, str]] = []
    with contextlib.suppress(OSError, ValueError):
        quotas = [found for folder in control_groups(proc, "cpu") if (found := _quota(folder)) is not None]
    lowest, source = min(quotas, default=(math.inf, ""))
    if lowest >= affinity:
        return Cores(affinity, "affinity", is_quota=False)
    return Cores(max(1, math.ceil(lowest)), source, is_quota=math.ceil(lowest) < affinity)


def control_groups(proc: pathlib.Path, controller: str) -> Iterator[pathlib.Path]:
    """Yield the folders of the process's groups of a controller, and of those around them.

    Args:
        proc: Folder with the files ``cgroup`` and ``mountinfo`` of the process.
        controller: Such as ``cpu`` or ``pids``.

    Raises:
        OSError: This is no Linux.
        ValueError: A file can't be read.
    """
    groups = [line.split(":", 2) for line in (proc / "cgroup").read_text().splitlines()]
    for line in (proc / "mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        root, place = mount.split()[3:5]
        version, _, options = kind.split(" ", 2)
        for _, controllers, group in groups:
            unified = version == "cgroup2" and not controllers
            named = all(controller in names.split(",") for names in (controllers, options))
            if unified or (version == "cgroup" and named):
                inside = pathlib.PurePosixPath(group)
                inside = inside.relative_to(root) if inside.is_relative_to(root) else pathlib.PurePosixPath()
                yield from (pathlib.Path(place) / one for one in (inside, *inside.parents))


def _quota(folder: pathlib.Path) -> tuple[float, str] | None:
    """Return the cores that a group allows, and where that stands; None where it allows all."""
    with contextlib.suppress(FileNotFoundError):
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else (int(quota) / int(period), f"{folder / 'cpu.max'}: {quota} {period}")
    with contextlib.suppress(FileNotFoundError):
        file = folder / "cpu.cfs_quota_us"
        quota_us, period_us = int(file.read_text()), int((folder / "cpu.cfs_period_us").read_text())
        return None if quota_us <= 0 else (quota_us / period_us, f"{file}: {quota_us} of {period_us} us")
    return None
