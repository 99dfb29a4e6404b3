"""A worker process: models behind the shared ports, led by the supervisor at the other end of a socket pair.

A file lock decides which worker builds. Workers load models with engines one at a time, at start, at reload and on
watched changes; the others find the engines in the cache. Every worker inherits the locked file and the system frees
the lock, so it can't outlive its holder. Workers that start together open the ports at once, because probes need an
answer. A replacement opens them once its models are loaded and it has replayed the clients' changes.
"""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import logging
import os
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from trtnode.engines.process_memory import keep_free_memory
from trtnode.partitioner.model.garbage import freeze
from trtnode.serving.errors import ServingError
from trtnode.serving.executables.interface import ServedExecutable
from trtnode.serving.grpc.server import GrpcServer
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.models.servable import CheckingLoader, Loader, State
from trtnode.serving.pages.status_page import server_facts
from trtnode.serving.rest.app import HttpApp
from trtnode.serving.rest.server import HttpServer
from trtnode.serving.schema.model import ModelConfig
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.security.tokens import Grant
from trtnode.serving.service.host import ModelHost
from trtnode.serving.service.inference_service import STOPPING
from trtnode.serving.service.rpc_table import messages_of
from trtnode.serving.telemetry import logs
from trtnode.serving.workers.channel import Channel

logger = logging.getLogger(__name__)

BEAT_S = 1.0
"""The interval of heartbeats."""


def main(descriptor: int, lock_file: int) -> None:
    """Work until the supervisor is gone.

    Args:
        descriptor: The socket to the supervisor. The first message is this worker's place, what it serves with the
            ports that all workers share, and the lowest level that it logs.
        lock_file: A file that all workers have open.
    """
    for received in (signal.SIGTERM, signal.SIGINT):  # they may reach all processes; the supervisor says what to do
        signal.signal(received, lambda _number, _frame: None)
    keep_free_memory()
    connection = Connection(descriptor)
    number, config, log_level = connection.recv()
    logging.basicConfig(level=log_level)
    logs.use_format(config.server.log.format, worker=str(number))
    try:
        Worker(number, config, connection, lock_file).run()
    except ServingError as error:
        logger.error("%s", error)
    else:
        logger.error("The supervisor process is gone, and this one ends with it")
    os._exit(1)  # without waiting for threads at work


class Worker:
    """Serves, and does what the supervisor asks."""

    def __init__(self, number: int, config: ServableConfig, connection: Connection, lock_file: int) -> None:
        loader = in_turn(engine_loader(config), lock_file)
        self._host = host = ModelHost(config, loader, self._broadcast, number)
        host.service.not_ready_reasons = ["not all workers are ready"]
        self._grpc = GrpcServer(config.server, host)
        host.show_ready = self._grpc.show_ready
        app = HttpApp(
            config,
            host,
            notes=lambda: [*self._grpc.notes(), *self._http.notes()],
            metrics=lambda accept: self._channel.ask("metrics", accept).result(),
            facts=lambda grant, since: self._channel.ask("status", grant, since).result(),
        )
        self._http: HttpServer = HttpServer(config.server, app, shares_port=True)
        self._changed = threading.Event()
        self._channel: Channel = Channel(
            connection,
            {
                "server_not_ready": self._show_readiness,
                "open": self._open,
                "apply": self._apply,
                "collect": lambda: list(host.metrics.registry.collect()),
                "facts": functools.partial(server_facts, host.service),
                "stop": self._stop,
            },
        )

    def run(self) -> None:
        """Work until the supervisor is gone."""
        freeze()  # modules stay: looking for garbage among them would hold up requests
        self._host.load(self._models_changed)
        threading.Thread(target=self._beat, name="beat", daemon=True).start()
        self._channel.follow()

    def _beat(self) -> None:
        """Tell the state of the models: each second, and when it changes."""
        service, loads = self._host.service, True
        while True:
            self._channel.notify("beat", service.models_not_ready(), loads, self._host.failure())
            if self._changed.wait(BEAT_S):
                self._changed.clear()
                loads = any(servable.state is State.LOADING for servable in service.repository.known())

    def _models_changed(self) -> None:
        self._changed.set()
        self._host.update_readiness()

    def _show_readiness(self, reasons: Sequence[str]) -> None:
        self._host.service.not_ready_reasons = reasons
        self._host.update_readiness()
        if STOPPING in reasons:
            self._http.turn_away()

    def _broadcast(self, rpc: str, request: Any, caller: Grant) -> Any:
        response: bytes = self._channel.ask("broadcast", rpc, request.SerializeToString(), caller).result()
        return messages_of(rpc)[1].FromString(response)

    def _open(self) -> None:
        with self._host.cores.kept():
            self._http.start()
        self._grpc.start()

    def _apply(self, rpc: str, request: bytes, caller: Grant) -> bytes:
        response = self._host.rpcs.methods[rpc](messages_of(rpc)[0].FromString(request), caller)
        content: bytes = response.SerializeToString()
        return content

    def _stop(self, grace_s: float) -> bool:
        deadline = time.monotonic() + grace_s
        drained = self._host.drain(grace_s, self._grpc.turn_away)
        self._grpc.stop(max(0.0, deadline - time.monotonic()))
        self._http.stop()
        self._host.close(drained)
        return drained


def in_turn(load: Loader, lock_file: int) -> Loader:
    """Return a loader that lets one process at a time load with engines, or variants.

    What one has built and measured, the others find in the cache.

    Args:
        load: Loads.
        lock_file: A file that all the processes have open. The system frees a lock on it when its holder ends.
    """
    one_thread = threading.Lock()  # the lock of the file is that of the process

    def load_in_turn(model: ModelConfig) -> ServedExecutable:
        if model.options.engine == "native" and not model.variants:
            return load(model)
        with one_thread:
            fcntl.lockf(lock_file, fcntl.LOCK_EX)
            try:
                return load(model)
            finally:
                fcntl.lockf(lock_file, fcntl.LOCK_UN)

    return dataclasses.replace(load, load=load_in_turn) if isinstance(load, CheckingLoader) else load_in_turn
