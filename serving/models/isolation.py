"""Loads models whose files nobody has read yet: a process of its own reads, checks and compiles each of them.

This process opens what came out. A file that was loaded before, with the same settings, needs no such process: the
engine cache knows it by its hash. What came out of a small one is kept there too, so that nothing is compiled again.
The file is opened as a copy that nobody else writes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any

from trtnode.engines.artifact.cache import EngineCache, engine_key
from trtnode.engines.artifact.files import sha256_of_file, write_model
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.backends.build_environment import machine_parts
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.prepare import prepare_file, prepare_model
from trtnode.engines.compile.prepared import PreparedModel, open_prepared
from trtnode.engines.errors import EngineError, OutOfMemoryError, WorkerError, WorkerTimeoutError
from trtnode.engines.inputs.source_copies import SourceCopies, SourceCopy, held, named_as
from trtnode.engines.model_facts import ModelFacts
from trtnode.engines.precision.options import Calibration
from trtnode.engines.runtime.executor import Executable
from trtnode.engines.runtime.options import RunOptions
from trtnode.engines.tuning.decision import is_provisional
from trtnode.partitioner.errors import PartitionError
from trtnode.serving.errors import ModelLimitError, ServingError
from trtnode.serving.models.interface_check import declared_sizes
from trtnode.serving.models.isolated_runs import IsolatedRuns
from trtnode.serving.models.pipelines import chain_model
from trtnode.serving.models.warmup import try_once
from trtnode.serving.schema.model import ModelConfig
from trtnode.serving.schema.server import LimitsConfig
from trtnode.serving.threads.caller import when_caller_leaves

MIB = 2**20

UNRELATED_KEYS = frozenset({"name", "path", "versions", "required", "scaling", "latency_target_ms"})
"""Keys of a model's section that don't decide what becomes of its file."""

KEPT_BYTES = 64 * MIB
"""Largest compiled file that is kept; a larger one takes longer to read than its engines to find."""

IDLE_S = 5.0
"""Time that a process waits for the next model."""

NICENESS = 5
"""Loads stand back behind requests, and still get a quarter of a core that something else keeps busy."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """A model to prepare.

    Attributes:
        config: How it is served; the path is that of its file.
        options: The options of its compilation.
        cache: Place where engines are looked up and kept.
        copies: Place of the copies of model files.
        threads: Threads of each engine and session; None leaves it to the libraries.
    """

    config: ModelConfig
    options: CompileOptions
    cache: EngineCache
    copies: SourceCopies
    threads: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A model that is prepared.

    Attributes:
        prepared: The model.
        source: Its file, or a copy of it, which nobody writes.
        files: The hashes of the file and of those beside it that it reads, by their place.
    """

    prepared: PreparedModel
    source: pathlib.Path
    files: Mapping[str, str]


