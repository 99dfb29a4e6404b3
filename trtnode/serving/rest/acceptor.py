"""Accepts connections, as many as may be open.

asyncio's servers accept without a bound. Out of descriptors, they try again two thousand times, and log each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable

from trtnode.serving.rest.bounded_protocol import BoundedProtocol
from trtnode.serving.rest.bounds import Bounds
from trtnode.serving.rest.connection_table import ConnectionTable, Phase
from trtnode.serving.telemetry.logs import OneASecond

logger = logging.getLogger(__name__)
logger.addFilter(OneASecond())

FOR_PROBES = 16
"""Connections beyond the bound while every connection has a request that runs. They may only ask the probes."""
ACCEPTED_AT_ONCE = 16
"""New connections in one round of the event loop. A request needs four rounds to be read, and a flood of connections
must not push it out before."""
RETRY_S = 0.2
"""The time until the next try when there is no descriptor for a connection, and none of ours can be closed for one."""

MakeProtocol = Callable[[bool], BoundedProtocol]
"""Returns the protocol of a new connection, which may be for probes only."""


class Acceptor:
    """Accepts the connections of a listener. uvicorn takes it for a server of asyncio's."""

    def __init__(
        self, listener: socket.socket, bounds: Bounds, table: ConnectionTable, context: ssl.SSLContext | None
    ) -> None:
        """Prepare.

        Args:
            listener: Bound, and kept by the caller until ``close``.
            bounds: Of the port.
            table: The open connections.
            context: Of TLS; None for none.
        """
        self._listener = listener
        self._bounds = bounds
        self._table = table
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[object]] = set()
        self._retry: asyncio.TimerHandle | None = None

    def start(self, make_protocol: MakeProtocol, backlog: int) -> None:
        """Accept from now on."""
        self._make_protocol = make_protocol
        self._listener.setblocking(False)
        self._listener.listen(backlog)
        self._resume()

    def close(self) -> None:
        """Accept no more."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._listener)
        for task in self._connecting:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return at once: nothing goes on after ``close``."""

    def _resume(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(min(ACCEPTED_AT_ONCE, 1 + self._bounds.connections // 8)):
            try:
                client, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._wait_for_descriptor(error)
                return
            self._admit(client)

    def _wait_for_descriptor(self, error: OSError) -> None:
        """Close one of our own connections; the next round of the loop then accepts. Without one to close, wait."""
        logger.warning("No connection can be accepted over HTTP (%s)", error.strerror)
        if not self._table.make_room():
            self._loop.remove_reader(self._listener)
            self._retry = self._loop.call_later(RETRY_S, self._resume)

    def _admit(self, client: socket.socket) -> None:
        most = self._bounds.connections
        is_full = len(self._table) >= most
        if is_full:
            logger.warning("%d HTTP connections are open; the one that lets the server wait longest is closed", most)
        probes_only = is_full and not self._table.make_room()
        if probes_only and len(self._table) >= most + FOR_PROBES:
            client.close()
            return
        protocol = self._make_protocol(probes_only)
        self._table.put(protocol, Phase.HEADER)
        timeout_s = self._bounds.header_timeout_s if self._context else None
        connecting = self._loop.connect_accepted_socket(
            lambda: protocol, client, ssl=self._context, ssl_handshake_timeout=timeout_s
        )
        task: asyncio.Task[object] = self._loop.create_task(connecting)
        protocol.connecting = task
        self._connecting.add(task)
        task.add_done_callback(lambda _: self._connected(task, protocol, client))

    def _connected(self, task: asyncio.Task[object], protocol: BoundedProtocol, client: socket.socket) -> None:
        self._connecting.discard(task)
        if task.cancelled() or task.exception() is not None:  # no TLS, no time, or it gave way
            self._table.remove(protocol)
            with contextlib.suppress(OSError):
                client.close()
