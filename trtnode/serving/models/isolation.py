"""Loads models whose files nobody has read yet: a process of its own reads, checks and compiles each of them.

This process opens what came out. A file that was loaded before, with the same settings, needs no such process: the
engine cache knows it by its hash. What came out of it is kept there, too, where there is room; else it is made
again here, of engines in the cache. The file is opened as a copy that nobody else writes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

from trtnode.engines.artifact.cache import EngineCache, engine_key
from trtnode.engines.artifact.files import sha256_of_file, sha256_of_unchanged, write_model
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.backends.build_environment import machine_parts
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.build.context import BUILDERS
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SpareWorkers, SubprocessWorker
from trtnode.engines.compile.opening import AS_IT_IS, PreparedModel, open_model
from trtnode.engines.compile.prepare import prepare_model, run_options
from trtnode.engines.cores import usable_cores
from trtnode.engines.errors import EngineError, OutOfMemoryError, OutputFileError, WorkerError, WorkerTimeoutError
from trtnode.engines.inputs.source_copies import SourceCopies, held, named_as, needed_beside
from trtnode.engines.model_facts import ModelFacts
from trtnode.engines.precision.options import Calibration
from trtnode.engines.runtime.executor import Executable
from trtnode.engines.tuning.decision import Confidence, is_provisional
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.model.mapped_weights import map_file
from trtnode.serving.errors import ModelLimitError, ServingError
from trtnode.serving.models.interface_check import declared_sizes, file_problem
from trtnode.serving.models.isolated_runs import IsolatedRuns
from trtnode.serving.models.pipelines import chain_model
from trtnode.serving.models.version_files import file_of_step, note_needed
from trtnode.serving.models.warmup import try_once
from trtnode.serving.schema.model import ModelConfig
from trtnode.serving.schema.server import LimitsConfig
from trtnode.serving.text.samples import with_arrays
from trtnode.serving.threads import background
from trtnode.serving.threads.background import is_in_background
from trtnode.serving.threads.caller import when_caller_leaves

MIB = 2**20

UNRELATED_KEYS = frozenset(
    {"name", "path", "versions", "required", "scaling", "latency_target_ms", "preprocess", "text"}
)
"""Keys of a model's section that don't decide what becomes of its file; of preprocess, only tokenizing is left here."""

KEPT_SHARE = 0.5
"""Share of the cache, in use or not, beyond which no compiled files are kept beside their engines."""

IDLE_S = 5.0
"""Time that a process waits for the next model."""

NICENESS = 5
"""Loads stand back behind requests, and still get a quarter of a core that something else keeps busy."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """The file of a model that was read here, by a load or at an earlier start.

    Attributes:
        source: The file, or a copy of it, which nobody writes.
        files: The hashes of the file and of those beside it that it reads, by their place.
        prepared: What is opened of it; None where that was not kept.
    """

    source: pathlib.Path
    files: Mapping[str, str]
    prepared: PreparedModel | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """A model to prepare.

    Attributes:
        config: How it is served; the path is that of its file.
        options: The options of its compilation.
        cache: Place where engines are looked up and kept.
        known: Its file if that was loaded before, and need not be tried; None of any other.
        in_background: True if requests come first, and a choice of engines is measured again at a quiet time.
    """

    config: ModelConfig
    options: CompileOptions
    cache: EngineCache
    known: ReadFile | None = None
    in_background: bool = False


class IsolatedLoading:
    """Loads models, each new one in a process that may use so much memory and time."""

    def __init__(self, limits: LimitsConfig, cache: EngineCache) -> None:
        """Start no process yet.

        Args:
            limits: Memory and time of a load.
            cache: Place of what was loaded before.
        """
        self._cache = cache
        self._limits = limits
        self._memory_mb = limits.load_memory_mb or half_of_memory_mb()
        self._timeout_s = limits.load_timeout_s
        self._model_memory_bytes = (limits.model_memory_mb or half_of_memory_mb()) * MIB
        self._reference_timeout_s = limits.reference_timeout_s
        self._workers = SpareWorkers(functools.partial(self._worker, NICENESS), IDLE_S)
        cores = background.background_cores()
        self._background = SpareWorkers(functools.partial(self._worker, background.NICENESS, cores), IDLE_S)

    def _worker(self, niceness: int, cores: Collection[int] | None = None) -> SubprocessWorker:
        return SubprocessWorker(memory_bytes=self._memory_mb * MIB, niceness=niceness, cores=cores)

    def load(self, config: ModelConfig, threads: int | None) -> Executable:
        """Return a model that is ready to run.

        The cores are always shared, with the threads that talk to clients if with nothing else.

        Raises:
            PartitionError: The file is no model, or the configuration doesn't fit it.
            EngineError: The model can't be compiled or loaded.
            ModelLimitError: That takes too much memory or time, or the caller has left.
        """
        options = dataclasses.replace(
            config.options,
            reference=bool(config.options.reference),
            declared_sizes=declared_sizes(config),
            threads=threads,
            shares_cores=config.options.measures,  # only measurements depend on it
            padded=config.lengths is not None,
        )
        key = None if config.has_pipeline else key_of_loaded(config, self._limits, threads)
        with contextlib.ExitStack() as holding:
            known = None if key is None else self._known(key, config.path, holding)
            if known is not None and len(known.files) > 1:
                note_needed(files_needed(config))  # this process has read them before
            job = LoadJob(
                config=config, options=options, cache=self._cache, known=known, in_background=is_in_background()
            )
            return self._open_kept(job) or self._load_new(key, job)

    def problem(self, config: ModelConfig, threads: int | None) -> str:
        """Return what is wrong with the file of a model, in a process apart; empty of one that was loaded before.

        What that process doesn't survive is left to the load.
        """
        key = key_of_loaded(config, self._limits, threads)
        if key is not None and self._cache.recall(key, lambda record: record) is not None:
            return ""
        with contextlib.suppress(EngineError), self._workers.lent() as worker:
            return worker.call(file_problem, self._timeout_s, config)
        return ""

    def _known(self, key: str, model: pathlib.Path, holding: contextlib.ExitStack) -> ReadFile | None:
        """Return a file that was loaded before, with the same data beside it; None for any other.

        ``holding`` lets go of its copy.
        """

        def read(record: Mapping[str, Any]) -> ReadFile | None:
            beside = {name: digest for name, digest in record["files"].items() if name != model.name}
            if any(sha256_of_file(model.parent / name) != digest for name, digest in beside.items()):
                return None  # the hash of the file itself is in the key
            kept, prepared = record.get("prepared"), None
            if kept is not None:
                compiled = self._cache.content_file(key) if kept["compiled"] else None
                prepared = PreparedModel(compiled=compiled, facts=ModelFacts(**kept["facts"]))
            return ReadFile(source=model, files=record["files"], prepared=prepared)

        known = self._cache.recall(key, read)
        copy = None if known is None else copies_in(self._cache).find(model, known.files)
        if known is None or copy is None:
            return None
        holding.callback(copy.close)
        return dataclasses.replace(known, source=copy.path)

    def _open_kept(self, job: LoadJob) -> Executable | None:
        """Open what a file became when it was loaded before; None where that isn't kept, or has lost an engine."""
        known = job.known
        if known is None or known.prepared is None or known.prepared.facts is None:
            return None
        try:
            executable = self._open(job, known, contextlib.ExitStack())
        except (EngineError, PartitionError):
            return None
        if executable.facts.segments == known.prepared.facts.segments:
            return executable
        executable.close()
        return None

    def _load_new(self, key: str | None, job: LoadJob) -> Executable:
        """Load a model that isn't kept; a process of its own prepares one that was never loaded."""
        began = time.monotonic()
        with contextlib.ExitStack() as closing:
            folder = None
            with contextlib.suppress(OSError):  # without one, most models run natively
                folder = closing.enter_context(TemporaryFolder())
            apart = job.known is None or job.in_background
            read = self._prepare_apart(job, folder) if apart else prepare(job, folder)
            executable = self._open(job, read, closing)
        if time.monotonic() - began > self._timeout_s:
            executable.close()
            raise ModelLimitError(job.config.path, self._too_long)
        lasting = read.prepared is None or read.prepared.lasting
        if key is not None and lasting and not is_provisional(executable.facts.tuning):
            self._keep(key, job.config, read, executable.facts)
        return executable

    def _open(self, job: LoadJob, read: ReadFile, closing: contextlib.ExitStack) -> Executable:
        """Open a prepared model; ``closing`` is left for when it is closed, with what it may read until then."""
        apart = functools.cache(self._isolated_runs)  # nothing is started before the first run
        run = dataclasses.replace(
            run_options(job.options),
            instances=job.config.instances,
            reference=(lambda model: apart().open_reference(model)) if job.options.reference else None,
            apart=lambda file: apart().open_native(file),
        )
        copy = held(job.config.path, read.source, read.files)
        with named_as(job.config.path, read.source):
            executable = open_model(
                read.source,
                self._cache,
                run,
                use_engines=job.options.engine != NATIVE,
                prepared=read.prepared or AS_IT_IS,
            )
        own = None if read.source == job.config.path else read.source
        digest = read.files.get(job.config.path.name, "")
        executable.facts = dataclasses.replace(executable.facts, source=own, sha256=digest)
        if copy is not None:
            closing.callback(copy.close)
        executable.on_close = closing.pop_all().close
        return executable

    def _keep(self, key: str, config: ModelConfig, read: ReadFile, facts: ModelFacts) -> None:
        """Remember a file that was loaded, and what it became, if that is one file for which there is room."""
        compiled = None if read.prepared is None else read.prepared.compiled
        fields: dict[str, Any] = {"files": dict(read.files)}
        content = None
        if not _reads_other_data(config) and (compiled is None or (_is_alone(compiled) and self._has_room(compiled))):
            facts = dataclasses.replace(facts, engines_built=0, source=None)
            fields["prepared"] = {"compiled": compiled is not None, "facts": dataclasses.asdict(facts)}
            content = None if compiled is None else memoryview(map_file(compiled))
        self._cache.put_record(key, fields, engine=content)

    def _has_room(self, compiled: pathlib.Path) -> bool:
        """Return whether a file may be kept, and no engine is in danger of giving way."""
        folder, size = self._cache.directory, compiled.stat().st_size
        with contextlib.suppress(OSError):  # another process may drop an entry
            engines = sum(file.stat().st_size for file in folder.glob("*.engine")) if folder else 0
            return engines + size <= self._cache.max_bytes * KEPT_SHARE
        return False

    @property
    def _too_long(self) -> str:
        return f"more than {self._timeout_s:g} s; raise server.limits.load_timeout_s"

    def _isolated_runs(self) -> IsolatedRuns:
        return IsolatedRuns(memory_bytes=self._model_memory_bytes, timeout_s=self._reference_timeout_s)

    def _prepare_apart(self, job: LoadJob, folder: pathlib.Path | None) -> ReadFile:
        with (self._background if job.in_background else self._workers).lent() as worker:
            cancel = _Cancellation(worker)
            when_caller_leaves(cancel.cancel)
            try:
                note_needed(worker.call(files_needed, self._timeout_s, job.config))
                return worker.call(prepare_next, self._timeout_s, job, folder)
            except (EngineError, PartitionError) as error:
                problem = self._problem(error, left=cancel.cancelled)
                if problem is None:
                    raise
                raise ModelLimitError(job.config.path, problem) from error
            finally:
                cancel.end()

    def _problem(self, error: Exception, *, left: bool) -> str | None:
        """Return what a load takes that it may not; None if it failed by itself."""
        if left:
            return "longer than its caller waited; load it again"
        if isinstance(error, OutOfMemoryError):
            limits = "server.limits.load_memory_mb, or the container's limit if that is lower"
            return f"more than {self._memory_mb} MiB of memory; raise {limits}"
        if isinstance(error, WorkerTimeoutError):
            return self._too_long
        return f"its process along ({error})" if isinstance(error, WorkerError) else None


