"""The models of a server, by name and version."""

import logging
import threading
from collections.abc import Callable, Iterable

from serving.errors import InvalidRequestError, NotFoundError
from serving.metrics import Metrics
from serving.model_schema import ModelConfig
from serving.servable import Loader, Servable, State

logger = logging.getLogger(__name__)


class ModelRepository:
    """Loads the configured models in a thread of its own and finds them for requests."""

    def __init__(self, models: Iterable[ModelConfig], loader: Loader, metrics: Metrics) -> None:
        self._loader = loader
        self._servables = {model.name: Servable(model, metrics.add_model(model.name, "1")) for model in models}
        self._table = {
            (name, version): servable
            for name, servable in self._servables.items()
            for version in ("", servable.version)
        }
        self._thread: threading.Thread | None = None
        self._closing = False

    def start(self, on_change: Callable[[], None]) -> None:
        """Begin to load; ``on_change`` is called in the loading thread after each model and is the last call."""
        self._thread = threading.Thread(target=self._load_all, args=(on_change,), name="load-models", daemon=True)
        self._thread.start()

    def find(self, name: str, version: str) -> Servable:
        """Return a model version; the empty version is the one that the server prefers.

        Raises:
            InvalidRequestError: The version isn't a number.
            NotFoundError: There is no such model, or no such version of it.
        """
        servable = self._table.get((name, version))
        if servable is not None:
            return servable
        if version and not (version.isascii() and version.isdigit()):
            raise InvalidRequestError(f"model version {version!r} is not a number; leave it empty for the latest")
        if name not in self._servables:
            raise NotFoundError(f"there is no model {name!r}; this server has {', '.join(sorted(self._servables))}")
        known = self._servables[name].version
        if version.lstrip("0") == known:
            return self._servables[name]
        raise NotFoundError(f"model {name!r} has no version {version}; it has {known}")

    def servables(self) -> Iterable[Servable]:
        """All models, whatever their state."""
        return self._servables.values()

    def ready(self) -> bool:
        """Whether every required model is ready."""
        return all(servable.state is State.READY for servable in self._servables.values() if servable.required)

    def failed(self) -> Servable | None:
        """A required model that did not load, if there is one."""
        broken = (s for s in self._servables.values() if s.required and s.state is State.UNAVAILABLE)
        return next(broken, None)

    def close(self, timeout_s: float) -> bool:
        """Free all models, once the one that is loading has finished.

        Returns:
            False if that takes longer than ``timeout_s``; then nothing was freed.
        """
        self._closing = True
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
        for servable in self._servables.values():
            servable.close()
        return True

    def _load_all(self, on_change: Callable[[], None]) -> None:
        for servable in self._servables.values():
            if self._closing or self.failed() is not None:
                return
            servable.load(self._loader)
            on_change()
