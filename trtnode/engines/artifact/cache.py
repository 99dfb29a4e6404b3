"""The cache of built engines, keyed by everything that decides what would be built now."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import logging
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from trtnode.engines.artifact.cache_folder import PRIVATE, close_to_others, folder_problem
from trtnode.engines.artifact.files import write_atomically
from trtnode.engines.artifact.refusal import Refusal
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.errors import EngineError, OutputFileError
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.model.mapped_weights import map_file

logger = logging.getLogger(__name__)

T = TypeVar("T")

LAYOUT_VERSION = "4"
"""Part of every key. It is raised when a cached verdict no longer means what it meant."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CachedEngine:
    """An engine that was built and checked.

    Attributes:
        envelope: As JSON.
        engine: Its bytes.
        sha256: Their hash. The cache compares them with it when it is asked for them.
    """

    envelope: str
    engine: bytes | memoryview
    sha256: str


def engine_key(**parts: str) -> str:
    """Hash named parts, each of which changes what is built.

    Args:
        **parts: For example the model's hash, options, backend, version, device.
    """
    digest = hashlib.sha256()
    for name, part in sorted({**parts, "layout": LAYOUT_VERSION}.items()):
        part_hash = hashlib.sha256(part.encode()).hexdigest()
        logger.debug("Engine key part %s: %s", name, part_hash[:16])
        digest.update(f"{name}={part_hash}\n".encode())
    return digest.hexdigest()


def _refusal(fields: Mapping[str, Any]) -> Refusal:
    refusal = Refusal(code=ReasonCode(fields["code"]), detail=str(fields["detail"]), divisible=False)
    culprits = tuple((int(place), str(detail), ReasonCode(code)) for place, detail, code in fields["culprits"])
    return dataclasses.replace(refusal, culprits=culprits)