class _Cancellation:
    """Kills a worker, unless its work has ended before."""

    def __init__(self, worker: SubprocessWorker) -> None:
        self.cancelled = False
        self._worker: SubprocessWorker | None = worker
        self._lock = threading.Lock()

    def cancel(self) -> None:
        with self._lock:
            if self._worker is not None:
                self.cancelled = True  # its call fails, or has just ended
                self._worker.cancel()

    def end(self) -> None:
        with self._lock:
            self._worker = None


def key_of_loaded(config: ModelConfig, limits: LimitsConfig, threads: int | None) -> str | None:
    """Return the key under which the cache remembers a file that was loaded; None where it can't be read."""
    try:
        digest = sha256_of_unchanged(config.path)
    except OSError:
        return None
    settings = repr([(name, value) for name, value in config if name not in UNRELATED_KEYS])
    configured = f"{limits.load_memory_mb} MiB, {threads} threads"  # equal on other machines
    return engine_key(kind="loaded", model=digest, settings=settings, limits=configured, **machine_parts())


def copies_in(cache: EngineCache) -> SourceCopies:
    """Return the copies of model files, whose place is in the engine cache."""
    return SourceCopies(cache.directory, cache.max_bytes)


def files_needed(config: ModelConfig) -> dict[pathlib.Path, dict[str, int]]:
    """Return the files beside each file of a model that it reads, as ``needed_beside`` does."""
    steps = [] if not config.ensemble else [file_of_step(step) for step in config.ensemble]
    paths = [one.path for one in steps if one is not None] if config.ensemble else [config.path]
    return {path: needed_beside(path) for path in paths}


