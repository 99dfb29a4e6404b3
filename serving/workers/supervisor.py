"""A server of several processes: it starts workers, replaces those that end, and stops them together.

This process runs no model: it holds the gRPC port for its workers, and hands them on what comes to the HTTP port.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import pathlib
import socket
import tempfile
import threading
import time
from concurrent.futures import Future
from typing import Any

from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.errors import ProcessStartError
from trtnode.serving.errors import AddressError, ServingError, WorkerGoneError
from trtnode.serving.grpc.port_check import check_port
from trtnode.serving.rest.server import HttpServer
from trtnode.serving.schema.server import GrpcConfig, ServableConfig
from trtnode.serving.security.authorization import Authorizer
from trtnode.serving.security.exposure_warnings import warn_of_open_ports
from trtnode.serving.security.tls import Certificates
from trtnode.serving.security.tokens import Tokens
from trtnode.serving.service.inference_service import STOPPING
from trtnode.serving.telemetry.metrics import Metrics
from trtnode.serving.workers.broadcast import Broadcaster
from trtnode.serving.workers.handle import WorkerHandle
from trtnode.serving.workers.http_proxy import HttpProxy
from trtnode.serving.workers.merged_metrics import Families, MergedMetrics
from trtnode.serving.workers.worker import WorkerConfig, socket_of

logger = logging.getLogger(__name__)

STEADY_S = 60.0
"""After so long, a worker's end has nothing to do with that of the worker before."""
MOST_PAUSE_S = 30.0
COLLECT_S = 2.0
"""The longest time that workers may take to send their metrics. Those that take longer count as of the last time."""
CLOSE_S = 5.0
"""The longest time that workers may take to close beyond the time that requests have."""


