"""One configured model: which of its versions are loaded, and how new ones take the place of old ones."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from trtnode.engines.process_memory import give_back_free_memory
from trtnode.engines.tuning.decision import is_provisional
from trtnode.serving.errors import ModelChangeError
from trtnode.serving.models.overrides import Override
from trtnode.serving.models.servable import Loader, Servable
from trtnode.serving.models.version_files import (
    ONLY_VERSION,
    Fact,
    VersionFile,
    choose_versions,
    find_files,
    with_noted,
)
from trtnode.serving.protocol.wire_signature import MESSAGE_BYTES
from trtnode.serving.schema.model import ModelConfig
from trtnode.serving.sequences.table import SequenceTable
from trtnode.serving.telemetry.metrics import Metrics
from trtnode.serving.telemetry.request_stats import ModelCounts

logger = logging.getLogger(__name__)

CHANGED = "its file changed while it was loaded; load it again when the file is complete"


class ServedModel:
    """The versions of one model.

    ``versions`` is a snapshot that is replaced as a whole, so readers need no lock. Loads of one model must not
    overlap; ``unload`` may come at any time and ends a load under way without its result.

    Attributes:
        config: How to serve it, as configured.
        versions: What requests can ask for, by number in rising order: versions that are ready, that load for the
            first time, and that failed to.
        source: The configuration in effect, with files that a request brought.
        unloaded: Whether it was unloaded on request, and doesn't come back by itself.
        required: False if the server is ready without it: as configured, and from a request to unload it until it is
            loaded again.
        failure: Why the last load of all versions didn't succeed; empty if it did.
        sequences: Those of all its versions.
    """

    def __init__(
        self,
        config: ModelConfig,
        loader: Loader,
        metrics: Metrics,
        on_change: Callable[[], None],
        message_bytes: int = MESSAGE_BYTES,
    ) -> None:
        self.config = config
        self.versions: Mapping[int, Servable] = {}
        self.unloaded = False
        self.required = config.required
        self.failure = ""
        self.sequences = SequenceTable(config.name, config.sequences)
        self._loader = loader
        self._metrics = metrics
        self._on_change = on_change
        self._message_bytes = message_bytes
        self.source = Override(config)
        self._counts: dict[int, ModelCounts] = {}
        self._tried: dict[int, frozenset[Fact]] = {}
        self._former: Mapping[int, Servable] = {}
        self._retiring: list[threading.Thread] = []
        self._ending = False
        self._unloads = 0
        self._lock = threading.Lock()
        for number in choose_versions(config, find_files(config)) or [ONLY_VERSION]:
            self.versions = {**self.versions, number: self._servable(number, config)}

    @property
    def preferred(self) -> Servable | None:
        """The highest version that is ready, else the highest; None if the model is unloaded."""
        servables = list(self.versions.values())
        ready = [servable for servable in servables if servable.is_ready]
        return next(reversed(ready or servables), None)

    @property
    def ready(self) -> bool:
        """True if some version can answer."""
        return any(servable.is_ready for servable in self.versions.values())

    def known(self) -> list[Servable]:
        """Return what can be said about each version that is, or was, loaded, in rising order."""
        return [servable for _, servable in sorted({**self._former, **self.versions}.items())]

    def check_files(self, problem: Callable[[ModelConfig], str]) -> None:
        """Note what is wrong with the files that are about to be loaded."""
        for number, file in self._wanted().items():
            reason = problem(self._at(file))
            if reason:
                self.versions[number].fail(reason)
                self.failure = self.failure or reason

    def counts(self) -> list[ModelCounts]:
        """Return what happened to each version that is, or was, served, in rising order."""
        return [counts for _, counts in sorted(self._counts.items())]

    def load_natively(self) -> None:
        """Load what is configured without engines, to answer until ``load`` has built them."""
        unloads = self._unloads
        for number, file in self._wanted().items():
            interim = self._servable(number, self._at(file), interim=True)
            interim.load(self._loader)
            if interim.is_ready:
                self._counts[number].builds = True
                logger.info(
                    "Model %r version %d answers natively until its engines are built", self.config.name, number
                )
                self._put(number, interim, unloads)

    def load(self, override: Override | None = None) -> None:
        """Load everything that is configured anew, from what is on disk now or from an override.

        Raises:
            ModelChangeError: A version didn't load; where one was ready already, that one still answers.
        """
        with self._lock:
            before, self.source, self.unloaded = self.source, override or Override(self.config), False
            self.sequences.config = self.source.config.sequences
            unloads = self._unloads
        self._tried.clear()
        self._load_changed(unloads)
        self.failure = self._problem()
        self.required = self.required if self.failure else self.config.required
        if not self._wanted():
            self._mark_missing()
        self._on_change()
        if self.failure:
            self.source = before
            raise ModelChangeError(self.config.name, self.failure)

    def look(self) -> dict[int, VersionFile]:
        """Return the versions on disk now."""
        return find_files(self.source.config)

    def is_outdated(self, found: Mapping[int, VersionFile]) -> bool:
        """Return whether ``update`` would change something, as of what ``look`` returned."""
        wanted = choose_versions(self.source.config, found)
        changed = any(self._tried.get(number) != frozenset(file.stamp) for number, file in wanted.items())
        return not self.unloaded and (changed or bool(self._obsolete(wanted, found)))

    def update(self, source: Override | None = None) -> None:
        """Load versions that are new on disk or changed, and retire those that are no longer asked for.

        Args:
            source: What it is served from from now on; None for what it was.
        """
        self.source = source or self.source
        if not self.unloaded:
            self._load_changed(self._unloads)

    def size(self) -> int:
        """Return the bytes of its files on disk."""
        return sum(size for file in self._wanted().values() for _, _, size, _ in file.stamp)

    @property
    def awaits_files(self) -> bool:
        """True if the server can do without the model, and has tried to load no file of it yet."""
        return not self.config.required and not self._tried

    def is_provisional(self) -> bool:
        """Return whether some version's engines were chosen from a noisy measurement."""
        return any(map(_is_provisional, self.versions.values()))

    def measure_again(self) -> None:
        """Load those versions anew, which measures their engines; each answers until its successor is ready."""
        for number, servable in self.versions.items():
            if _is_provisional(servable):
                logger.info("Model %r version %d is measured again: the machine is quiet now", self.config.name, number)
                self._counts[number].repeated_measurements += 1
                self._tried.pop(number, None)
        self.update()

    def unload(self) -> None:
        """Serve no version any more; requests under way finish."""
        with self._lock:
            self._unloads += 1
            self.unloaded = True
            self.required &= self._ending
            for counts in self._counts.values():
                counts.is_outdated = False
            gone, self.versions = self.versions, {}
            self.sequences.end_all()
            self._retire(gone)

    def close(self, timeout_s: float) -> bool:
        """Free everything but what only a garbage collection finds: the server ends.

        Returns:
            False if requests under way take longer than ``timeout_s``.
        """
        self._ending = True
        self.unload()
        for thread in self._retiring:
            thread.join(timeout_s)
        return not any(thread.is_alive() for thread in self._retiring)

    def _problem(self) -> str:
        if self.unloaded:
            return "it was unloaded meanwhile"
        wanted = self._wanted()
        if not wanted:
            return f"there is no version in {self.source.config.path}; check the path"
        reasons = [self.versions[number].reason for number in wanted if number in self.versions]
        return next(filter(None, reasons), "")

    def _mark_missing(self) -> None:
        """Say of versions that aren't there why they aren't loaded."""
        for servable in self.versions.values():
            if not servable.is_ready:
                servable.fail(self.failure)

    def _wanted(self) -> dict[int, VersionFile]:
        return choose_versions(self.source.config, self.look())

    def _at(self, file: VersionFile) -> ModelConfig:
        return file.configured(self.source.config)

    def _servable(self, number: int, config: ModelConfig, *, interim: bool = False) -> Servable:
        if number not in self._counts:
            self._counts[number] = self._metrics.add_model(config.name, str(number))
        return Servable(
            config,
            self._counts[number],
            str(number),
            on_loss=self._show_states,
            message_bytes=self._message_bytes,
            interim=interim,
            files=self.source.files,
        )

    def _load_changed(self, unloads: int) -> None:
        for number, file in reversed(self._wanted().items()):  # the preferred version first
            if self._tried.get(number) != frozenset(file.stamp) and self._unloads == unloads:
                self._tried[number] = frozenset(file.stamp)
                self._load_version(number, file, unloads)
        found = self.look()
        wanted = choose_versions(self.source.config, found)
        with self._lock:
            obsolete = self._obsolete(wanted, found)
            gone = {number: self.versions[number] for number in obsolete}
            self.versions = {number: one for number, one in self.versions.items() if number not in gone}
            self._tried = {number: stamp for number, stamp in self._tried.items() if number in wanted}
            for number in self._counts.keys() - wanted.keys():
                self._counts[number].is_outdated = False
            self._retire(gone)
            self._former = {number: one for number, one in self._former.items() if number in found}

    def _load_version(self, number: int, file: VersionFile, unloads: int) -> None:
        candidate = self._servable(number, self._at(file))
        current = self.versions.get(number)
        if current is None or not current.is_ready:
            self._put(number, candidate, unloads)
        candidate.load(self._loader)
        self._counts[number].builds = False
        self._tried[number] = with_noted(file.stamp)
        if candidate.is_ready and not file.is_part_of(self.look().get(number)):
            self._free(candidate)
            candidate.reason = CHANGED
        self._counts[number].failed_loads += not (candidate.is_ready or candidate.is_incomplete)
        self._counts[number].is_outdated = not candidate.is_ready
        if candidate.is_ready:
            self._put(number, candidate, unloads)
        elif current is not None and current.is_ready:
            current.reason = f"not replaced by what is on disk now: {candidate.reason}"
            logger.warning(
                "Model %r version %d: the previous version keeps serving: %s",
                self.config.name,
                number,
                candidate.reason,
            )
        self._on_change()

    def _put(self, number: int, servable: Servable, unloads: int) -> None:
        """Let a servable answer in place of the one before; not if the model was unloaded since."""
        with self._lock:
            if self._unloads != unloads:
                self._retire({number: servable})
                return
            before = self.versions.get(number)
            self.versions = dict(sorted({**self.versions, number: servable}.items()))
            self._former = {key: one for key, one in self._former.items() if key != number}
            self._retire({number: before} if before not in (None, servable) else {})

    def _obsolete(self, wanted: Iterable[int], found: Iterable[int]) -> list[int]:
        """Return the versions to retire: never the last that is ready, and none that stands in for one that failed.

        Where there is nothing to serve, those that are listed say so.
        """
        if not list(wanted):
            return []
        ready = [number for number, one in self.versions.items() if one.is_ready]
        surplus = [number for number in self.versions if number not in wanted]
        if not set(wanted) <= set(ready):
            surplus = [number for number in surplus if number not in found]
        return surplus if set(ready) - set(surplus) else [number for number in surplus if number not in ready]

    def _retire(self, gone: Mapping[int, Servable | None]) -> None:
        """Follow a new snapshot: tell the readers, then free what it lacks, once that is idle."""
        replaced = {number: one for number, one in gone.items() if one is not None}
        self._former = {**self._former, **{n: one for n, one in replaced.items() if n not in self.versions}}
        self._show_states()
        self._retiring = [thread for thread in self._retiring if thread.is_alive()]
        for servable in replaced.values():
            self.sequences.retire(servable)
            thread = threading.Thread(target=self._free, args=(servable,), name="retire-model", daemon=True)
            thread.start()
            self._retiring.append(thread)

    def _free(self, servable: Servable) -> None:
        servable.retire()
        if not self._ending:
            give_back_free_memory()  # Python might not look for garbage among old objects for hours

    def _show_states(self) -> None:
        """Tell the readers which versions are ready."""
        versions = self.versions
        for number, counts in list(self._counts.items()):  # at once: a load in another thread may add a version
            counts.ready = number in versions and versions[number].is_ready
        self._on_change()


def _is_provisional(servable: Servable) -> bool:
    return servable.is_ready and servable.facts is not None and is_provisional(servable.facts.tuning)