class IsolatedLoading:
    """Loads models, each new one in a process that may use so much memory and time."""

    def __init__(self, limits: LimitsConfig, cache: EngineCache) -> None:
        """Start no process yet.

        Args:
            limits: Memory and time of a load.
            cache: Place of what was loaded before.
        """
        self._cache = cache
        self._copies = SourceCopies(cache.directory, cache.max_bytes)
        self._limits = limits
        self._memory_mb = limits.load_memory_mb or half_of_memory_mb()
        self._timeout_s = limits.load_timeout_s
        self._model_memory_bytes = (limits.model_memory_mb or half_of_memory_mb()) * MIB
        self._reference_timeout_s = limits.reference_timeout_s
        self._idle: SubprocessWorker | None = None
        self._lock = threading.Lock()

    def load(self, config: ModelConfig, threads: int | None) -> Executable:
        """Return a model that is ready to run.

        The cores are always shared, with the threads that talk to clients if with nothing else.

        Raises:
            PartitionError: The file is no model, or the configuration doesn't fit it.
            EngineError: The model can't be compiled or loaded.
            ModelLimitError: That takes too much memory or time, or the caller has left.
        """
        began = time.monotonic()
        options = dataclasses.replace(
            config.options, reference=bool(config.options.reference), declared_sizes=declared_sizes(config)
        )
        key = None if config.has_pipeline else key_of_loaded(config, self._limits, threads)
        record = None if key is None else self._record(key, config)
        apart = functools.cache(self._isolated_runs)  # nothing is started before the first run
        run = RunOptions(
            threads=threads,
            instances=config.instances,
            shares_cores=True,
            reference=lambda model: apart().open_reference(model),
            apart=lambda file: apart().open_native(file),
        )
        job = LoadJob(config=config, options=options, cache=self._cache, copies=self._copies, threads=threads)
        source = None if record is None else self._known_source(config.path, record["files"])
        if key is None or record is None or source is None:
            return self._in_time(began, config, self._load_new(key, job, run))
        with named_as(config.path, source.path):
            executable = self._open_kept(key, record, job, source.path, run)
            executable = executable or prepare_model(source.path, options, self._cache, run)
        return _holding(executable, source)

    def _in_time(self, began: float, config: ModelConfig, executable: Executable) -> Executable:
        if time.monotonic() - began > self._timeout_s:
            executable.close()
            raise ModelLimitError(config.path, self._too_long)
        return executable

    def _known_source(self, model: pathlib.Path, files: Mapping[str, str]) -> SourceCopy | None:
        """Return the copy of a model that was loaded before; None where there is no room for it, or its files change.

        Raises:
            CopyError: They changed while they were copied.
        """
        try:
            source = self._copies.find(model, files) or self._copies.take(model, files, None)
        except OSError:
            return None
        return source if source.files == files else None

    def _load_new(self, key: str | None, job: LoadJob, run: RunOptions) -> Executable:
        """Load a model that a process of its own has read before."""
        cache, chained = self._cache, job.config.has_pipeline
        folder = _new_folder(needed=chained)
        place = None if folder is None else folder.path
        with contextlib.ExitStack() as cleaning:
            if folder is not None:
                cleaning.callback(folder.close)
            outcome = self._prepare(job, place)
            source = held(job.config.path, outcome.source, outcome.files)
            with named_as(job.config.path, outcome.source):
                executable = open_prepared(outcome.source, outcome.prepared, cache, _allowed(run, job.options))
            stays = place is not None and (_has_sidecars(place) or outcome.source.is_relative_to(place))
            if stays:
                weakref.finalize(executable, cleaning.pop_all().close)  # it may open them later
            if key is not None and not is_provisional(outcome.prepared.facts.tuning):
                self._keep(key, outcome, executable, whole=not (stays or _reads_other_data(job.config)))
        return executable if source is None else _holding(executable, source)

    @property
    def _too_long(self) -> str:
        return f"more than {self._timeout_s:g} s; raise server.limits.load_timeout_s"

    def _open_kept(
        self, key: str, record: Mapping[str, Any], job: LoadJob, source: pathlib.Path, run: RunOptions
    ) -> Executable | None:
        """Open what a file became when it was loaded before; None where that isn't kept, or doesn't fit any more."""
        try:
            kept = record["prepared"]
            compiled = self._cache.content_file(key) if kept["compiled"] else None
            facts = ModelFacts(**kept["facts"])
            prepared = PreparedModel(**{**kept, "compiled": compiled, "facts": facts})
            executable = open_prepared(source, prepared, self._cache, _allowed(run, job.config.options))
        except (KeyError, TypeError, EngineError, PartitionError):
            return None
        if executable.facts.segments != record["segments"]:
            executable.close()
            return None
        return executable

    def _keep(self, key: str, outcome: Outcome, executable: Executable, *, whole: bool) -> None:
        """Remember a file that was loaded, and what it became, if that is one small file."""
        fields: dict[str, Any] = {"files": dict(outcome.files)}
        compiled = outcome.prepared.compiled
        if whole and (compiled is None or compiled.stat().st_size <= KEPT_BYTES):
            facts = dataclasses.replace(outcome.prepared.facts, engines_built=0)
            prepared = dataclasses.asdict(dataclasses.replace(outcome.prepared, facts=facts))
            fields["prepared"] = {**prepared, "compiled": compiled is not None}
            fields["segments"] = executable.facts.segments
        content = compiled.read_bytes() if compiled is not None and "prepared" in fields else None
        self._cache.put_record(key, fields, engine=content)

    def _isolated_runs(self) -> IsolatedRuns:
        return IsolatedRuns(memory_bytes=self._model_memory_bytes, timeout_s=self._reference_timeout_s)

    def _record(self, key: str, config: ModelConfig) -> Mapping[str, Any] | None:
        """Return what is known of a file that was loaded before, with the same data beside it; None of any other."""

        def read(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
            beside = {name: digest for name, digest in record["files"].items() if name != config.path.name}
            same = all(sha256_of_file(config.path.parent / name) == digest for name, digest in beside.items())
            return record if same else None  # the hash of the file itself is in the key

        return self._cache.recall(key, read)

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
            return self._too_long
        return f"its process along ({error})" if isinstance(error, WorkerError) else None

    def _take(self) -> SubprocessWorker:
        with self._lock:
            worker, self._idle = self._idle, None
        return worker or SubprocessWorker(memory_bytes=self._memory_mb * MIB, niceness=NICENESS)

    def _give_back(self, worker: SubprocessWorker) -> None:
        """Keep a process for the next load, which often follows at once."""
        with self._lock:
            before, self._idle = self._idle, worker
        if before is not None:
            before.close()
        timer = threading.Timer(IDLE_S, self._end, [worker])
        timer.daemon = True
        timer.start()

    def _end(self, worker: SubprocessWorker) -> None:
        with self._lock:
            if self._idle is not worker:
                return
            self._idle = None
        worker.close()


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
        digest = sha256_of_file(config.path)
    except OSError:
        return None
    settings = repr([(name, value) for name, value in config if name not in UNRELATED_KEYS])
    configured = f"{limits.load_memory_mb} MiB, {threads} threads"  # equal on other machines
    return engine_key(kind="loaded", model=digest, settings=settings, limits=configured, **machine_parts())


def prepare(job: LoadJob, folder: pathlib.Path | None) -> Outcome:
    """Prepare a model in this process, which is a worker; results go to a folder.

    Raises:
        PartitionError: As ``IsolatedLoading.load``.
        EngineError: As ``IsolatedLoading.load``.
    """
    if job.config.has_pipeline:
        path = _chained(job, folder)
        path.parent.mkdir()
        write_model(chain_model(job.config), path)
        return _prepared(job, path, {}, folder)
    path, files = job.copies.own(job.config.path, folder)
    with named_as(job.config.path, path):
        return _prepared(job, path, files, folder)


def _prepared(job: LoadJob, path: pathlib.Path, files: Mapping[str, str], folder: pathlib.Path | None) -> Outcome:
    prepared = prepare_file(path, job.options, job.cache, folder, RunOptions(threads=job.threads, shares_cores=True))
    if job.config.warmup:
        _run_first(job, path, prepared)
    return Outcome(prepared=prepared, source=path, files=files)


def _holding(executable: Executable, source: SourceCopy) -> Executable:
    """Keep the copy of a model until its executable is closed, which may open it later."""
    executable.facts = dataclasses.replace(executable.facts, source=source.path)
    executable.on_close = source.close
    return executable


def _run_first(job: LoadJob, path: pathlib.Path, prepared: PreparedModel) -> None:
    """Run a model once where its time and memory have a bound; nodes in onnx.reference have bounds of their own."""
    if job.options.reference:
        return
    run = RunOptions(threads=job.threads, shares_cores=True, reference=None)
    executable = open_prepared(path, prepared, job.cache, run)
    with contextlib.closing(executable), contextlib.suppress(ServingError):  # the server says what is wrong
        try_once(executable, job.config)


def _allowed(run: RunOptions, options: CompileOptions) -> RunOptions:
    """Return options without onnx.reference where a model's own don't ask for it."""
    return run if options.reference else dataclasses.replace(run, reference=None)


def _chained(job: LoadJob, folder: pathlib.Path | None) -> pathlib.Path:
    """Return the place of a model chained with its pipeline."""
    assert folder is not None
    return folder / "chained" / job.config.path.name


def _reads_other_data(config: ModelConfig) -> bool:
    """Return whether samples or functions beside the model decide what becomes of it: the key doesn't know them."""
    options = config.options
    return (options.calibration, options.budget.metric, options.check_inputs) != (Calibration(), None, None)


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


def half_of_memory_mb() -> int:
    """Return half of the machine's memory, in MiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 // MIB