class EngineCache:
    """A folder of engines, which other users can't read. Several processes may share it.

    An entry that is doubtful in any way counts as missing.

    Without a usable folder it is empty and keeps nothing, which the log says once a process.

    Attributes:
        trust: The engines that may run, including those built with this cache.
        directory: The folder; None where nothing is kept.
        max_bytes: Its size.
    """

    def __init__(
        self,
        directory: pathlib.Path | None,
        max_bytes: int,
        *,
        trust: Trust | None = None,
    ) -> None:
        """Use a folder, which is made on the first write. The machine's key is in it.

        Args:
            directory: The folder; None where there is none.
            max_bytes: The least recently used entries are dropped beyond this size.
            trust: The engines that may run, besides those of this machine; None takes the defaults.
        """
        problem = folder_problem(directory)
        if problem:
            _warn_once(
                f"There is no engine cache, so engines are built at each start: {problem}. "
                "Name a folder with --cache, or with cache.dir in servable.yaml."
            )
        self.directory = None if problem else directory
        self.trust = trust or Trust()
        if self.directory is not None:
            self.trust = self.trust.on_machine(self.directory)
            close_to_others(self.directory)
        self.max_bytes = max_bytes
        self._is_warned = False

    def get(self, key: str) -> CachedEngine | Refusal | None:
        """Look an engine up. None if it isn't there, or is damaged."""

        def read(fields: Mapping[str, Any]) -> CachedEngine | Refusal:
            if "refusal" in fields:
                return _refusal(fields["refusal"])
            return CachedEngine(envelope=fields["envelope"], engine=self._content(key, fields), sha256=fields["sha256"])

        return self.recall(key, read)

    def put(self, key: str, entry: CachedEngine | Refusal) -> None:
        """Store an engine or a refusal. A cache that can't be written is a warning, not a failure."""
        if isinstance(entry, Refusal):
            self.put_record(key, {"refusal": {"code": entry.code, "detail": entry.detail, "culprits": entry.culprits}})
        else:
            self.put_record(key, {"envelope": entry.envelope, "sha256": entry.sha256}, engine=entry.engine)

    def get_kernels(self, key: str) -> bytes | None:
        """Look up kernels that a library has compiled. None if they aren't there, or are damaged."""
        return self.recall(key, lambda fields: bytes(self._content(key, fields)))

    def put_kernels(self, key: str, kernels: bytes) -> None:
        """Store kernels. A cache that can't be written is a warning, not a failure."""
        self.put_record(key, {"sha256": hashlib.sha256(kernels).hexdigest()}, engine=kernels)

    def _content(self, key: str, fields: Mapping[str, Any]) -> memoryview:
        """Map the bytes of an entry into memory.

        Raises:
            OSError: They can't be read.
            ValueError: They are damaged.
            KeyError: The entry has none.
        """
        assert self.directory is not None, "without a folder there is no entry"
        content = memoryview(map_file(self.directory / f"{key}.engine"))
        if hashlib.sha256(content).hexdigest() != fields["sha256"]:
            raise ValueError("its sha256 differs")
        return content

    def recall(self, key: str, read: Callable[[Mapping[str, Any]], T]) -> T | None:
        """Return what a function makes of the values that ``put_record`` has stored.

        None if they aren't there, or are damaged, which the log says.
        """
        if self.directory is None:
            return None
        record = self.directory / f"{key}.json"
        try:
            fields = json.loads(record.read_text(encoding="utf-8"))
            with contextlib.suppress(OSError):  # a cache that is only read may still be used
                os.utime(record)
            return read({**fields})
        except FileNotFoundError:
            return None
        except (EngineError, OSError, LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
            logger.warning("%s: ignoring a damaged cache entry (%s)", record, error)
            return None

    def put_record(self, key: str, fields: Mapping[str, Any], *, engine: bytes | memoryview | None = None) -> None:
        """Store plain JSON values. A cache that can't be written is a warning, not a failure."""
        if self.directory is None:
            return
        try:
            self.directory.mkdir(PRIVATE, parents=True, exist_ok=True)
            if engine is not None:
                write_atomically(self.directory / f"{key}.engine", engine, flush=False, mode=0o600)
            write_atomically(self.directory / f"{key}.json", json.dumps(fields).encode(), flush=False, mode=0o600)
            self._evict(self.directory)
        except (OSError, OutputFileError) as error:
            self._warn_of_write(error)

    def content_file(self, key: str) -> pathlib.Path | None:
        """Return the file with the bytes of an entry, which may be missing; None where nothing is kept."""
        return None if self.directory is None else self.directory / f"{key}.engine"

    def timing_file(self, machine: str) -> pathlib.Path | None:
        """Return the file in which builds share what they measured; None where nothing is kept.

        Args:
            machine: The library, its version and the device; measurements hold for no other.
        """
        if self.directory is None:
            return None
        return self.directory / f"{hashlib.sha256(machine.encode()).hexdigest()[:32]}.timing"

    def verdicts(self, key: str) -> dict[str, str]:
        """Return a library's verdicts on nodes by the hash of their key; empty where it was never asked."""
        said = self.recall(key, lambda fields: {str(node): str(text) for node, text in fields["verdicts"].items()})
        return said or {}

    def put_verdicts(self, key: str, said: Mapping[str, str]) -> None:
        """Add to a library's verdicts. A cache that can't be written is a warning, not a failure."""
        self.put_record(key, {"verdicts": {**self.verdicts(key), **said}})

    def _warn_of_write(self, error: Exception) -> None:
        level = logging.DEBUG if self._is_warned else logging.WARNING
        self._is_warned = True
        logger.log(level, "The engine cache %s can't be written: %s", self.directory, error)

    def _evict(self, directory: pathlib.Path) -> None:
        sizes: dict[pathlib.Path, tuple[float, int]] = {}
        for record in directory.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # another process may drop it at the same time
                engine = record.with_suffix(".engine")
                size = record.stat().st_size + (engine.stat().st_size if engine.exists() else 0)
                sizes[record] = (record.stat().st_mtime, size)
        total = 0
        for record, (_, size) in sorted(sizes.items(), key=lambda item: -item[1][0]):
            fits = size <= self.max_bytes  # what never fits takes no room from others
            total += size * fits
            if not fits or total > self.max_bytes:
                record.unlink(missing_ok=True)
                record.with_suffix(".engine").unlink(missing_ok=True)


def recall(cache: EngineCache | None, key: str, read: Callable[[Mapping[str, Any]], T]) -> T | None:
    """Return as ``EngineCache.recall``; None where there is no cache."""
    return None if cache is None else cache.recall(key, read)


@functools.cache
def _warn_once(text: str) -> None:
    logger.warning("%s", text)


@functools.cache
def builder_version() -> str:
    """Return the version of this project."""
    return importlib.metadata.version("trtnode")