def prepare_next(job: LoadJob, folder: pathlib.Path | None) -> ReadFile:
    """Do what ``prepare`` does, in a process that prepares one model after the other."""
    BUILDERS.idle_s = IDLE_S
    return prepare(job, folder)


def prepare(job: LoadJob, folder: pathlib.Path | None) -> ReadFile:
    """Prepare a model in this process, a worker unless the model is known; results go to a folder.

    Raises:
        PartitionError: As ``IsolatedLoading.load``.
        EngineError: As ``IsolatedLoading.load``.
    """
    if job.config.has_pipeline:
        read = ReadFile(source=_chained(job.config, folder), files={})
    elif job.known is None:
        source, files = copies_in(job.cache).own(job.config.path, folder)
        read = ReadFile(source=source, files=files)
    else:
        read = job.known
    try_out = functools.partial(_run_first, job) if job.known is None else None
    options = job.options if folder is None else with_arrays(job.config, read.source, job.options, folder)
    with named_as(job.config.path, read.source):
        prepared = prepare_model(read.source, options, job.cache, folder, try_out)
    return dataclasses.replace(read, prepared=_as_provisional(prepared) if job.in_background else prepared)


def _as_provisional(prepared: PreparedModel) -> PreparedModel:
    """Return a model whose engines, if they were measured, are measured again."""
    facts = prepared.facts
    if facts is None or facts.tuning is None:
        return prepared
    report = {**(facts.report or {}), "tuning": {**facts.tuning, "confidence": Confidence.PARTIAL}}
    return dataclasses.replace(prepared, facts=dataclasses.replace(facts, report=report))


