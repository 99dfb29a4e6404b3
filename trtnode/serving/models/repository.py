"""The models of a server, by name and version."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from trtnode.engines.process_memory import give_back_free_pages
from trtnode.partitioner.wording import some_of
from trtnode.serving.errors import ConfigError, InvalidRequestError, ModelChangeError, NotFoundError, UnavailableError
from trtnode.serving.models.isolation import loads_at_a_time
from trtnode.serving.models.overrides import Override, added_model, read_override
from trtnode.serving.models.servable import CheckingLoader, Loader, Servable
from trtnode.serving.models.served_model import ServedModel
from trtnode.serving.models.watcher import Watcher
from trtnode.serving.schema.model import ModelConfig
from trtnode.serving.schema.server import ModelSource, ServerConfig
from trtnode.serving.sequences.table import SequenceTable
from trtnode.serving.telemetry.metrics import Metrics
from trtnode.serving.threads.background import in_background

PATIENCE_S = 60.0
"""Time after which a load that still runs keeps no other one waiting."""
MOST_LATE = 3
"""Most such loads at a time."""
LOOK_S = 0.5
MOST_ADDED = 256
"""Models from requests that servable.yaml doesn't have, with those that are unloaded again: counts of each are kept."""

Load = tuple[ServedModel, Callable[[], None]]
"""A model, and what loads it."""


class Turns:
    """Tells loads when to begin: so many at a time. An endless one holds up no other.

    Those of one model never overlap.
    """

    def __init__(self, at_a_time: int) -> None:
        self._at_a_time = at_a_time
        self._began: dict[str, float] = {}
        self._changed = threading.Condition()

    def begin(self, model: str, at_a_time: int | None = None) -> None:
        """Wait until a model may load, at most as one of ``at_a_time``; ``end`` has to follow."""
        most = at_a_time or self._at_a_time
        with self._changed:
            while not self._may_begin(model, most):
                self._changed.wait(LOOK_S)
            self._began[model] = time.monotonic()

    def end(self, model: str) -> None:
        """Let others begin."""
        with self._changed:
            del self._began[model]
            self._changed.notify_all()

    @contextlib.contextmanager
    def taken(self, model: str) -> Iterator[None]:
        """Wait until a model may load, and let others wait while the block runs."""
        self.begin(model)
        try:
            yield
        finally:
            self.end(model)

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no model loads; return False if that takes longer than ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._began, timeout_s)

    def _may_begin(self, model: str, most: int) -> bool:
        late = time.monotonic() - PATIENCE_S
        recent = sum(began >= late for began in self._began.values())
        return model not in self._began and recent < most and len(self._began) < most + MOST_LATE


