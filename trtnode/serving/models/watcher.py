"""Follows the files of models while the server runs, and has provisional choices of engines measured again."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from trtnode.serving.errors import UnavailableError
from trtnode.serving.models.served_model import ServedModel
from trtnode.serving.models.version_files import VersionFile

logger = logging.getLogger(__name__)

POLL_S = 0.5
"""Time between looks. What is on disk is loaded once two looks in a row find the same: nobody writes to it any more."""

QUIET_LOAD = 0.25
"""A machine is quiet if so few processes a core have run over the last minute, those that answer requests included."""

PAUSE_S, LONGEST_PAUSE_S = 60.0, 3600.0
"""Time before a provisional choice is measured again. It doubles each time, up to the second. The first one is up to
twice as long, by the process, so that several servers of one machine don't measure together."""


class Watcher:
    """Looks at the models in a thread of its own, and has each model updated in another."""

    def __init__(
        self, models: Callable[[], Iterable[ServedModel]], change: Callable[[str, Callable[[], None]], None]
    ) -> None:
        """Look at nothing yet.

        Args:
            models: Returns those that are described on disk.
            change: Calls what changes a model of this name, once that may be.
        """
        self._models = models
        self._change = change
        self._pauses: dict[str, tuple[float, float]] = {}
        self._seen: dict[str, Mapping[int, VersionFile]] = {}
        self._updates: dict[str, threading.Thread] = {}
        self._closing = threading.Event()

    def start(self) -> None:
        """Begin to look."""
        threading.Thread(target=self._follow, name="watch-models", daemon=True).start()

    def close(self) -> None:
        """Stop looking."""
        self._closing.set()

    def _follow(self) -> None:
        while not self._closing.wait(POLL_S):
            for model in self._models():
                try:
                    if model.config.watch or model.awaits_files:
                        self._look(model)
                    if model.is_provisional():
                        self._await_quiet(model)
                except Exception:  # one model's trouble must not end the watch over the others
                    logger.exception("Looking at the files of model %r failed", model.config.name)

    def _look(self, model: ServedModel) -> None:
        found = model.look()
        settled = found == self._seen.get(model.config.name)
        self._seen[model.config.name] = found
        if settled and model.is_outdated(found) and self._begin(model, model.update):
            logger.info("The files of model %r changed", model.config.name)

    def _await_quiet(self, model: ServedModel) -> None:
        """Measure a model again once nothing else computes, and not too often."""
        now, name = time.monotonic(), model.config.name
        due, pause = self._pauses.setdefault(name, (now + PAUSE_S * (1 + os.getpid() % 64 / 64), PAUSE_S))
        if now >= due and os.getloadavg()[0] <= QUIET_LOAD * (os.cpu_count() or 1):
            pause = min(2 * pause, LONGEST_PAUSE_S)
            self._pauses[name] = (now + pause, pause)
            self._begin(model, model.measure_again)

    def _begin(self, model: ServedModel, change: Callable[[], None]) -> bool:
        """Change a model in a thread; return False if its last change isn't over."""
        before = self._updates.get(model.config.name)
        if before is not None and before.is_alive():
            return False
        thread = threading.Thread(target=self._change_one, args=(model, change), name="update-model", daemon=True)
        self._updates[model.config.name] = thread
        thread.start()
        return True

    def _change_one(self, model: ServedModel, change: Callable[[], None]) -> None:
        try:
            self._change(model.config.name, change)
        except UnavailableError as error:
            logger.debug("Model %r is not updated: %s", model.config.name, error)
        except Exception:  # one model's trouble is its own
            logger.exception("Model %r could not be updated", model.config.name)