class Supervisor:
    """One server, from its configuration to its end. Starts and stops once.

    Attributes:
        failure: Why the server can't go on; None while it can.
        at_rest: Whether it has stopped and no thread of it is at work.
    """

    def __init__(self, config: ServableConfig) -> None:
        """Check what workers will read.

        Raises:
            ConfigError: The tokens file can't be used.
            TlsError: The certificates can't be used.
        """
        self.failure: ServingError | None = None
        self.at_rest = False
        self._config = config
        auth, tls = config.server.auth, config.server.grpc.tls
        if tls is not None:
            Certificates("grpc", tls)
        own = Metrics()
        authorizer = Authorizer(config.server.admin, Tokens(auth.tokens_file) if auth else None, own)
        self._own_registry = own.registry
        self._workers: dict[int, WorkerHandle] = {}
        self._broadcaster = Broadcaster(lambda: list(self._workers.values()))
        self._metrics = MergedMetrics(self._collect, lambda: len(self._joined()))
        self._lock_file = tempfile.TemporaryFile()  # noqa: SIM115  (until the end)
        self._sockets = TemporaryFolder()
        self._reserved: socket.socket | None = None
        app = HttpProxy(
            authorizer,
            registry=lambda: self._metrics.registry,
            not_ready=self.not_ready,
            notes=self._notes,
            workers=lambda: [socket_of(self._folder, worker.pid) for worker in self._joined()],
            max_bytes=config.server.grpc.max_message_mb << 20,
        )
        self._http = HttpServer(config.server, lambda: app)
        self._stop_wanted = threading.Event()
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._shown_ready = False
        self._showing = threading.Lock()

    @property
    def port(self) -> int:
        """The gRPC port, once started."""
        assert self._reserved is not None, "start() reserves it"
        return int(self._reserved.getsockname()[1])

    @property
    def _folder(self) -> pathlib.Path:
        return self._sockets.path

    def start(self) -> None:
        """Take both ports, then start the workers in the background. Until they can answer, the server isn't ready.

        Raises:
            AddressError: A port can't be had.
        """
        server = self._config.server
        warn_of_open_ports(server)
        self._reserved = reserve(server.grpc)
        self._http.start()
        grpc = server.grpc.model_copy(update={"port": self.port})
        config = self._config.model_copy(update={"server": server.model_copy(update={"grpc": grpc})})
        for number in range(grpc.workers):
            name = f"keep-worker-{number}"
            threading.Thread(target=self._keep, args=(number, config), name=name, daemon=True).start()

    def ask_to_stop(self) -> None:
        """Let ``wait_for_stop`` return."""
        self._stop_wanted.set()

    def wait_for_stop(self) -> None:
        """Wait until somebody asks the server to stop, or it can't go on."""
        self._stop_wanted.wait()

    def not_ready(self) -> list[str]:
        """Return what the server waits for, one line a reason; nothing if it is ready."""
        reasons = [STOPPING] if self._stopping.is_set() else []
        for number in range(self._config.server.grpc.workers):
            worker = self._workers.get(number)
            waits = worker.not_ready() if worker is not None else ["it is starting"]
            reasons += [f"worker {number}: {reason}" for reason in waits]
        return reasons

    def stop(self, grace_s: float) -> bool:
        """Stop: not ready first, then requests in flight finish while new ones are refused, then the workers end.

        Returns:
            Whether every accepted request was answered within ``grace_s``.
        """
        deadline = time.monotonic() + grace_s
        self._stopping.set()
        self._show_readiness()
        workers = [worker for worker in self._workers.values() if worker.end is None]
        joined = [worker for worker in workers if worker.joined]
        drains = [worker.channel.ask("drain", grace_s) for worker in joined]
        outcomes = [_drained(drain, deadline) for drain in drains]
        left_s = max(0.0, deadline - time.monotonic())
        concurrent.futures.wait([worker.channel.ask("close", left_s) for worker in joined], left_s + CLOSE_S)
        for worker in workers:
            worker.finish()
        self._http.stop()
        if self._reserved is not None:
            self._reserved.close()
        self._lock_file.close()
        self._sockets.close()
        self.at_rest = True
        return all(outcomes)

    def _keep(self, number: int, config: ServableConfig) -> None:
        """Have a worker in a place until the server stops."""
        ends, at_once = 0, True
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                worker = self._start(number, config)
            except ProcessStartError as error:
                ends += 1
                logger.error("Worker %d isn't there, which is tried again: %s", number, error)
                self._stopping.wait(_pause_s(ends + 1))
                continue
            reason, how = self._look_after(worker, at_once=at_once)
            if self._stopping.is_set():
                return
            self._metrics.end(worker.pid, reason)
            ends = 1 if time.monotonic() - started > STEADY_S else ends + 1
            pause_s = _pause_s(ends)
            logger.error("Worker %d %s; another one starts in %g s", number, how, pause_s)
            self._stopping.wait(pause_s)
            at_once = False

    def _start(self, number: int, config: ServableConfig) -> WorkerHandle:
        level = logging.getLogger().level
        worker_config = WorkerConfig(number=number, config=config, log_level=level, sockets=self._folder)
        calls = {"broadcast": self._broadcaster.broadcast}
        worker = WorkerHandle(worker_config, self._lock_file.fileno(), calls, self._show_readiness)
        self._workers[number] = worker
        logger.info("Worker %d is process %d", number, worker.pid)
        return worker

    def _look_after(self, worker: WorkerHandle, *, at_once: bool) -> tuple[str, str]:
        """Let a worker join, and return why and how it ended.

        Args:
            worker: It has just started.
            at_once: Whether it opens the port before its models are loaded. A server that starts has nobody else to
                answer that it is live; later, the other workers are there, and this one would only refuse requests.
        """
        try:
            if at_once:
                self._broadcaster.join(worker)
            if worker.wait_settled() and not at_once:
                self._broadcaster.join(worker)
        except WorkerGoneError:
            pass
        except ServingError as error:
            worker.failure = error
        self._show_readiness()
        if worker.failure is not None:
            self._end_failed(worker, worker.failure)
        reason, how = worker.wait_ended()
        return (reason, how) if worker.failure is None else ("failed", f"can't serve: {worker.failure}")

    def _end_failed(self, worker: WorkerHandle, failure: ServingError) -> None:
        """End a worker that can't serve, and the server with it if that never could."""
        if self._ready.is_set():
            worker.kill()
        else:
            self.failure = failure
            self._stop_wanted.set()

    def _show_readiness(self) -> None:
        """Follow the workers' states; runs in whatever thread changes them."""
        with self._showing:
            ready = not self.not_ready()
            if ready != self._shown_ready:
                for worker in list(self._workers.values()):
                    worker.channel.tell("server_ready", ready)
                self._shown_ready = ready
            if ready and not self._ready.is_set():
                logger.info("ready on %s:%d", self._config.server.grpc.host, self.port)
                self._ready.set()

    def _joined(self) -> list[WorkerHandle]:
        return [worker for worker in list(self._workers.values()) if worker.joined]

    def _collect(self) -> dict[int, Families]:
        asked = {worker.pid: worker.channel.ask("collect") for worker in self._joined()}
        concurrent.futures.wait(asked.values(), COLLECT_S)
        answers = {pid: one.result() for pid, one in asked.items() if one.done() and one.exception() is None}
        return {0: list(self._own_registry.collect()), **answers}

    def _notes(self) -> list[str]:
        """Return what an operator should mend though the server can work."""
        return list(dict.fromkeys(note for worker in self._joined() for note in worker.notes))


def _pause_s(ends: int) -> float:
    """Return how long to wait after so many ends in a row: not at all after the first, then ever longer."""
    return 0.0 if ends == 1 else float(min(MOST_PAUSE_S, 2 ** (ends - 2)))


def _drained(drain: Future[Any], deadline: float) -> bool:
    try:
        return bool(drain.result(max(0.0, deadline - time.monotonic()) + CLOSE_S))
    except (ServingError, TimeoutError):
        return False


def reserve(config: GrpcConfig) -> socket.socket:
    """Bind the port without listening on it, so that no other server gets it while no worker has it open.

    Returns:
        The socket, to be kept until the end. Sockets of the same user may share its port if they ask for that
        (SO_REUSEPORT); the system gives new connections to those that listen.

    Raises:
        AddressError: The port can't be had.
    """
    with contextlib.ExitStack() as stack:
        try:
            check_port(config.host, config.port)
            family, *_, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
            reserved = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            # Connections of a server that has just ended are no obstacle here; this socket is one to who comes later.
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            reserved.bind(address)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        except OSError as error:
            raise AddressError("grpc", config.host, config.port, error) from None
        stack.pop_all()
    return reserved
