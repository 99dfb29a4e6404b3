"""Loads models whose files nobody has read yet: a process of its own reads, checks and compiles each of them.

This process opens what came out. A file that was loaded before, with the same options, needs no such process: the
engine cache remembers it by its hash.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import threading
import weakref
from collections.abc import Mapping

from engines import CompileOptions, EngineCache, EngineError, Executable, Worker, prepare_model
from engines.artifact.cache import builder_version, engine_key
from engines.artifact.files import hashes_outside, sha256_of_file, write_model
from engines.artifact.temporary_folder import TemporaryFolder
from engines.compile.prepare import PreparedModel, open_prepared, prepare_file
from engines.errors import OutOfMemoryError, WorkerError, WorkerTimeoutError
from engines.onnxruntime.limits import native_version
from engines.runtime.reference_nodes import OpenReference
from partitioner import PartitionError
from serving.errors import ModelLimitError
from serving.models.isolated_reference import IsolatedReference
from serving.models.pipelines import chain_model, has_pipeline
from serving.schema.model import ModelConfig
from serving.schema.server import LimitsConfig
from serving.threads.caller import when_caller_leaves

MIB = 2**20

IDLE_S = 5.0
"""Time that a process waits for the next model."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """A model to prepare.

    Attributes:
        config: How it is served; the path is that of its file.
        options: The same as options of a compilation.
        cache: Place where engines are looked up and kept.
        threads: Threads of each engine and session; None leaves it to the libraries.
    """

    config: ModelConfig
    options: CompileOptions
    cache: EngineCache
    threads: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A model that is prepared, and the files beside its own that hold its data, by their hashes."""

    prepared: PreparedModel
    outside: Mapping[str, str]


class IsolatedLoading:
    """Loads models, each new one in a process that may use so much memory and time."""

    def __init__(self, limits: LimitsConfig) -> None:
        """Start no process yet."""
        self._memory_mb = limits.load_memory_mb or half_of_memory_mb()
        self._timeout_s = limits.load_timeout_s
        self._model_memory_bytes = (limits.model_memory_mb or half_of_memory_mb()) * MIB
        self._reference_timeout_s = limits.reference_timeout_s
        self._idle: Worker | None = None
        self._lock = threading.Lock()

    def load(self, job: LoadJob) -> Executable:
        """Return a model that is ready to run.

        The cores are always shared, with the threads that talk to clients if with nothing else.

        Raises:
            PartitionError: The file is no model, or the configuration doesn't fit it.
            EngineError: The model can't be compiled or loaded.
            ModelLimitError: That takes too much memory or time, or the caller has left.
        """
        path, cache = job.config.path, job.cache
        chained = has_pipeline(job.config)
        rewritten = chained or job.config.approximate
        key = None if rewritten else self._key(job)
        reference = self._reference()
        if key is not None and _is_known(key, job):
            return prepare_model(path, job.options, cache, threads=job.threads, shares_cores=True, reference=reference)
        folder = _new_folder(needed=rewritten)
        place = None if folder is None else folder.path
        with contextlib.ExitStack() as cleaning:
            if folder is not None:
                cleaning.callback(folder.close)
            outcome = self._prepare(job, place)
            source = _chained(job, place) if chained else path
            executable = open_prepared(
                source,
                outcome.prepared,
                cache,
                threads=job.threads,
                shares_cores=True,
                reference=reference if job.options.reference else None,
            )
            if folder is not None and (rewritten or _has_sidecars(place)):
                weakref.finalize(executable, cleaning.pop_all().close)  # it may open them later
        if key is not None:
            cache.put_record(key, {"outside": dict(outcome.outside)})
        return executable

    def _reference(self) -> OpenReference:
        """Return what opens nodes of one model in onnx.reference. Nothing is started before the first one."""

        @functools.cache
        def process() -> IsolatedReference:
            return IsolatedReference(memory_bytes=self._model_memory_bytes, timeout_s=self._reference_timeout_s)

        return lambda model: process().open(model)

    def _key(self, job: LoadJob) -> str | None:
        """Return the key under which the cache remembers a file; None where it can't be read."""
        try:
            digest = sha256_of_file(job.config.path)
        except OSError:
            return None
        parts = {"builder": builder_version(), "native": native_version(), "memory": str(self._memory_mb)}
        return engine_key(kind="loaded", model=digest, options=repr(job.options), **parts)

    def _prepare(self, job: LoadJob, folder: pathlib.Path | None) -> Outcome:
        worker = self._take()
        cancel = _Cancellation(worker)
        when_caller_leaves(cancel.cancel)
        failed = False
        try:
            return worker.call(prepare, self._timeout_s, job, folder)
        except (EngineError, PartitionError) as error:
            failed = isinstance(error, WorkerError)
            problem = self._problem(error, left=cancel.cancelled)
            if problem is None:
                raise
            raise ModelLimitError(job.config.path, problem) from error
        finally:
            cancel.end()
            if failed or cancel.cancelled:
                worker.close()
            else:
                self._give_back(worker)

    def _problem(self, error: Exception, *, left: bool) -> str | None:
        """Return what a load takes that it may not; None if it failed by itself."""
        if left:
            return "longer than its caller waited; load it again"
        if isinstance(error, OutOfMemoryError):
            return f"more than {self._memory_mb} MiB of memory; raise server.limits.load_memory_mb"
        if isinstance(error, WorkerTimeoutError):
            return f"more than {self._timeout_s:g} s; raise server.limits.load_timeout_s"
        return f"its process along ({error})" if isinstance(error, WorkerError) else None

    def _take(self) -> Worker:
        with self._lock:
            worker, self._idle = self._idle, None
        return worker or Worker(memory_bytes=self._memory_mb * MIB)

    def _give_back(self, worker: Worker) -> None:
        """Keep a process for the next load, which often follows at once."""
        with self._lock:
            before, self._idle = self._idle, worker
        if before is not None:
            before.close()
        timer = threading.Timer(IDLE_S, self._end, [worker])
        timer.daemon = True
        timer.start()

    def _end(self, worker: Worker) -> None:
        with self._lock:
            if self._idle is not worker:
                return
            self._idle = None
        worker.close()