def _run_first(job: LoadJob, executable: Executable) -> None:
    """Run a model once where its time and memory have a bound; nodes in onnx.reference have bounds of their own."""
    if job.config.warmup and not job.options.reference:
        with contextlib.suppress(ServingError):  # the server says what is wrong
            try_once(executable, job.config)


def _chained(config: ModelConfig, folder: pathlib.Path | None) -> pathlib.Path:
    """Write a model chained with its pipeline."""
    if folder is None:
        raise OutputFileError(config.path, "chained with its pipeline, for which no temporary folder can be made")
    path = folder / "chained" / config.path.name
    path.parent.mkdir()
    write_model(chain_model(config), path)
    return path


def _reads_other_data(config: ModelConfig) -> bool:
    """Return whether samples or functions beside the model decide what becomes of it: the key doesn't know them."""
    options = config.options
    return (options.calibration, options.budget.metric, options.check_inputs) != (Calibration(), None, None)


def _is_alone(compiled: pathlib.Path) -> bool:
    """Return whether a compiled file is all of what was made of a model."""
    return sum(1 for _ in compiled.parent.iterdir()) == 1


def loads_at_a_time(limits: LimitsConfig) -> int:
    """Return how many models may load side by side: one a core, and no more than all of the memory allows."""
    half_mb = half_of_memory_mb()
    return max(1, min(usable_cores().count, 2 * half_mb // (limits.load_memory_mb or half_mb)))


def half_of_memory_mb() -> int:
    """Return half of the machine's memory, in MiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 // MIB
