"""Requests that are about all workers: changes reach each of them, now and later, and answers are put together."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future

from trtnode.serving.errors import PartlyDoneError, ServingError, UnavailableError, WorkerGoneError
from trtnode.serving.service.rpc_table import messages_of
from trtnode.serving.service.settings_rpcs import answer_log_settings
from trtnode.serving.workers.handle import WorkerHandle
from trtnode.serving.workers.merged_rpcs import COMBINATIONS
from trtnode.serving.workers.replay_log import Changes

logger = logging.getLogger(__name__)

READ_S = 3.0
"""The longest time that workers may take to answer about themselves. Those that take longer are left out."""

Answers = Mapping[WorkerHandle, "Future[bytes]"]
"""Answers of workers, which may still come."""


class Broadcaster:
    """Lets workers join, and hands requests on to those that have."""

    def __init__(self, workers: Callable[[], Iterable[WorkerHandle]]) -> None:
        """Broadcast among workers; ``workers`` returns those that there are now."""
        self._workers = workers
        self._changes = Changes()
        self._joining = threading.Lock()
        self._loading = threading.Lock()

    def join(self, worker: WorkerHandle) -> None:
        """Tell a worker what clients have changed so far, then let it open its port.

        Raises:
            WorkerGoneError: It ended meanwhile.
            AddressError: The port can't be opened.
        """
        with self._joining:
            for rpc, request in self._changes:
                try:
                    worker.channel.ask("apply", rpc, request).result()
                except WorkerGoneError:
                    raise
                except ServingError as error:
                    logger.warning("Worker %d goes on without an earlier %s: %s", worker.number, rpc, error)
            worker.channel.ask("open").result()
            worker.joined = True

    def broadcast(self, rpc: str, request: bytes) -> bytes:
        """Answer one of ``BROADCAST_RPCS`` for all workers.

        Raises:
            PartlyDoneError: Some workers have made a change that others could not make.
            ServingError: What all workers say about the request, or that there is none.
        """
        if rpc in COMBINATIONS:
            return self._combine(rpc, request)
        # Two loads at a time could end in another order in each worker.
        with self._loading if rpc == "RepositoryModelLoad" else contextlib.nullcontext():
            return self._change(rpc, request)

    def _combine(self, rpc: str, request: bytes) -> bytes:
        answers = {worker: worker.channel.ask("apply", rpc, request) for worker in self._joined()}
        concurrent.futures.wait(answers.values(), READ_S)
        parts = _results({worker: answer for worker, answer in answers.items() if answer.done()})
        content: bytes = COMBINATIONS[rpc]([messages_of(rpc)[1].FromString(part) for part in parts]).SerializeToString()
        return content

    def _change(self, rpc: str, request: bytes) -> bytes:
        answers: dict[WorkerHandle, Future[bytes]] = {}
        while True:
            with self._joining:
                newcomers = [worker for worker in self._joined() if worker not in answers]
                if not newcomers:
                    return self._conclude(rpc, request, answers)
            answers.update((worker, worker.channel.ask("apply", rpc, request)) for worker in newcomers)
            concurrent.futures.wait(answers.values())

    def _conclude(self, rpc: str, request: bytes, answers: Answers) -> bytes:
        failures = {worker.number: error for worker, error in _failures(answers)}
        done = [worker.number for worker, answer in answers.items() if answer.exception() is None]
        if failures and done:
            raise PartlyDoneError(rpc, done, list(failures), next(iter(failures.values())))
        response = _results(answers)[0]
        message = messages_of(rpc)[0].FromString(request)
        self._changes.record(rpc, message, response)
        if rpc == "LogSettings":
            answer_log_settings(message)  # this process writes to the log as well
        return response

    def _joined(self) -> list[WorkerHandle]:
        return [worker for worker in self._workers() if worker.joined]


def _failures(answers: Answers) -> Iterable[tuple[WorkerHandle, ServingError]]:
    """Yield what workers say that have not just ended."""
    for worker, answer in answers.items():
        error = answer.exception()
        if isinstance(error, ServingError) and not isinstance(error, WorkerGoneError):
            yield worker, error


def _results(answers: Answers) -> Sequence[bytes]:
    """Return the answers of the workers that could give one.

    Raises:
        ServingError: None could.
    """
    results = [answer.result() for answer in answers.values() if answer.exception() is None]
    if not results:
        raise next((error for _, error in _failures(answers)), _no_worker())
    return results


def _no_worker() -> UnavailableError:
    return UnavailableError("no worker process of the server answers; try later")
