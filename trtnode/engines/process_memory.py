"""Tells the memory of this process, and what its C library does with what is free. Linux only."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import pathlib

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Settings of glibc: mallopt(3)."""
KEPT_BYTES = 64 << 20
"""Free memory that the C library keeps for what is allocated next."""
MAPPED_BYTES = 8 << 20
"""Blocks of this size are given back as soon as they are free. Each thread's part of the heap would keep some of them,
and the faults of so large a block take less time than what is done with it."""


def resident_bytes(process: int | str = "self") -> int:
    """Return the resident memory of a process: proc_pid_status(5).

    Raises:
        OSError: This is no Linux, or the process is gone.
    """
    lines = pathlib.Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def give_back_free_memory() -> None:
    """Free objects that only refer to each other, and give free pages back to the system, where its C library can."""
    gc.collect()
    give_back_free_pages()


def give_back_free_pages() -> None:
    """Give free pages back to the system, where its C library can. It takes milliseconds."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def keep_free_memory() -> None:
    """Have the C library, where it can, use the memory of large tensors again instead of giving it back at once.

    Each page that the system gives anew is a fault: a message of 602 KB has 150.
    """
    with contextlib.suppress(AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        library.mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
