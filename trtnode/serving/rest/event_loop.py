"""The event loop of the HTTP port: uvicorn, in the thread that runs it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable

import uvicorn

from trtnode.serving.rest.acceptor import Acceptor
from trtnode.serving.rest.bounded_protocol import BoundedProtocol
from trtnode.serving.rest.bounds import Bounds
from trtnode.serving.rest.connection_table import ConnectionTable
from trtnode.serving.rest.ops import OpsApp, only_probes
from trtnode.serving.telemetry.logs import OneASecond

for library in ("asyncio", "uvicorn.error"):  # clients cause their lines
    logging.getLogger(library).addFilter(OneASecond())

KEEP_ALIVE_S = 75
"""The longest time that a connection may be without a request between two of them; clients keep them for reuse."""
FLUSH_S = 1
"""The longest time that answers already written may take to leave when the port closes."""


class EventLoop(uvicorn.Server):
    """Accepts within bounds, and sleeps until it is asked to stop, instead of looking ten times a second."""

    def __init__(self, app: OpsApp, bounds: Bounds, context: Callable[[], ssl.SSLContext] | None) -> None:
        """Prepare.

        Args:
            app: Answers.
            bounds: Of the port.
            context: Returns that of TLS; None for none.
        """
        config = _config(app, context)
        super().__init__(config)
        self._bounds = bounds
        self._table = ConnectionTable()
        self._probes = only_probes(config.loaded_app)
        self._stop_wanted = asyncio.Event()
        self._loop_known = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the connections of the listeners."""
        await self.lifespan.startup()
        assert sockets, "the port is open before"
        self.servers = []
        for listener in sockets:
            acceptor = Acceptor(listener, self._bounds, self._table, self.config.ssl)
            acceptor.start(self._protocol, self.config.backlog)
            self.servers.append(acceptor)  # type: ignore[arg-type]  # it has what uvicorn calls
        self.started = True

    def _protocol(self, probes_only: bool) -> BoundedProtocol:
        protocol = BoundedProtocol(
            self._bounds,
            self._table,
            probes_only=probes_only,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        if probes_only:
            protocol.app = self._probes
        return protocol

    def ask_to_stop(self) -> None:
        """Let ``run`` return; any thread may call this."""
        self._loop_known.wait()
        assert self._loop is not None, "it is known"
        self._loop.call_soon_threadsafe(self._stop_wanted.set)

    def turn_away(self) -> None:
        """Let each connection end after its next answer; any thread may call this."""
        self._loop_known.wait()
        assert self._loop is not None, "it is known"
        with contextlib.suppress(RuntimeError):  # it has ended, and each connection with it
            self._loop.call_soon_threadsafe(self._table.turn_away)

    async def main_loop(self) -> None:
        """Wait until somebody asks it to stop."""
        self._loop = asyncio.get_running_loop()
        self._loop_known.set()
        await self._stop_wanted.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port. Only where somebody is connected, wait as uvicorn does."""
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
            return
        for one in (*self.servers, *(sockets or ())):
            one.close()


def _config(app: OpsApp, context: Callable[[], ssl.SSLContext] | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app.asgi(),
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # clients cause its warnings
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=FLUSH_S,
        ssl_context_factory=(lambda _config, _default: context()) if context else None,
    )
    config.load()
    return config
