"""Interpreters that run code of ours, and talk to this process alone."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection

from trtnode.engines.errors import ProcessStartError
from trtnode.engines.system_limits import check_tasks, child_tasks

FIRST = "from trtnode.partitioner.start import import_onnx_ir; import_onnx_ir()"
"""Runs before the code of every child."""


def start_interpreter(
    code: str, *, files: Sequence[int] = (), stdout: int | None = None, stderr: int | None = None
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a process that runs a piece of Python.

    It imports from the absolute folders of this process's path, and never from the current folder: a file there may
    bear the name of a library.

    Args:
        code: Reads the descriptor of its connection from ``sys.argv[1]``, and those of ``files`` after it.
        files: Descriptors that it inherits under the same numbers.
        stdout: Where its output goes; None for where that of this process goes.
        stderr: The same of its errors.

    Returns:
        The process, and this end of the connection to it.

    Raises:
        SystemLimitError: The system starts none, or gives it too few threads.
    """
    check_tasks(child_tasks())
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise ProcessStartError(sys.executable, error) from error
    with theirs:
        inherited = [theirs.fileno(), *files]
        places = filter(os.path.isabs, sys.path)
        try:
            process = subprocess.Popen(  # noqa: S603  (this interpreter, and our own code)
                [sys.executable, "-P", "-c", f"{FIRST}; {code}", *map(str, inherited)],
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
            )
        except OSError as error:
            ours.close()
            raise ProcessStartError(sys.executable, error) from error
    return process, Connection(ours.detach())


class HeldStderr:
    """Standard error of children, held in memory until it is known whether it tells of a limit of the system."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._file: int | None = None

    def fileno(self) -> int:
        """Return the descriptor that a child inherits."""
        if self._file is None:
            self._file = os.memfd_create("stderr")
            fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_APPEND)
            weakref.finalize(self, os.close, self._file)
        return self._file

    def read(self) -> str:
        """Return what has been written since the last time, and let go of its memory."""
        if self._file is None or not (size := os.fstat(self._file).st_size):
            return ""
        written = os.pread(self._file, size, 0)
        os.ftruncate(self._file, 0)
        return written.decode(errors="replace")

    def hand_on(self) -> None:
        """Write it to the standard error of this process."""
        tell(self.read())


def tell(words: str) -> None:
    """Write to the standard error of this process, if it has one."""
    if words and sys.stderr is not None:
        sys.stderr.write(words)
