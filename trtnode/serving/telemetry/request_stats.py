"""Counters and durations of requests, in Prometheus' words.

Requests leave what they took; it is added up some requests later, or when somebody asks, under one lock a model. The
Prometheus families are made when somebody asks for them.
The ``nv_inference_*`` names are those of Triton, so that its dashboards work.
"""

from __future__ import annotations

import dataclasses
import enum
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

from trtnode.engines.backends.stage_times import StageTime
from trtnode.engines.model_facts import ModelFacts
from trtnode.serving.telemetry.latency_steps import latency_step
from trtnode.serving.telemetry.recent_requests import Recent, RecentRequests, Totals, slot_at


class FailureReason(enum.StrEnum):
    """The reason for which a request got no answer, in the values of Triton's label ``reason``."""

    REJECTED = "REJECTED"
    """The server didn't take it, or not in time: a ``RejectionReason``."""
    CANCELED = "CANCELED"
    """The client left before the model ran."""
    BACKEND = "BACKEND"
    """The model failed."""
    OTHER = "OTHER"
    """Everything else, mostly faults of the request."""


class RejectionReason(enum.StrEnum):
    """The reason for which a valid request was not executed."""

    NOT_READY = "not_ready"
    DRAINING = "draining"
    MAX_REQUESTS = "max_requests"
    QUEUE_FULL = "queue_full"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class SequenceEnd(enum.StrEnum):
    """The reason for which a sequence has ended."""

    END = "end"
    """Its client has said so."""
    IDLE = "idle"
    EVICTED = "evicted"
    REPLACED = "replaced"
    UNLOADED = "unloaded"


@dataclasses.dataclass(slots=True)
class SequenceCounts:
    """The sequences of one model version; the lock of their table guards it.

    Attributes:
        open: Those that live.
        begun: Those that were begun.
        ended: Those that have ended, by reason.
        refused: Those that had no room.
        bytes: Of their state.
    """

    open: int = 0
    begun: int = 0
    ended: Counter[str] = dataclasses.field(default_factory=Counter)
    refused: int = 0
    bytes: int = 0


@dataclasses.dataclass(slots=True)
class Durations:
    """Time of one request by phase, in nanoseconds."""

    total: int = 0
    ended_ns: int = 0
    """The time at which it ended, by ``time.perf_counter_ns``."""
    queue: int = 0
    compute_input: int = 0
    compute_infer: int = 0
    compute_output: int = 0
    alone: bool = False
    """True if the request had an execution of its own, without batching."""
    waited: bool = False
    """True if such a request waited for an instance."""
    traced: bool = False
    """True if the request is traced, which takes the times of its execution."""
    execution: Execution | None = None
    """The execution that answered it, if it is traced."""


@dataclasses.dataclass(slots=True)
class Execution:
    """One execution, as a trace shows it. Times are those of ``time.perf_counter_ns``.

    Attributes:
        rows: Size of the batch; 0 where requests run one by one.
        began_ns: When it began, with the copies into the batch.
        ended_ns: When it ended, with the results taken apart; 0 until then.
        stages: When each stage of a model with engines ran.
    """

    rows: int = 0
    began_ns: int = dataclasses.field(default_factory=time.perf_counter_ns)
    ended_ns: int = 0
    stages: list[StageTime] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class BatchStats:
    """Successful executions of one size, with their time by phase, in nanoseconds."""

    executions: int = 0
    compute_input: int = 0
    compute_infer: int = 0
    compute_output: int = 0

    def add(self, other: BatchStats) -> None:
        """Take over what another one counted."""
        self.executions += other.executions
        self.compute_input += other.compute_input
        self.compute_infer += other.compute_infer
        self.compute_output += other.compute_output


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """The counts of one model version, as of one moment.

    Attributes:
        success: Answered requests.
        rows: Their rows; a request to a model without batching counts as one.
        executions: Runs of the model, also those that failed.
        pending: Requests that wait for an instance now.
        failures: Requests that got an error, by ``FailureReason``.
        failure_ns: Their time in the server, in nanoseconds.
        rejections: Requests that were not executed, by ``RejectionReason``.
        fallbacks: Requests that were answered natively instead of by engines, by reason.
        small: Runs that were native since they were small, where engines answer larger requests.
        durations: Of answered requests, in nanoseconds.
        batches: By rows of an execution.
        buckets: Executions by the length that their requests were padded to.
        padding: Elements of inputs that were padding.
        shapes: Pairs of a length and a number of rows that were executed.
        tokens: Tokens of the texts of requests, without padding.
        sequences: Those of a model that keeps state.
        latencies: Answered requests by time in the server: number of the step, see ``latency_bound_us``.
        failure_latencies: Those that got an error, likewise.
        last_ms: When the last request ended, in milliseconds since 1970; 0 if there was none.
        recent: Those of the last hour.
    """

    success: int
    rows: int
    executions: int
    pending: int
    failures: Mapping[str, int]
    failure_ns: int
    rejections: Mapping[str, int]
    fallbacks: Mapping[str, int]
    small: int
    durations: Durations
    batches: Mapping[int, BatchStats]
    buckets: Mapping[int, int]
    padding: int
    shapes: int
    tokens: int
    sequences: SequenceCounts
    latencies: Mapping[int, int]
    failure_latencies: Mapping[int, int]
    last_ms: int
    recent: Recent