class ModelRepository:
    """Loads the configured models in a thread of its own, follows their changes, and finds them for requests."""

    def __init__(
        self,
        models: Iterable[ModelConfig],
        loader: Loader,
        metrics: Metrics,
        server: ServerConfig | None = None,
        source: ModelSource | None = None,
    ) -> None:
        server = server or ServerConfig()
        self._is_native_first = server.startup == "native"
        self._server = server
        self._source = source
        self._loader = loader
        self._metrics = metrics
        self._on_change: Callable[[], None] = lambda: None
        self._table: Mapping[tuple[str, str], Servable] = {}
        self._sequences: Mapping[str, SequenceTable] = {}
        self._models: Mapping[str, ServedModel] = {}
        self._message_bytes = server.grpc.max_message_mb << 20
        self._models = {model.name: self._served(model) for model in models}
        self._configured = frozenset(self._models)
        self._watcher = Watcher(self._watched, self._follow_files)
        self._starting: threading.Thread | None = None
        self._is_checking = False
        self._closing = threading.Event()
        self._turns = Turns(loads_at_a_time(server.limits))
        self._adding = threading.Lock()
        self._publishing = threading.Lock()
        self._publish()

    def start(self, on_change: Callable[[], None]) -> None:
        """Begin to load; ``on_change`` is called after each change, in whatever thread makes it."""
        self._on_change = on_change
        self._starting = threading.Thread(target=self._load_all, name="load-models", daemon=True)
        self._starting.start()

    def find(self, name: str, version: str) -> Servable:
        """Return a model version; the empty version is the highest that is ready.

        Raises:
            InvalidRequestError: The version isn't a number.
            NotFoundError: There is no such model, or no such version of it.
        """
        servable = self._table.get((name, version))
        if servable is not None:
            return servable
        if version and not (version.isascii() and version.isdigit()):
            raise InvalidRequestError(f"model version {version!r} is not a number; leave it empty for the latest")
        if name not in self._models:
            raise NotFoundError(self._no_model(name))
        servable = self._table.get((name, version.lstrip("0"))) if version.strip("0") else None
        if servable is not None:
            return servable
        known = self._models[name].versions
        if not known:
            raise NotFoundError(
                f"Request for unknown model: {name!r} has no available versions; load it, or ask another server"
            )
        raise NotFoundError(
            f"Request for unknown model: {name!r} version {version} is not found; it has {', '.join(map(str, known))}"
        )

    def sequences(self, name: str) -> SequenceTable | None:
        """Return the sequences of a model; None for one without state, and for an unknown one."""
        return self._sequences.get(name)

    def models(self) -> Iterable[ServedModel]:
        """All models, whatever their state."""
        return self._models.values()

    def known(self) -> list[Servable]:
        """Return every version that is or was loaded."""
        return [servable for model in self._models.values() for servable in model.known()]

    def model(self, name: str) -> ServedModel:
        """Return a model, whatever its state.

        Raises:
            NotFoundError: There is no such model.
        """
        if name not in self._models:
            raise NotFoundError(self._no_model(name))
        return self._models[name]

    def instances(self) -> int:
        """Return how many requests all versions that are served may run at the same time."""
        return sum(servable.instances for model in self._models.values() for servable in model.versions.values())

    def ready(self) -> bool:
        """Return whether every required model has a version that is ready."""
        return all(model.ready for model in self._models.values() if model.required)

    def failed(self) -> list[ServedModel]:
        """Return the required models of which no version could be loaded, once all files have been looked at."""
        return (
            []
            if self._is_checking
            else [one for one in self._models.values() if one.required and not one.ready and one.failure]
        )

    def load(self, name: str, settings: str | None, contents: Mapping[str, bytes]) -> None:
        """Load a model anew and let it take the place of what is loaded; wait for the end.

        A model that isn't configured can be loaded from files that come with the request, and only from these.

        Args:
            name: The model's.
            settings: JSON with settings that differ from the configured ones; None for none.
            contents: Files to serve instead of those on disk, by ``file:<version>/<path>``.

        Raises:
            InvalidRequestError: The settings, the name of a file or that of a new model are at fault.
            ModelChangeError: There is no such model and no file of it, or it can't be loaded.
            UnavailableError: The server is stopping.
        """
        described = self._described(name)
        if name not in (self._configured | described.keys()) and not contents:
            raise ModelChangeError(name, self._no_model(name))
        before = self._models[name].config if name in self._models else added_model(name)
        config = described.pop(name, before)
        override = None if settings is None else read_override(config, settings, contents)
        for member in described.values():
            if member.name not in self._models or self._models[member.name].unloaded:
                self._load_described(Override(member))
        if config is not before or name in self._configured:
            self._load_described(override or Override(config), config)
            self._update_ensembles(name)
        elif override is not None:
            self._with_turn(name, functools.partial(self._load_added, override))

    def not_loaded(self) -> list[str]:
        """Return the models that could be loaded, and never were."""
        return [name for name in (self._source.names() if self._source else ()) if name not in self._models]

    def _described(self, name: str) -> dict[str, ModelConfig]:
        """Return a model as its own files describe it now, with those that it runs; nothing where there are none."""
        try:
            found = () if self._source is None else self._source.read([name], self._server)
        except ConfigError as error:
            raise ModelChangeError(name, str(error)) from None
        described = {one.name: one for one in found}
        return described if name in described else {}

    def _load_described(self, source: Override, config: ModelConfig | None = None) -> None:
        """Load a model from its place on disk, and keep how it is described there; one may be new."""
        name = source.config.name
        source = self._with_members(source)
        load = self._load_added if name not in self._models else self._models[name].load
        self._with_turn(name, functools.partial(load, source))
        self._models[name].config = config or source.config
        self._configured |= {name}

    def _with_members(self, source: Override) -> Override:
        """Return the source of a model; of an ensemble, its models are as they are served now."""
        names = {step.model for step in source.config.ensemble}
        members = {name: self._models[name].source for name in names if name in self._models}
        if not members:
            return source
        config = source.config.with_members({name: one.config for name, one in members.items()})
        return Override(config, (source.files, *(one.files for one in members.values())))

    def _update_ensembles(self, name: str) -> None:
        """Load anew what changed of the ensembles that a model is a part of."""
        for model in self._models.values():
            if any(step.model == name for step in model.config.ensemble):
                source = self._with_members(model.source)
                self._with_turn(model.config.name, functools.partial(model.update, source))
                self._update_ensembles(model.config.name)

    def _follow_files(self, name: str, change: Callable[[], None]) -> None:
        self._with_turn(name, change)
        self._update_ensembles(name)

    def _watched(self) -> list[ServedModel]:
        return [model for name, model in self._models.items() if name in self._configured]

    def _served(self, config: ModelConfig) -> ServedModel:
        return ServedModel(config, self._loader, self._metrics, self._changed, self._message_bytes)

    def _load_added(self, override: Override) -> None:
        """Load a model that servable.yaml doesn't have. One that never could be loaded leaves no trace."""
        name = override.config.name
        if name in self._models:
            self._models[name].load(override)
            return
        with self._adding:
            if override.files and len(self._models) - len(self._configured) >= MOST_ADDED:
                raise ModelChangeError(name, f"{MOST_ADDED} models that servable.yaml doesn't have are the most")
            model = self._served(override.config)
            self._models = {**self._models, name: model}
        try:
            model.load(override)
        except BaseException:
            with self._adding:
                self._models = {key: one for key, one in self._models.items() if one is not model}
            self._metrics.remove_model(name)
            self._changed()
            raise

    def unload(self, name: str) -> None:
        """Serve a model no longer, without waiting for requests under way; an unknown one isn't served anyway."""
        if name in self._models:
            self._models[name].unload()

    def close(self, timeout_s: float) -> bool:
        """Free all models, once the one that is loading has finished.

        Returns:
            False if that takes longer than ``timeout_s``; then not all was freed.
        """
        self._closing.set()
        self._watcher.close()
        if not self._turns.wait_idle(timeout_s):
            return False
        closed = [model.close(timeout_s) for model in self._models.values()]
        give_back_free_pages()
        return all(closed)

    def _find_faults(self) -> None:
        """Let all models fail at once whose files can't be served. The load of a single model tells of its own."""
        required = [model for model in self._models.values() if model.required]
        if isinstance(self._loader, CheckingLoader) and len(required) > 1:
            self._is_checking = True
            for model in required:
                model.check_files(self._loader.problem)
            self._is_checking = False
            if self.failed():
                self._changed()

    def _load_all(self) -> None:
        self._find_faults()
        models = sorted(self._models.values(), key=ServedModel.size)
        early = [model for model in models if self._is_native_first and _builds(model)]
        at_once = [model for model in models if model not in early]
        first: list[Load] = [(model, model.load_natively) for model in early]
        self._load_each(first + [(model, functools.partial(_load_first, model)) for model in at_once])
        self._load_each([(model, functools.partial(_load_behind_requests, model)) for model in early], at_a_time=1)
        self._watcher.start()

    def _load_each(self, loads: Iterable[Load], at_a_time: int | None = None) -> None:
        """Begin to load each model in its turn, and wait for the last ones."""
        threads = []
        for model, load in loads:
            self._turns.begin(model.config.name, at_a_time)
            threads.append(
                threading.Thread(target=self._load_in_turn, args=(model, load), name="load-model", daemon=True)
            )
            threads[-1].start()
        until = time.monotonic() + PATIENCE_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _load_in_turn(self, model: ServedModel, load: Callable[[], None]) -> None:
        try:
            if not (self._closing.is_set() or self.failed()):
                load()
        finally:
            self._turns.end(model.config.name)

    def _with_turn(self, name: str, change: Callable[[], None]) -> None:
        with self._turns.taken(name):
            if self._closing.is_set():
                raise UnavailableError("the server is stopping; it loads no model any more")
            change()

    def _changed(self) -> None:
        self._publish()
        self._on_change()

    def _publish(self) -> None:
        """Replace the table that requests read; the lock keeps an older one from replacing a newer one."""
        with self._publishing:
            table: dict[tuple[str, str], Servable] = {}
            for name, model in self._models.items():
                table.update({(name, str(number)): servable for number, servable in model.versions.items()})
                preferred = model.preferred
                if preferred is not None:
                    table[name, ""] = preferred
            stateful = (model for model in self._models.values() if model.source.config.state is not None)
            self._sequences = {model.config.name: model.sequences for model in stateful}
            self._table = table

    def _no_model(self, name: str) -> str:
        return f"Request for unknown model: {name[:255]!r} is not found; this server has {some_of(self._models)}"


def _builds(model: ServedModel) -> bool:
    """Return whether loading the model may take the time to build engines."""
    return model.config.options.engine != "native"


def _load_behind_requests(model: ServedModel) -> None:
    """Build the engines of a model that answers natively."""
    with in_background():
        _load_first(model)


def _load_first(model: ServedModel) -> None:
    """Load a model at the start. What goes wrong is logged and kept as its failure."""
    with contextlib.suppress(ModelChangeError):
        model.load()
