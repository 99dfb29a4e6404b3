"""Requests that are about all workers: changes reach each of them, now and later, and answers are put together."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from trtnode.protos import LogSettingsRequest
from trtnode.serving.errors import PartlyDoneError, ServingError, UnavailableError, WorkerGoneError
from trtnode.serving.security.authorization import ADMIN_RIGHTS, READING_TOO
from trtnode.serving.security.tokens import Grant
from trtnode.serving.service.rpc_table import messages_of
from trtnode.serving.service.unary_rpcs import change_log
from trtnode.serving.workers.handle import WorkerHandle
from trtnode.serving.workers.merged_answers import COMBINATIONS

logger = logging.getLogger(__name__)

READ_S = 3.0
"""The longest time that workers may take to answer about themselves. Those that take longer are left out."""

_Asked = TypeVar("_Asked")


class Broadcaster:
    """Lets workers join, and hands requests on to those that have."""

    def __init__(self, workers: Callable[[], Iterable[WorkerHandle]]) -> None:
        """Broadcast among workers; ``workers`` returns those that there are now."""
        self._workers = workers
        self._changes = Changes()
        self._joining = threading.Lock()
        self._loading = threading.Lock()

    def joined(self) -> list[WorkerHandle]:
        """Return the workers that take part now."""
        return [worker for worker in self._workers() if worker.joined]

    def join(self, worker: WorkerHandle) -> None:
        """Tell a worker what clients have changed so far, then let it open its ports.

        Raises:
            WorkerGoneError: It ended meanwhile.
            AddressError: A port can't be opened.
        """
        with self._joining:
            for rpc, request, caller in self._changes:
                try:
                    worker.channel.ask("apply", rpc, request, caller).result()
                except WorkerGoneError:
                    raise
                except ServingError as error:
                    logger.warning("Worker %d goes on without an earlier %s: %s", worker.number, rpc, error)
            worker.channel.ask("open").result()
            worker.joined = True

    def read(self, name: str, *arguments: Any) -> dict[int, Any]:
        """Return what each worker answers about itself, by process; those are left out that are late, or have ended.

        Raises:
            ServingError: What all others say.
        """
        asked = {worker.pid: worker.channel.ask(name, *arguments) for worker in self.joined()}
        concurrent.futures.wait(asked.values(), READ_S)
        return _results({pid: answer for pid, answer in asked.items() if answer.done()})

    def broadcast(self, rpc: str, request: bytes, caller: Grant) -> bytes:
        """Answer one of ``BROADCAST_RPCS`` for all workers, in a caller's name.

        Raises:
            PartlyDoneError: Some workers have made a change that others could not make.
            ServingError: What all workers say about the request, or that there is none.
        """
        if rpc in COMBINATIONS:
            parts = map(messages_of(rpc)[1].FromString, self.read("apply", rpc, request, caller).values())
            content: bytes = COMBINATIONS[rpc](list(parts)).SerializeToString()
            return content
        # Two loads at a time could end in another order in each worker.
        with self._loading if rpc == "RepositoryModelLoad" else contextlib.nullcontext():
            return self._change(rpc, request, caller)

    def _change(self, rpc: str, request: bytes, caller: Grant) -> bytes:
        answers: dict[WorkerHandle, Future[bytes]] = {}
        while True:
            with self._joining:
                newcomers = [worker for worker in self.joined() if worker not in answers]
                if not newcomers:
                    return self._conclude(rpc, request, caller, answers)
            answers.update((worker, worker.channel.ask("apply", rpc, request, caller)) for worker in newcomers)
            concurrent.futures.wait(answers.values())

    def _conclude(
        self, rpc: str, request: bytes, caller: Grant, answers: Mapping[WorkerHandle, Future[bytes]]
    ) -> bytes:
        failures = {worker.number: error for worker, error in _failures(answers)}
        done = [worker.number for worker, answer in answers.items() if answer.exception() is None]
        if failures and done:
            raise PartlyDoneError(rpc, done, list(failures), next(iter(failures.values())))
        response: bytes = next(iter(_results(answers).values()))
        message = messages_of(rpc)[0].FromString(request)
        self._changes.record(rpc, message, response, caller)
        if rpc == "LogSettings":
            change_log(message)  # this process writes to the log as well
        return response


def _failures(answers: Mapping[_Asked, Future[Any]]) -> Iterable[tuple[_Asked, ServingError]]:
    """Yield what those say that have not just ended."""
    for asked, answer in answers.items():
        error = answer.exception()
        if isinstance(error, ServingError) and not isinstance(error, WorkerGoneError):
            yield asked, error


def _results(answers: Mapping[_Asked, Future[Any]]) -> dict[_Asked, Any]:
    """Return the answers of those that could give one.

    Raises:
        ServingError: None could.
    """
    results = {asked: answer.result() for asked, answer in answers.items() if answer.exception() is None}
    if not results:
        nobody = UnavailableError("no worker process of the server answers; try later")
        raise next((error for _, error in _failures(answers)), nobody)
    return results


_Thing = tuple[str, str, bytes]


class Changes:
    """The last change of each thing that clients can change, in the order in which they came.

    Each worker that joins later gets them replayed.
    """

    def __init__(self) -> None:
        self._last: dict[_Thing, tuple[str, bytes, Grant]] = {}

    def __iter__(self) -> Iterator[tuple[str, bytes, Grant]]:
        """Yield the RPC, the serialized request and the caller of each."""
        yield from tuple(self._last.values())

    def record(self, rpc: str, request: Any, response: bytes, caller: Grant) -> None:
        """Keep a change that the workers have followed, in place of an older one about the same thing.

        Args:
            rpc: One of ``ADMIN_RIGHTS``.
            request: Its message.
            response: Their answer.
            caller: Owner of regions of shared memory.
        """
        if rpc in READING_TOO and not request.settings:
            return
        if rpc.endswith("SharedMemoryUnregister"):
            self._forget_regions(rpc.replace("Unregister", "Register"), request.name, caller)
            return
        if rpc == "LogSettings":  # the answer has the same form, and tells all that is in effect
            request = LogSettingsRequest.FromString(response)
        thing = _thing(rpc, request, caller)
        self._last.pop(thing, None)
        self._last[thing] = (rpc, request.SerializeToString(), caller)

    def _forget_regions(self, rpc: str, name: str, caller: Grant) -> None:
        own = [thing for thing in self._last if (thing[0], thing[2]) == (rpc, caller.digest)]
        gone = [thing for thing in own if name in ("", thing[1])]
        for thing in gone:
            del self._last[thing]


def _thing(rpc: str, request: Any, caller: Grant) -> _Thing:
    kind = "model" if ADMIN_RIGHTS[rpc] == "repository" else rpc  # a load and an unload are about one thing
    owner = caller.digest if rpc.endswith("SharedMemoryRegister") else b""
    return kind, getattr(request, "model_name", "") or getattr(request, "name", ""), owner
