"""Messages between the supervisor and a worker, over a socket pair."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

from trtnode.serving.errors import ServingError, WorkerGoneError

logger = logging.getLogger(__name__)

_ANSWER = ""
"""Stands for the name of a message that is an answer."""


class Channel:
    """One end of the pair; both ends have the same abilities.

    Only processes of one server hold an end, so sending Python objects is safe.
    """

    def __init__(self, connection: Connection, calls: Mapping[str, Callable[..., Any]]) -> None:
        """Use a connection.

        Args:
            connection: To the other process.
            calls: By name. Notices of the other end are called in order, and must not block; its questions, in a thread
                of its own.
        """
        self._connection = connection
        self._calls = calls
        self._numbers = itertools.count()
        self._open: dict[int, Future[Any]] = {}
        self._gone = False
        self._lock = threading.Lock()
        self._sending = threading.Lock()

    def notify(self, name: str, *arguments: Any) -> None:
        """Send a notice to the other end; it is lost if that end is gone."""
        self._send(name, None, arguments)

    def ask(self, name: str, *arguments: Any) -> Future[Any]:
        """Ask the other end something.

        Returns:
            The answer to come. It fails with a ``ServingError``; with a ``WorkerGoneError`` if the other end is gone.
        """
        future: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            self._open[number] = future
        if self._gone or not self._send(name, number, arguments):
            self._give_up()
        return future

    def follow(self, first_s: float | None = None, silence_s: float | None = None) -> bool:
        """Take messages until the other end closes, then close this one.

        Args:
            first_s: Also end when nothing has come for so long at the start.
            silence_s: Also end when nothing has come for so long since the last message.

        Returns:
            True if the other end has closed, False if its heartbeat timed out.
        """
        limit = first_s
        try:
            while self._hears(limit):
                self._take(*self._connection.recv())
                limit = silence_s
            return False
        except (EOFError, OSError):
            return True
        finally:
            self._give_up()
            with self._sending:
                self._connection.close()

    def _hears(self, silence_s: float | None) -> bool:
        # Twice half the time: when the whole server was suspended, the first wait is over before anybody could speak.
        return silence_s is None or any(self._connection.poll(silence_s / 2) for _ in range(2))

    def _take(self, name: str, number: int | None, content: Any) -> None:
        if name == _ANSWER:
            result, error = content
            assert number is not None, "answers have that of their question"
            with self._lock:
                future = self._open.pop(number)
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        elif number is None:
            self._calls[name](*content)
        else:
            threading.Thread(target=self._answer, args=(name, number, content), name=name, daemon=True).start()

    def _answer(self, name: str, number: int, arguments: tuple[Any, ...]) -> None:
        error: ServingError | None = None
        result: Any = None
        try:
            result = self._calls[name](*arguments)
        except ServingError as failure:
            error = failure
        except Exception as failure:
            logger.exception("%s failed unexpectedly", name)
            error = ServingError(f"unexpected {type(failure).__name__}: {failure}")
        self._send(_ANSWER, number, (result, error))

    def _send(self, *message: Any) -> bool:
        with self._sending:
            try:
                self._connection.send(message)
            except OSError:
                return False
        return True

    def _give_up(self) -> None:
        with self._lock:
            self._gone = True
            unanswered, self._open = self._open, {}
        for future in unanswered.values():
            future.set_exception(WorkerGoneError("the worker process ended before it answered"))
