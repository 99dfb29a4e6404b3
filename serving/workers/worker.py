"""A worker process: models and the shared gRPC port, led by the supervisor at the other end of a socket pair."""

import dataclasses
import fcntl
import logging
import os
import pathlib
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import prometheus_client

from engines import Executable
from serving import logs
from serving.errors import ServingError
from serving.http_app import HttpApp
from serving.http_front import HttpFront
from serving.loader import engine_loader
from serving.model_schema import ModelConfig
from serving.schema import ServableConfig
from serving.servable import Loader, State
from serving.servicer import messages_of
from serving.station import Station
from serving.workers.channel import Channel

logger = logging.getLogger(__name__)

BEAT_S = 1.0
"""How often a worker gives a sign of life."""
NOT_ALL_READY = "not all workers are ready"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a worker needs to know to begin.

    Attributes:
        number: Its place among the workers, from 0.
        config: What to serve, with the port that all workers share.
        log_level: The lowest level that is logged.
        sockets: The folder for the socket on which it gets HTTP requests.
    """

    number: int
    config: ServableConfig
    log_level: int
    sockets: pathlib.Path


def main(descriptor: int, turn: int) -> None:
    """Work until the supervisor is gone.

    Args:
        descriptor: The socket to the supervisor. ``Orders`` are the first message.
        turn: A file that all workers have open.
    """
    for number in (signal.SIGTERM, signal.SIGINT):  # they may reach all processes; the supervisor says what to do
        signal.signal(number, lambda _number, _frame: None)
    connection = Connection(descriptor)
    orders: Orders = connection.recv()
    logging.basicConfig(level=orders.log_level)
    logs.use_format(orders.config.server.log.format, worker=str(orders.number))
    try:
        Worker(orders, connection, turn).run()
    except ServingError as error:
        logger.error("%s", error)
    else:
        logger.error("The supervisor process is gone, and this one ends with it")
    os._exit(1)  # without waiting for threads at work


class Worker:
    """Serves, and does what the supervisor asks."""

    def __init__(self, orders: Orders, connection: Connection, turn: int) -> None:
        config = orders.config
        self._station = Station(config, in_turn(engine_loader(config), turn), self._spread, orders.number)
        self._station.service.obstacle = NOT_ALL_READY
        app = HttpApp(config, self._station, self._station.front.notes, self._spread)
        self._http = HttpFront(config.server.http, app, behind=socket_of(orders.sockets, os.getpid()))
        self._drained = False
        self._reporting = threading.Lock()
        self._channel = Channel(
            connection,
            notices={"server_ready": self._show_ready, "end": _end},
            calls={
                "open": self._open,
                "apply": self._apply,
                "collect": self._collect,
                "drain": self._drain,
                "close": self._close,
            },
        )

    def run(self) -> None:
        """Work until the supervisor is gone."""
        threading.Thread(target=self._beat, name="beat", daemon=True).start()
        self._station.load(self._report)
        self._channel.follow()

    def _beat(self) -> None:
        while True:
            self._channel.tell("beat", self._station.front.notes())
            time.sleep(BEAT_S)

    def _report(self) -> None:
        service = self._station.service
        with self._reporting:  # so that an older state doesn't come after a newer one
            loads = any(servable.state is State.LOADING for servable in service.index(ready=False))
            self._channel.tell("report", service.models_not_ready(), loads, self._station.failure())
        self._station.show_readiness()

    def _show_ready(self, ready: bool) -> None:
        self._station.service.obstacle = "" if ready else NOT_ALL_READY
        self._station.show_readiness()

    def _spread(self, rpc: str, request: Any) -> Any:
        response: bytes = self._channel.ask("spread", rpc, request.SerializeToString()).result()
        return messages_of(rpc)[1].FromString(response)

    def _open(self) -> None:
        with self._station.cores.kept():
            self._http.start()
        self._station.front.start()

    def _apply(self, rpc: str, request: bytes) -> bytes:
        response = self._station.front.methods[rpc](messages_of(rpc)[0].FromString(request))
        content: bytes = response.SerializeToString()
        return content

    def _collect(self) -> Sequence[prometheus_client.Metric]:
        return list(self._station.metrics.registry.collect())

    def _drain(self, grace_s: float) -> bool:
        self._drained = self._station.drain(grace_s)
        return self._drained

    def _close(self, timeout_s: float) -> None:
        self._station.front.stop(timeout_s)
        self._http.stop()
        self._station.close(self._drained)


def in_turn(load: Loader, turn: int) -> Loader:
    """Return a loader that lets one process at a time load with engines: what one has built, others find in the cache.

    Args:
        load: Loads.
        turn: A file that all the processes have open. The system frees a lock on it when its holder ends.
    """

    def load_in_turn(model: ModelConfig) -> Executable:
        if model.engine == "native":
            return load(model)
        fcntl.lockf(turn, fcntl.LOCK_EX)
        try:
            return load(model)
        finally:
            fcntl.lockf(turn, fcntl.LOCK_UN)

    return load_in_turn


def socket_of(folder: pathlib.Path, pid: int) -> pathlib.Path:
    """Return the socket on which a worker process gets HTTP requests."""
    return folder / str(pid)


def _end() -> None:
    os._exit(0)
