"""Clients that send a failed request again once, after a second, and count."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType

import grpc
import numpy as np

from trtnode.bench.server_process import inference_request
from trtnode.protos import ModelInferRequest, ModelInferResponse
from trtnode.serving.service.rpc_table import SERVICE_NAME

TIMEOUT_S = 60.0
"""As long as a client waits for an answer."""
RETRY_S = 1.0


@dataclasses.dataclass(slots=True)
class Tally:
    """Requests, and their outcomes.

    Attributes:
        sent: Their number.
        failed: By status code, those whose first attempt failed.
        lost: The errors of those whose second attempt failed too.
        slowest_s: The longest time of one, with its second attempt.
    """

    sent: int = 0
    failed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    lost: list[str] = dataclasses.field(default_factory=list)
    slowest_s: float = 0.0


class Callers:
    """Threads that each send a request, wait for the answer, pause, and go on.

    Attributes:
        tally: What became of the requests so far.
    """

    def __init__(
        self, port: int, model: str, feeds: Mapping[str, np.ndarray], *, threads: int, pause_s: float, least: int
    ) -> None:
        """Prepare.

        Args:
            port: Of a server on this machine.
            model: Its model.
            feeds: Its inputs.
            threads: The number of clients, each with a connection of its own.
            pause_s: Between an answer and the next request.
            least: Requests of all threads together that are sent in any case.
        """
        self.tally = Tally()
        self._port = port
        self._request = inference_request(model, feeds)
        self._least = least
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads = self._clients(threads, pause_s, lambda: self._over.is_set() and self.tally.sent >= self._least)

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End once the least number is sent."""
        if error is not None:
            self._least = 0
        self._over.set()
        for thread in self._threads:
            thread.join()

    @contextlib.contextmanager
    def crowd(self, threads: int) -> Iterator[None]:
        """Have more clients meanwhile, which don't pause."""
        over = threading.Event()
        clients = self._clients(threads, 0, over.is_set)
        for client in clients:
            client.start()
        try:
            yield
        finally:
            over.set()
            for client in clients:
                client.join()

    def wait_for(self, number: int) -> None:
        """Wait until so many more are sent."""
        goal = self.tally.sent + number
        while self.tally.sent < goal:
            time.sleep(0.05)

    def _clients(self, number: int, pause_s: float, over: Callable[[], bool]) -> list[threading.Thread]:
        return [threading.Thread(target=self._call, args=(pause_s, over), daemon=True) for _ in range(number)]

    def _call(self, pause_s: float, over: Callable[[], bool]) -> None:
        with grpc.insecure_channel(
            f"127.0.0.1:{self._port}", options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            infer = channel.unary_unary(
                f"/{SERVICE_NAME}/ModelInfer",
                request_serializer=ModelInferRequest.SerializeToString,
                response_deserializer=ModelInferResponse.FromString,
            )
            while not over():
                self._send(infer)
                time.sleep(pause_s)

    def _send(self, infer: grpc.UnaryUnaryMultiCallable) -> None:
        began, errors = time.monotonic(), []
        for attempt in range(2):
            try:
                infer(self._request, timeout=TIMEOUT_S)
                break
            except grpc.RpcError as error:
                errors.append(f"{error.code().name}: {error.details()}")
                if attempt == 0:
                    time.sleep(RETRY_S)
        with self._lock:
            self.tally.sent += 1
            self.tally.slowest_s = max(self.tally.slowest_s, time.monotonic() - began)
            if errors:
                self.tally.failed[errors[0].partition(":")[0]] += 1
            if len(errors) == 2:
                self.tally.lost.append(" / then ".join(errors))
