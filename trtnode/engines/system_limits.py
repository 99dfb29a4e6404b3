"""Limits of the system: processes and threads, memory, open files, disk. What fails at one says nothing about a model.

Sources: getrlimit(2); ``pids.max``, ``pids.current`` and ``memory.events`` in the kernel's admin-guide/cgroup-v2;
cgroup-v1/pids and cgroup-v1/memory.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
from collections.abc import Iterator

from trtnode.engines.cores import PROC, control_groups, usable_cores
from trtnode.engines.errors import OutOfMemoryError, SystemLimitError, ThreadLimitError

MEMORY = ("std::bad_alloc", "bad allocation", "MemoryError", "Failed to allocate memory", "Cannot allocate memory")
THREADS = ("Resource temporarily unavailable", "can't start new thread", "pthread_create", "Cannot fork")
OTHERS = {
    "Too many open files": "This process has as many files open as it may: raise the limit (ulimit -n), to 64 or more.",
    "No space left on device": "Free some disk space.",
    "Disk quota exceeded": "Free some disk space, or raise the quota.",
}
"""Parts of the messages of libraries and of the system, and what to do."""

SERVER_TASKS = 16
"""Processes and threads of a server that loads no model."""
CHILD_TASKS, CHILD_TASKS_A_CORE = 5, 2
"""Those of a process that loads a model, or builds and checks its engines: libraries start some for each core."""

MANY_TASKS = 1 << 14
"""A limit from here on isn't worth counting for."""

_reserved: list[int] = []

ALL_PROCESSES, OWN_TASKS = pathlib.Path("/proc"), pathlib.Path("/proc/self/task")
"""A folder ``task`` has one folder for each thread, and two links besides."""


def as_limit(error: BaseException) -> SystemLimitError | OutOfMemoryError | None:
    """Return the limit of the system that an error of a library tells of; None where it tells of something else."""
    text = f"{type(error).__name__}: {error}"
    if any(part in text for part in MEMORY):
        return OutOfMemoryError()
    if any(part in text for part in THREADS):
        bounded = resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY
        # Threads need memory for their stacks, and the system doesn't tell which of the two is lacking.
        return OutOfMemoryError() if bounded and has_room(child_tasks()) else _thread_limit(child_tasks())
    told = next((part for part in OTHERS if part in text), None)
    return SystemLimitError(f"The system refuses this program something: {told}. {OTHERS[told]}") if told else None


def raise_limit(error: BaseException) -> None:
    """Raise the limit of the system that an error of a library tells of, if it does."""
    if (limit := as_limit(error)) is not None:
        raise limit from error


def out_of_memory_kills() -> int | None:
    """Return how many processes of this container the system has killed for memory; None where nothing tells."""
    with contextlib.suppress(OSError, ValueError):
        for folder in control_groups(PROC, "memory"):
            for file in (folder / "memory.events", folder / "memory.oom_control"):
                with contextlib.suppress(OSError):
                    lines = map(str.split, file.read_text().splitlines())
                    return next((int(count) for name, count in lines if name == "oom_kill"), None)
    return None


def child_tasks() -> int:
    """Return how many processes and threads one child process takes, about."""
    return CHILD_TASKS + CHILD_TASKS_A_CORE * usable_cores().count


def reserve_tasks(needed: int) -> None:
    """Have later checks leave room for so many processes and threads of this one, which it starts when it needs them.

    Raises:
        ThreadLimitError: There is no such room.
    """
    check_tasks(needed)
    _reserved[:] = [needed]


def check_tasks(needed: int) -> None:
    """Refuse to begin what can't end well.

    Args:
        needed: The processes and threads that it takes, besides those that there are.

    Raises:
        ThreadLimitError: Limits leave no room for them.
    """
    if not has_room(needed):
        raise _thread_limit(needed)


def has_room(needed: int) -> bool:
    """Return whether limits leave room for so many more processes and threads, besides those that are reserved."""
    free = needed + max(0, sum(_reserved) - OWN_TASKS.stat().st_nlink + 2) if _reserved else needed
    return all(most - used >= free for most, used, _ in _task_limits())


def _thread_limit(needed: int) -> ThreadLimitError:
    """Return the error with the lowest limit, and what a server needs that reads and builds a model, or more."""
    limits = sorted(_task_limits(), key=lambda one: one[0] - one[1])
    if not limits:
        return ThreadLimitError()
    most, used, source = limits[0]
    return ThreadLimitError(source, most, max(used + needed, SERVER_TASKS + 2 * child_tasks()))


def _task_limits() -> Iterator[tuple[int, int, str]]:
    """Yield the limits of processes and threads, how many there are, and where the limit stands.

    That of a user doesn't hold for root.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.geteuid() and 0 <= soft < MANY_TASKS:
        yield soft, _tasks_of_user(), "ulimit -u"
    with contextlib.suppress(OSError, ValueError):
        for folder in control_groups(PROC, "pids"):
            with contextlib.suppress(OSError, ValueError):
                most = int((folder / "pids.max").read_text())  # "max" where there is none
                yield most, int((folder / "pids.current").read_text()), str(folder / "pids.max")


def _tasks_of_user() -> int:
    count, user = 0, os.geteuid()
    for tasks in ALL_PROCESSES.glob("[0-9]*/task"):
        with contextlib.suppress(OSError):  # it has just ended
            found = tasks.stat()
            count += found.st_nlink - 2 if found.st_uid == user else 0
    return count
