"""A server of several processes: it starts workers, replaces those that end, and stops them together.

This process runs no model: it holds both ports for its workers. While none of them is there any more, it answers that
the server is live and not ready.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence

from trtnode.engines.errors import SystemLimitError
from trtnode.serving.errors import AddressError, ServingError, WorkerGoneError
from trtnode.serving.rest.server import HttpServer
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.security.authorization import Authorizer
from trtnode.serving.security.exposure_warnings import warn_of_open_ports
from trtnode.serving.security.tls import Certificates
from trtnode.serving.security.tokens import Tokens
from trtnode.serving.service.inference_service import STOPPING
from trtnode.serving.service.stoppable import Stoppable
from trtnode.serving.telemetry.metrics import Metrics
from trtnode.serving.telemetry.prometheus import exposition
from trtnode.serving.workers.broadcast import Broadcaster
from trtnode.serving.workers.handle import WorkerHandle
from trtnode.serving.workers.merged_answers import merge_status
from trtnode.serving.workers.merged_metrics import Families, MergedMetrics
from trtnode.serving.workers.stand_in import StandIn, StandInApp

logger = logging.getLogger(__name__)

STEADY_S = 60.0
"""After so long, a worker's end has nothing to do with that of the worker before."""
MOST_PAUSE_S = 30.0
CLOSE_S = 5.0
"""The longest time that workers may take to close their ports, beyond the time that requests have."""