def _memory_by_kind(facts: ModelFacts, resident_bytes: int) -> dict[str, int]:
    """Return the bytes of weights and engines, and those by which the process grew when it was loaded."""
    sizes = {"resident": resident_bytes}
    if plan := facts.memory:
        sizes |= {"weights": plan["weight_bytes"], "engines": plan["engine_bytes"] or 0}
    return sizes


MOST_FRESH = 64
"""Requests whose durations are added up at once: most requests then only leave them, without a lock."""


class ModelCounts:
    """The counts of one model version. Safe for concurrent requests."""

    def __init__(self, model: str = "", version: str = "") -> None:
        self.labels = {"model": model, "version": version}
        self.ready = False
        self.builds = False
        """True while it answers natively, and its engines are being built."""
        self.failed_loads = 0
        self.is_outdated = False
        """True while what is on disk isn't what is served, since it couldn't be loaded."""
        self.precision: Mapping[str, str] = {}
        self.engine_builds = 0
        self.engines_rejected = 0
        self.engines: Mapping[bool, int] = {}
        """Engines in use, by True for those that were compared with native execution."""
        self.reference_nodes = 0
        self.memory: Mapping[str, int] = {}
        """Bytes, by kind."""
        self.engine = self.sha256 = ""
        self.loaded_ns = 0
        self.variants: Sequence[Mapping[str, Any]] = ()
        """The facts of each variant."""
        self.repeated_measurements = 0
        """Loads that measured the engines again, because the measurement before was noisy."""
        self.sequences = SequenceCounts()
        self._lock = threading.Lock()
        self._fresh: deque[Durations] = deque()
        self._success = 0
        self._executions = 0
        self._pending = 0
        self._failures: Counter[str] = Counter({reason.value: 0 for reason in FailureReason})
        self._failure_ns = 0
        self._rejections: Counter[str] = Counter()
        self._fallbacks: Counter[str] = Counter()
        self._small = 0
        self._durations = Durations()
        self._batches: dict[int, BatchStats] = {}
        self._batched_rows = 0
        self._alone = BatchStats()
        self._buckets: Counter[int] = Counter()
        self._padding = 0
        self._tokens = 0
        self._shapes: set[tuple[int, int]] = set()
        self._latencies: Counter[int] = Counter()
        self._failure_latencies: Counter[int] = Counter()
        self._last_ns = 0
        self._recent = RecentRequests()

    def describe(self, facts: ModelFacts, resident_bytes: int) -> None:
        """Take over the facts of a model, and the bytes by which its load made the process grow."""
        self.precision = {"asked": facts.precision_asked, "effective": facts.precision}
        self.variants = facts.variants
        self.engine_builds = facts.engines_built
        self.engines_rejected = len(facts.rejected)
        self.reference_nodes = len(facts.reference_nodes)
        self.memory = _memory_by_kind(facts, resident_bytes)
        self.engine = facts.engine
        self.sha256, self.loaded_ns = facts.sha256, time.time_ns()
        self.engines = {True: facts.segments - facts.unchecked, False: facts.unchecked}

    def add_success(self, durations: Durations) -> None:
        """Count an answered request. Its durations, which must not change any more, are added up later."""
        self._last_ns = time.time_ns()
        self._fresh.append(durations)
        if len(self._fresh) >= MOST_FRESH:
            with self._lock:
                self._add_up()

    def _add_up(self) -> None:
        """Add up what requests have left since the last time; under the lock."""
        total = self._durations
        if self._fresh:
            self._recent.last_ns = max(self._recent.last_ns, self._fresh[-1].ended_ns)
        for _ in range(len(self._fresh)):
            durations = self._fresh.popleft()
            self._success += 1
            self._latencies[latency_step(durations.total)] += 1
            total.total += durations.total
            total.queue += durations.queue
            total.compute_input += durations.compute_input
            total.compute_infer += durations.compute_infer
            total.compute_output += durations.compute_output
            if durations.alone:
                self._alone.executions += 1
                self._alone.compute_input += durations.compute_input
                self._alone.compute_infer += durations.compute_infer
                self._alone.compute_output += durations.compute_output

    def add_failure(self, reason: FailureReason, spent_ns: int = 0, *, detail: str = "") -> None:
        """Count a request that got an error with this sentence, after so many nanoseconds in the server."""
        with self._lock:
            self._recent.add_failure(time.perf_counter_ns(), reason.value, detail)
            self._failures[reason.value] += 1
            self._failure_ns += spent_ns
            self._failure_latencies[latency_step(spent_ns)] += 1
            self._last_ns = time.time_ns()

    def add_rejection(self, reason: RejectionReason) -> None:
        """Count a request that is not executed; its failure is counted apart."""
        with self._lock:
            self._rejections[reason.value] += 1

    def add_fallback(self, reason: str) -> None:
        """Count a request that was answered natively instead of by engines."""
        with self._lock:
            self._fallbacks[reason] += 1

    def add_small(self) -> None:
        """Count a run that was native since it was small."""
        with self._lock:
            self._small += 1

    def enter_queue(self) -> None:
        """Count a request that waits for an instance."""
        with self._lock:
            self._pending += 1

    def leave_queue(self) -> None:
        """Count a request that gave up waiting."""
        with self._lock:
            self._pending -= 1

    def begin_execution(self, leaving: int) -> None:
        """Count an execution, and the requests that it takes out of the queue."""
        with self._lock:
            self._pending -= leaving
            self._executions += 1

    def add_batch(self, rows: int, spent: BatchStats) -> None:
        """Count a successful execution of a model with batching."""
        with self._lock:
            self._batches.setdefault(rows, BatchStats()).add(spent)
            self._batched_rows += rows

    def add_bucket(self, bucket: int, rows: int, padding: int, *, executions: int = 1) -> None:
        """Count an execution of requests that are padded to a length, and the elements of padding."""
        with self._lock:
            self._buckets[bucket] += executions
            self._padding += padding
            self._shapes.add((bucket, rows))

    def add_padding(self, padding: int) -> None:
        """Count elements of padding."""
        with self._lock:
            self._padding += padding

    def add_tokens(self, tokens: int) -> None:
        """Count the tokens of a request's texts."""
        with self._lock:
            self._tokens += tokens

    def snapshot(self) -> Snapshot:
        """Return all counts, as of one moment."""
        with self._lock:
            self._add_up()
            durations = dataclasses.replace(self._durations)
            batches = {rows: dataclasses.replace(stats) for rows, stats in sorted(self._batches.items())}
            if self._alone.executions:  # without batching, each request is an execution of one row
                batches = {1: BatchStats(), **batches}
                batches[1].add(self._alone)
            return Snapshot(
                success=self._success,
                rows=self._batched_rows + self._alone.executions,
                executions=self._executions,
                pending=self._pending,
                failures=dict(self._failures),
                failure_ns=self._failure_ns,
                rejections=dict(self._rejections),
                fallbacks=dict(self._fallbacks),
                small=self._small,
                durations=durations,
                batches=batches,
                buckets=dict(sorted(self._buckets.items())),
                padding=self._padding,
                shapes=len(self._shapes),
                tokens=self._tokens,
                sequences=dataclasses.replace(self.sequences, ended=self.sequences.ended.copy()),
                latencies=dict(sorted(self._latencies.items())),
                failure_latencies=dict(self._failure_latencies),
                last_ms=self._last_ns // 1_000_000,
                recent=self._recent.as_of(slot_at(time.perf_counter_ns()), self._totals()),
            )

    def ran_in_slot_ns(self) -> int:
        """Return the time of executions since the last slot ended."""
        with self._lock:
            self._add_up()
            return self._recent.ran_ns(self._totals())

    def end_slot(self, number: int, cpu_ns: int) -> None:
        """Keep what happened in a slot, with this part of the process's time on processors."""
        with self._lock:
            self._add_up()
            self._recent.end_slot(number, self._totals(), cpu_ns)

    def _totals(self) -> Totals:
        """Return what slots are made of; under the lock."""
        return Totals(
            answered=self._success,
            failed=self._failures.total(),
            waited_ns=self._durations.queue,
            ran_ns=sum(stats.compute_infer for stats in (self._alone, *self._batches.values())),
            latencies=dict(self._latencies),
        )