class _Cancellation:
    """Kills a worker, unless its work has ended before."""

    def __init__(self, worker: Worker) -> None:
        self.cancelled = False
        self._worker: Worker | None = worker
        self._lock = threading.Lock()

    def cancel(self) -> None:
        with self._lock:
            if self._worker is not None:
                self.cancelled = True  # its call fails, or has just ended
                self._worker.cancel()

    def end(self) -> None:
        with self._lock:
            self._worker = None


def prepare(job: LoadJob, folder: pathlib.Path | None) -> Outcome:
    """Prepare a model in this process, which is a worker; results go to a folder.

    Raises:
        PartitionError: As ``IsolatedLoading.load``.
        EngineError: As ``IsolatedLoading.load``.
    """
    path = job.config.path
    if has_pipeline(job.config):
        path = _chained(job, folder)
        path.parent.mkdir()
        write_model(chain_model(job.config), path)
    prepared = prepare_file(path, job.options, job.cache, folder, threads=job.threads, shares_cores=True)
    return Outcome(prepared=prepared, outside=hashes_outside(path))


def _chained(job: LoadJob, folder: pathlib.Path | None) -> pathlib.Path:
    """Return the place of a model chained with its pipeline."""
    assert folder is not None
    return folder / "chained" / job.config.path.name


def _has_sidecars(folder: pathlib.Path | None) -> bool:
    return folder is not None and sum(1 for _ in folder.iterdir()) > 1


def _new_folder(*, needed: bool) -> TemporaryFolder | None:
    """Return a temporary folder; None where none can be made and a model can do without."""
    try:
        return TemporaryFolder()
    except OSError:
        if needed:
            raise
        return None


def _is_known(key: str, job: LoadJob) -> bool:
    """Return whether the same file, with the same data beside it, was loaded before."""
    record = job.cache.get_record(key)
    if record is None:
        return False
    try:
        return all(
            sha256_of_file(job.config.path.parent / name) == digest for name, digest in record["outside"].items()
        )
    except (OSError, KeyError, AttributeError, TypeError):
        return False


def half_of_memory_mb() -> int:
    """Return half of the machine's memory, in MiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 // MIB
