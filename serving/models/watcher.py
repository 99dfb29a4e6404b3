"""Follows the files of models while the server runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from trtnode.serving.errors import UnavailableError
from trtnode.serving.models.served_model import ServedModel
from trtnode.serving.models.version_files import VersionFile

logger = logging.getLogger(__name__)

POLL_S = 0.5
"""Time between looks. What is on disk is loaded once two looks in a row find the same: nobody writes to it any more."""


class Watcher:
    """Looks at the models' files in a thread of its own, and has each model updated in another."""

    def __init__(self, models: Iterable[ServedModel], update: Callable[[ServedModel], None]) -> None:
        self._models = tuple(models)
        self._update = update
        self._seen: dict[str, Mapping[int, VersionFile]] = {}
        self._updates: dict[str, threading.Thread] = {}
        self._closing = threading.Event()

    def start(self) -> None:
        """Begin to look, if there is anything to look at."""
        if self._models:
            threading.Thread(target=self._follow, name="watch-models", daemon=True).start()

    def close(self) -> None:
        """Stop looking."""
        self._closing.set()

    def _follow(self) -> None:
        while not self._closing.wait(POLL_S):
            for model in self._models:
                try:
                    self._look(model)
                except Exception:  # one model's trouble must not end the watch over the others
                    logger.exception("Looking at the files of model %r failed", model.config.name)

    def _look(self, model: ServedModel) -> None:
        found = model.look()
        settled = found == self._seen.get(model.config.name)
        self._seen[model.config.name] = found
        if settled and model.is_outdated(found):
            name = model.config.name
            before = self._updates.get(name)
            if before is None or not before.is_alive():
                logger.info("The files of model %r changed", name)
                self._updates[name] = threading.Thread(
                    target=self._update_one, args=(model,), name="update-model", daemon=True
                )
                self._updates[name].start()

    def _update_one(self, model: ServedModel) -> None:
        try:
            self._update(model)
        except UnavailableError as error:
            logger.debug("Model %r is not updated: %s", model.config.name, error)
        except Exception:  # one model's trouble is its own
            logger.exception("Model %r could not be updated", model.config.name)