class Supervisor(Stoppable):
    """A server of several processes, from its configuration to its end."""

    def __init__(self, config: ServableConfig) -> None:
        """Check what workers will read.

        Raises:
            ConfigError: The tokens file can't be used.
            TlsError: The certificates can't be used.
        """
        super().__init__()
        self._config = config
        server = config.server
        for section, tls in (("grpc", server.grpc.tls), ("http", server.http.tls)):
            if tls is not None:
                Certificates(section, tls)
        self._tokens = None if server.auth is None else Tokens(server.auth.tokens_file)
        self._workers: dict[int, WorkerHandle] = {}
        self._broadcaster = Broadcaster(lambda: list(self._workers.values()))
        self._counts = Metrics()
        self._own_metrics = self._counts.registry
        self._metrics = MergedMetrics(self._collect, lambda: len(self._broadcaster.joined()))
        self._stand_in = StandIn()
        self._kept = contextlib.ExitStack()  # the file and the ports, until the end
        self._lock_file = self._kept.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._shown: Sequence[str] = ()
        self._showing = threading.Lock()

    def start(self) -> None:
        """Take both ports, then start the workers in the background. Until they can answer, the server isn't ready.

        Raises:
            AddressError: A port can't be had.
        """
        server = self._config.server
        warn_of_open_ports(server)
        ports = {
            name: section.model_copy(update={"port": self._reserve(name, section.host, section.port)})
            for name, section in (("grpc", server.grpc), ("http", server.http))
        }
        self._config = self._config.model_copy(update={"server": server.model_copy(update=ports)})
        authorizer = Authorizer(server.admin, self._tokens, self._counts)
        app = StandInApp(authorizer, lambda accept: exposition(self._metrics.registry, accept), self._not_ready)
        self._stand_in.server = HttpServer(self._config.server, app, shares_port=True)
        for number in range(server.grpc.workers):
            threading.Thread(target=self._keep, args=(number,), name=f"keep-worker-{number}", daemon=True).start()

    def stop(self, grace_s: float) -> bool:
        """Stop: not ready first, then clients are told to go elsewhere while requests in flight finish, then all end.

        Returns:
            Whether every accepted request was answered within ``grace_s``.
        """
        self._stopping.set()
        self._show_readiness()
        if self._ready.is_set() and self.failure is None:
            time.sleep(self._config.server.shutdown_delay_s)
        stops = [worker.channel.ask("stop", grace_s) for worker in self._broadcaster.joined()]
        concurrent.futures.wait(stops, grace_s + CLOSE_S)
        for worker in list(self._workers.values()):
            worker.kill()
        self._kept.close()
        self.at_rest = True
        return all(stop.done() and stop.exception() is None and stop.result() for stop in stops)

    def _reserve(self, section: str, host: str, port: int) -> int:
        """Bind a port without listening on it, so that no other server gets it while no worker has it open.

        Sockets of the same user may share it from then on if they ask for that (SO_REUSEPORT); the system gives new
        connections to those that listen.

        Returns:
            Its number.

        Raises:
            AddressError: The port can't be had.
        """
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            reserved = self._kept.enter_context(socket.socket(family, socket.SOCK_STREAM))
            # Connections of a server that has just ended are no obstacle here; this socket is one to who comes later.
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(address)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        except OSError as error:
            raise AddressError(section, host, port, error) from None
        return int(reserved.getsockname()[1])

    def _keep(self, number: int) -> None:
        """Have a worker in a place until the server stops."""
        ends, at_once = 0, True
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                worker = self._start(number, at_once=at_once)
            except SystemLimitError as error:
                ends += 1
                logger.error("Worker %d isn't there, which is tried again: %s", number, error)
                self._stopping.wait(_pause_s(ends + 1))
                continue
            reason, how = worker.follow()
            self._show_readiness()
            if self._stopping.is_set():
                return
            self._metrics.end(worker.pid, reason)
            ends = 1 if time.monotonic() - started > STEADY_S else ends + 1
            pause_s = _pause_s(ends)
            logger.error("Worker %d %s; another one starts in %g s", number, how, pause_s)
            self._stopping.wait(pause_s)
            at_once = False

    def _start(self, number: int, *, at_once: bool) -> WorkerHandle:
        """Start a worker.

        Args:
            number: Its place.
            at_once: Whether it opens the ports before its models are loaded. A server that starts has nobody else to
                answer that it is live, as one whose workers have all died; where others are there, this one would only
                refuse requests.
        """
        calls: dict[str, Callable[..., object]] = {
            "beat": lambda *state: self._take_beat(worker, at_once, *state),
            "broadcast": self._broadcaster.broadcast,
            "metrics": lambda accept: exposition(self._metrics.registry, accept),
            "status": lambda grant, since: merge_status(
                [*self._broadcaster.read("facts", grant, since).values()], self._not_ready()
            ),
        }
        log_level = logging.getLogger().level
        worker = WorkerHandle(number, self._config, log_level, self._lock_file.fileno(), calls)
        self._workers[number] = worker
        logger.info("Worker %d is process %d", number, worker.pid)
        return worker

    def _take_beat(
        self, worker: WorkerHandle, at_once: bool, reasons: Sequence[str], loads: bool, failure: ServingError | None
    ) -> None:
        """Follow the state of a worker's models, and let it join when it may."""
        if failure is not None and not worker.settled:
            self._fail(worker, failure)
        worker.settled |= not (reasons or loads or failure)
        if not worker.joins and (at_once or worker.settled or not self._broadcaster.joined()):
            worker.joins = True
            threading.Thread(target=self._join, args=(worker,), name=f"join-{worker.number}", daemon=True).start()
        if reasons != worker.reasons:
            worker.reasons = reasons
            self._show_readiness()

    def _join(self, worker: WorkerHandle) -> None:
        try:
            self._broadcaster.join(worker)
        except WorkerGoneError:
            return
        except ServingError as failure:
            self._fail(worker, failure)
        self._show_readiness()

    def _fail(self, worker: WorkerHandle, failure: ServingError) -> None:
        """End a worker that can't serve; with the server, if that never could."""
        worker.failure = failure
        if self._ready.is_set():
            worker.kill()
        else:
            self._give_up(failure)

    def _not_ready(self) -> list[str]:
        """Return what the server waits for, one line a reason; nothing if it is ready."""
        reasons = [STOPPING] if self._stopping.is_set() else []
        for number in range(self._config.server.grpc.workers):
            worker = self._workers.get(number)
            waits = worker.not_ready() if worker is not None else ["it is starting"]
            reasons += [f"worker {number}: {reason}" for reason in waits]
        return reasons

    def _show_readiness(self) -> None:
        """Follow the workers' states; runs in whatever thread changes them."""
        with self._showing:
            reasons = self._not_ready()
            if reasons != self._shown:
                for worker in list(self._workers.values()):
                    worker.channel.notify("server_not_ready", reasons)
                self._shown = reasons
            self._stand_in.follow(has_workers=bool(self._broadcaster.joined()) or self._stopping.is_set())
            if not (reasons or self._ready.is_set()):
                logger.info("ready on %s:%d", self._config.server.grpc.host, self._config.server.grpc.port)
                self._ready.set()

    def _collect(self) -> dict[int, Families]:
        return {0: list(self._own_metrics.collect()), **self._broadcaster.read("collect")}


def _pause_s(ends: int) -> float:
    """Return how long to wait after so many ends in a row: not at all after the first, then ever longer."""
    return 0.0 if ends == 1 else float(min(MOST_PAUSE_S, 2 ** (ends - 2)))
