"""Sockets of attackers, who go on whatever the server does."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

Address = tuple[str, int]

CONNECT_S = 2.0
PAUSE_S = 0.5


def connected(address: Address) -> socket.socket | None:
    """Return a connection; None if there is none to have."""
    try:
        return socket.create_connection(address, CONNECT_S)
    except OSError:
        return None


def sent(connection: socket.socket, data: bytes) -> bool:
    """Send as much as goes without waiting; return whether the connection still stands."""
    return sent_only(connection, data) and is_open(connection)


def sent_only(connection: socket.socket, data: bytes) -> bool:
    """Do the same, and read nothing."""
    try:
        connection.sendall(data)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def is_open(connection: socket.socket) -> bool:
    """Return whether the server has left a connection open that doesn't block; what it sent is thrown away."""
    try:
        return bool(connection.recv(1 << 16))
    except BlockingIOError:
        return True
    except OSError:
        return False


def until_closed(address: Address, pieces: Iterator[bytes], deadline: float) -> int:
    """Send pieces on one connection, without reading, until the server closes it; return the number of bytes."""
    size = 0
    connection = connected(address)
    if connection is None:
        time.sleep(PAUSE_S)
        return 0
    with connection, contextlib.suppress(OSError):
        for piece in pieces:
            left = memoryview(piece)
            while left and time.monotonic() < deadline:
                with contextlib.suppress(TimeoutError):
                    count = connection.send(left)
                    left, size = left[count:], size + count
            if time.monotonic() >= deadline:
                break
    return size


def keep_open(address: Address, count: int, deadline: float, speak: Callable[[socket.socket, bool], bool]) -> None:
    """Keep connections open, and open others for those that are closed.

    Args:
        address: Of the server.
        count: How many connections.
        deadline: On the monotonic clock.
        speak: Sends something on a connection, which may be new; returns False if that one is closed.
    """
    open_ones: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        while time.monotonic() < deadline:
            standing = {one: speak(one, False) for one in open_ones}
            for one in open_ones:
                if not standing[one]:
                    one.close()
            open_ones = [one for one in open_ones if standing[one]]
            for _ in range(count - len(open_ones)):
                connection = connected(address)
                if connection is None:
                    break
                connection.setblocking(False)
                stack.callback(connection.close)
                if speak(connection, True):
                    open_ones.append(connection)
            time.sleep(PAUSE_S)
