"""Finds and opens files that others may have put there: a pipe would let its reader wait, a device has no end."""

from __future__ import annotations

import errno
import io
import os
import pathlib
import stat


def without_links(path: pathlib.Path) -> pathlib.Path:
    """Return the absolute path of what links lead to. A loop of links stays in it; who opens it gets an ``OSError``.

    ``Path.resolve`` raises ``RuntimeError`` at a loop before Python 3.13, and nothing from then on.
    """
    return pathlib.Path(os.path.realpath(path))


def file_version(path: pathlib.Path) -> tuple[int, int, int]:
    """Return facts that change with a file's content.

    Raises:
        OSError: It can't be read.
    """
    facts = path.stat()
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def open_regular(path: pathlib.Path) -> io.BufferedReader:
    """Open a file to read it.

    Raises:
        OSError: It can't be opened, or is a pipe, a device, a socket or a folder.
    """
    # A pipe is opened without waiting for its writer. What is looked at is what is read, whatever the path becomes.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file, but a folder, pipe or device", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: pathlib.Path) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: As ``open_regular``.
    """
    with open_regular(path) as file:
        return file.read()
