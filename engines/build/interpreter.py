"""Starts fresh interpreters that talk to this process over a socket pair.

A child is never a fork: threads of gRPC and of the engine libraries do not survive one. Only the two processes hold an
end of the pair, so sending Python objects is safe.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection

from trtnode.engines.errors import ProcessStartError

FIRST = "from trtnode.partitioner.start import import_onnx_ir; import_onnx_ir()"
"""Runs before the code of every child."""


def start_interpreter(
    code: str, *, files: Sequence[int] = (), stdout: int | None = None
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a process that runs a piece of Python.

    It imports from the absolute folders of this process's path, and never from the current folder: a file there may
    bear the name of a library.

    Args:
        code: Reads the descriptor of its connection from ``sys.argv[1]``, and those of ``files`` after it.
        files: Descriptors that it inherits under the same numbers.
        stdout: Where its output goes; None for where that of this process goes.

    Returns:
        The process, and this end of the connection to it.

    Raises:
        ProcessStartError: The system starts none.
    """
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
                env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
            )
        except OSError as error:
            ours.close()
            raise ProcessStartError(sys.executable, error) from error
    return process, Connection(ours.detach())
