"""Counters and durations of requests, in Prometheus' words.

Requests add to plain integers under one lock a model; the Prometheus families are made when somebody asks for them.
The ``nv_inference_*`` names are those of Triton, so that its dashboards work.
"""

import dataclasses
import enum
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, UnknownMetricFamily
from prometheus_client.registry import Collector


class FailureReason(enum.StrEnum):
    """Why a request got no answer, in the values of Triton's label ``reason``."""

    REJECTED = "REJECTED"
    """The server didn't take it: full, draining, or the model isn't ready."""
    BACKEND = "BACKEND"
    """The model failed."""
    OTHER = "OTHER"
    """Everything else, mostly faults of the request."""


@dataclasses.dataclass(slots=True)
class Durations:
    """Time of one request by phase, in nanoseconds."""

    total: int = 0
    queue: int = 0
    compute_input: int = 0
    compute_infer: int = 0
    compute_output: int = 0


class ModelCounts:
    """What happened to one model version. Safe for concurrent requests."""

    def __init__(self, model: str = "", version: str = "") -> None:
        self.labels = {"model": model, "version": version}
        self.ready = False
        self.precision: Mapping[str, str] = {}
        self.engine_builds = 0
        self.engines_rejected = 0
        self._lock = threading.Lock()
        self._success = 0
        self._executions = 0
        self._pending = 0
        self._failures: Counter[str] = Counter({reason.value: 0 for reason in FailureReason})
        self._fallbacks: Counter[str] = Counter()
        self._durations = Durations()

    def describe(self, facts: Mapping[str, Any]) -> None:
        """Take over what an executable says about itself."""
        self.precision = dict(facts["precision"])
        self.engine_builds = facts.get("engines_built", 0)
        self.engines_rejected = len(facts["rejected"])

    def add_success(self, durations: Durations) -> None:
        """Count an answered request."""
        total = self._durations
        with self._lock:
            self._success += 1
            total.total += durations.total
            total.queue += durations.queue
            total.compute_input += durations.compute_input
            total.compute_infer += durations.compute_infer
            total.compute_output += durations.compute_output

    def add_failure(self, reason: FailureReason) -> None:
        """Count a request that got an error."""
        with self._lock:
            self._failures[reason.value] += 1

    def add_fallback(self, reason: str) -> None:
        """Count a request that was answered natively instead of by engines."""
        with self._lock:
            self._fallbacks[reason] += 1

    def enter_queue(self) -> None:
        """Count a request that waits for an instance."""
        with self._lock:
            self._pending += 1

    def leave_queue(self) -> None:
        """Count a request that an instance took, hence an execution."""
        with self._lock:
            self._pending -= 1
            self._executions += 1

    def values(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Yield name, labels and value of each sample."""
        with self._lock:
            durations = dataclasses.asdict(self._durations)
            failures, fallbacks = dict(self._failures), dict(self._fallbacks)
            success, executions, pending = self._success, self._executions, self._pending
        for reason, count in failures.items():
            yield "nv_inference_request_failure", {**self.labels, "reason": reason}, count
        if not self.labels["model"]:
            return
        yield "nv_inference_request_success", self.labels, success
        yield "nv_inference_count", self.labels, success  # rows; each request is one without batching
        yield "nv_inference_exec_count", self.labels, executions
        yield "nv_inference_pending_request_count", self.labels, pending
        for phase, nanoseconds in durations.items():
            name = "request" if phase == "total" else phase
            yield f"nv_inference_{name}_duration_us", self.labels, nanoseconds // 1000
        for reason, count in fallbacks.items():
            yield "trtnode_native_fallback", {**self.labels, "reason": reason}, count
        yield "trtnode_engine_builds", self.labels, self.engine_builds
        yield "trtnode_engines_rejected", self.labels, self.engines_rejected
        yield "trtnode_model_ready", self.labels, self.ready
        if self.precision:
            yield "trtnode_model_precision", {**self.labels, **self.precision}, 1


class Metrics(Collector):
    """All counts of one server, as a Prometheus collector in a registry of its own."""

    def __init__(self) -> None:
        self.unknown_model = ModelCounts()
        """Requests for models that aren't served; their names stay out of labels, which never go away."""
        self._models: list[ModelCounts] = [self.unknown_model]
        self._lock = threading.Lock()
        self._refusals: Counter[str] = Counter({"unauthenticated": 0, "forbidden": 0})
        self.registry = prometheus_client.CollectorRegistry()
        self.registry.register(self)
        prometheus_client.ProcessCollector(registry=self.registry)

    def add_model(self, model: str, version: str) -> ModelCounts:
        """Return the counts of a new model version."""
        counts = ModelCounts(model, version)
        self._models = [*self._models, counts]
        return counts

    def add_refusal(self, reason: str) -> None:
        """Count a call that was refused for want of a right."""
        with self._lock:
            self._refusals[reason] += 1

    def collect(self) -> Iterator[prometheus_client.Metric]:
        """Yield every family, with its samples of all models."""
        families = {name: make(name, text) for name, (make, text) in _FAMILIES.items()}
        for counts in self._models:
            for name, labels, value in counts.values():
                suffix = "_total" if isinstance(families[name], CounterMetricFamily) else ""
                families[name].add_sample(name + suffix, dict(labels), float(value))
        for reason, count in self._refusals.items():
            families["trtnode_refused_calls"].add_sample("trtnode_refused_calls_total", {"reason": reason}, count)
        yield from families.values()


# Triton's counters lack the suffix _total that the counter type would add, so they are of the type that adds nothing.
_FAMILIES = {
    "nv_inference_request_success": (UnknownMetricFamily, "Requests that were answered."),
    "nv_inference_request_failure": (UnknownMetricFamily, "Requests that got an error, by reason."),
    "nv_inference_count": (UnknownMetricFamily, "Rows that were inferred."),
    "nv_inference_exec_count": (UnknownMetricFamily, "Executions of the model."),
    "nv_inference_pending_request_count": (GaugeMetricFamily, "Requests that wait for an instance."),
    "nv_inference_request_duration_us": (UnknownMetricFamily, "Time of answered requests, in microseconds."),
    "nv_inference_queue_duration_us": (UnknownMetricFamily, "Wait for an instance, in microseconds."),
    "nv_inference_compute_input_duration_us": (UnknownMetricFamily, "Reading of inputs, in microseconds."),
    "nv_inference_compute_infer_duration_us": (UnknownMetricFamily, "Execution of the model, in microseconds."),
    "nv_inference_compute_output_duration_us": (UnknownMetricFamily, "Writing of outputs, in microseconds."),
    "trtnode_native_fallback": (CounterMetricFamily, "Requests answered natively instead of by engines, by reason."),
    "trtnode_refused_calls": (CounterMetricFamily, "Calls refused for want of a token or right, by reason."),
    "trtnode_engine_builds": (CounterMetricFamily, "Engines built, not found in the cache."),
    "trtnode_engines_rejected": (
        GaugeMetricFamily,
        "Engines of the model that may not run here; their nodes are native.",
    ),
    "trtnode_model_ready": (GaugeMetricFamily, "1 if the model can answer."),
    "trtnode_model_precision": (GaugeMetricFamily, "1, with the precision asked for and the one in effect as labels."),
}
