"""The counts of all models as families of metrics, as Prometheus reads them."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, UnknownMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from trtnode.serving.telemetry.latency_steps import STEPS_PER_OCTAVE
from trtnode.serving.telemetry.request_stats import ModelCounts

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Upper bounds of the buckets of ``trtnode_batch_size``, in rows."""

BUILD = {"version": importlib.metadata.version("trtnode"), "python": platform.python_version()}
"""The labels of ``trtnode_build_info``."""

LATENCY_OCTAVES = range(16, 36)
"""Those of ``trtnode_request_duration_seconds``: from 2**16 ns (66 µs) to 2**35 ns (34 s)."""


MODEL_LABEL = re.compile(rb'[{,]model="((?:[^"\\]|\\.)*)"')
ESCAPED = re.compile(r"\\(.)")
"""A character of a label's value that has a backslash before it."""


class ModelsCollector(Collector):
    """Reads the counts of all models and of refused calls whenever somebody asks for the metrics."""

    def __init__(self, models: Callable[[], Sequence[ModelCounts]], refusals: Mapping[str, int]) -> None:
        self._models = models
        self._refusals = refusals

    def collect(self) -> Iterator[prometheus_client.Metric]:
        """Yield every family, with its samples of all models."""
        families = {name: make(name, text) for name, (make, text) in _FAMILIES.items()}
        for counts in self._models():
            for name, labels, value in _samples(counts):
                family = families.get(name) or families[name.rpartition("_")[0]]  # a histogram has several names
                suffix = "_total" if isinstance(family, CounterMetricFamily) else ""
                family.add_sample(name + suffix, dict(labels), float(value))
        families["trtnode_build_info"].add_sample("trtnode_build_info", BUILD, 1)
        for reason, count in list(self._refusals.items()):
            families["trtnode_refused_calls"].add_sample("trtnode_refused_calls_total", {"reason": reason}, count)
        yield from families.values()


def registry_of(
    models: Callable[[], Sequence[ModelCounts]], refusals: Mapping[str, int]
) -> prometheus_client.CollectorRegistry:
    """Return a registry with the metrics of one server, and of its process.

    Args:
        models: Returns the counts of every model version.
        refusals: Calls refused so far, by reason.
    """
    registry = prometheus_client.CollectorRegistry()
    registry.register(ModelsCollector(models, refusals))
    prometheus_client.ProcessCollector(registry=registry)
    return registry


def _samples(counts: ModelCounts) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield name, labels and value of each sample of a model version."""
    now = counts.snapshot()
    for reason, number in now.failures.items():
        yield "nv_inference_request_failure", {**counts.labels, "reason": reason}, number
    if not counts.labels["model"]:
        return
    yield "nv_inference_request_success", counts.labels, now.success
    yield "nv_inference_count", counts.labels, now.rows
    yield "nv_inference_exec_count", counts.labels, now.executions
    yield "nv_inference_pending_request_count", counts.labels, now.pending
    for phase in ("total", "queue", "compute_input", "compute_infer", "compute_output"):
        name = "request" if phase == "total" else phase
        yield f"nv_inference_{name}_duration_us", counts.labels, getattr(now.durations, phase) // 1000
    for reason, number in now.rejections.items():
        yield "trtnode_rejected_requests", {**counts.labels, "reason": reason}, number
    for reason, number in now.fallbacks.items():
        yield "trtnode_native_fallback", {**counts.labels, "reason": reason}, number
    if now.small:
        yield "trtnode_native_by_size", counts.labels, now.small
    for bucket, number in now.buckets.items():
        yield "trtnode_length_executions", {**counts.labels, "bucket": str(bucket)}, number
    if now.buckets:
        yield "trtnode_padding_elements", counts.labels, now.padding
        yield "trtnode_length_shapes", counts.labels, now.shapes
    if now.tokens:
        yield "trtnode_tokens", counts.labels, now.tokens
    if (sequences := now.sequences).begun or sequences.refused:
        yield "trtnode_sequences_open", counts.labels, sequences.open
        yield "trtnode_sequences_begun", counts.labels, sequences.begun
        yield "trtnode_sequences_refused", counts.labels, sequences.refused
        yield "trtnode_sequence_state_bytes", counts.labels, sequences.bytes
        for reason, number in sequences.ended.items():
            yield "trtnode_sequences_ended", {**counts.labels, "reason": reason}, number
    for one in counts.variants:
        labels = {**counts.labels, "variant": one["name"], "quality": f"{one['quality']:g}"}
        yield "trtnode_model_variant", labels, one["answers"]
        if "p95_ms" in one:
            yield "trtnode_variant_latency_seconds", labels, one["p95_ms"] / 1e3
    for suffix, bound, value in _histogram({rows: stats.executions for rows, stats in now.batches.items()}):
        yield f"trtnode_batch_size_{suffix}", {**counts.labels, **bound}, value
    for outcome, steps, spent_ns in (
        ("success", now.latencies, now.durations.total),
        ("failure", now.failure_latencies, now.failure_ns),
    ):
        for suffix, bound, value in _latency_histogram(steps, spent_ns):
            labels = {**counts.labels, "outcome": outcome, **bound}
            yield f"trtnode_request_duration_seconds_{suffix}", labels, value
    yield "trtnode_engine_builds", counts.labels, counts.engine_builds
    yield "trtnode_engines_rejected", counts.labels, counts.engines_rejected
    yield "trtnode_repeated_measurements", counts.labels, counts.repeated_measurements
    for checked, number in counts.engines.items():
        labels = {**counts.labels, "engine": counts.engine, "checked": str(checked).lower()}
        yield "trtnode_model_engines", labels, number
    yield "trtnode_model_reference_nodes", counts.labels, counts.reference_nodes
    for kind, size in counts.memory.items():
        yield "trtnode_model_memory_bytes", {**counts.labels, "kind": kind}, size
    yield "trtnode_model_ready", counts.labels, counts.ready
    yield "trtnode_model_building", counts.labels, counts.builds
    if counts.ready:
        yield "trtnode_model_info", {**counts.labels, "sha256": counts.sha256}, 1
        yield "trtnode_model_loaded_timestamp_seconds", counts.labels, counts.loaded_ns / 1e9
    yield "trtnode_failed_loads", counts.labels, counts.failed_loads
    yield "trtnode_model_outdated", counts.labels, counts.is_outdated
    if counts.precision:
        yield "trtnode_model_precision", {**counts.labels, **counts.precision}, 1


def _histogram(counts: Mapping[int, int]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield suffix, labels and value of each sample of a histogram over sizes."""
    for bound in BATCH_SIZES:
        yield "bucket", {"le": str(bound)}, sum(count for size, count in counts.items() if size <= bound)
    yield "bucket", {"le": "+Inf"}, sum(counts.values())
    yield "count", {}, sum(counts.values())
    yield "sum", {}, sum(size * count for size, count in counts.items())


def _latency_histogram(steps: Mapping[int, int], spent_ns: int) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield suffix, labels and value of each sample of a histogram over steps of ``Snapshot.latencies``."""
    for octave in LATENCY_OCTAVES:
        within = sum(count for step, count in steps.items() if step < octave * STEPS_PER_OCTAVE)
        yield "bucket", {"le": str(2**octave / 1e9)}, within
    yield "bucket", {"le": "+Inf"}, sum(steps.values())
    yield "count", {}, sum(steps.values())
    yield "sum", {}, spent_ns / 1e9


def exposition(registry: prometheus_client.CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Write a registry in the form that a scraper accepts.

    Returns:
        The text and its content type.
    """
    encode, content_type = choose_encoder(accept)
    # In the plain form the untyped families are Triton's counters, see ``_FAMILIES``.
    return encode(registry).replace(b" untyped\n", b" counter\n"), content_type


def of_models(text: bytes, covers: Callable[[str], bool]) -> bytes:
    """Return an exposition without the samples of models that a caller may not use.

    Args:
        text: In either form of ``exposition``.
        covers: Returns whether the caller may use a model.
    """
    return b"\n".join(line for line in text.split(b"\n") if _is_shown(line, covers))


def _is_shown(line: bytes, covers: Callable[[str], bool]) -> bool:
    named = None if line.startswith(b"#") else MODEL_LABEL.search(line)
    return named is None or covers(ESCAPED.sub(_unescaped, named[1].decode()))


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


# Triton's counters lack the suffix _total that the counter type would add, so they are of the type that adds nothing.
_FAMILIES = {
    "trtnode_build_info": (GaugeMetricFamily, "1, with the versions of this program and of Python."),
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
    "trtnode_rejected_requests": (CounterMetricFamily, "Requests that were not executed, by reason."),
    "trtnode_batch_size": (HistogramMetricFamily, "Rows of an execution."),
    "trtnode_request_duration_seconds": (HistogramMetricFamily, "Time of requests in the server, by outcome."),
    "trtnode_native_fallback": (CounterMetricFamily, "Requests answered natively instead of by engines, by reason."),
    "trtnode_native_by_size": (CounterMetricFamily, "Runs below the model's border, which are faster natively."),
    "trtnode_refused_calls": (CounterMetricFamily, "Calls refused for want of a token or right, by reason."),
    "trtnode_engine_builds": (CounterMetricFamily, "Engines built, not found in the cache."),
    "trtnode_repeated_measurements": (
        CounterMetricFamily,
        "Loads that measured engines again, once the machine was quiet: the choice before was provisional.",
    ),
    "trtnode_engines_rejected": (
        GaugeMetricFamily,
        "Engines of the model that may not run here; their nodes are native.",
    ),
    "trtnode_model_engines": (
        GaugeMetricFamily,
        "Engines in use, by library and by whether they were compared with native execution.",
    ),
    "trtnode_model_reference_nodes": (
        GaugeMetricFamily,
        "Nodes of the model in onnx.reference, which is slow: nothing else has a kernel for them.",
    ),
    "trtnode_model_memory_bytes": (
        GaugeMetricFamily,
        "Memory of the model by kind: weights, engines, and what the process grew by when the model was loaded.",
    ),
    "trtnode_tokens": (CounterMetricFamily, "Tokens of the texts of requests, without padding."),
    "trtnode_length_executions": (CounterMetricFamily, "Executions by the length that requests were padded to."),
    "trtnode_padding_elements": (CounterMetricFamily, "Elements of inputs that were padding."),
    "trtnode_length_shapes": (GaugeMetricFamily, "Pairs of a padded length and a number of rows that were executed."),
    "trtnode_sequences_open": (GaugeMetricFamily, "Sequences whose state the server keeps."),
    "trtnode_sequences_begun": (CounterMetricFamily, "Sequences that were begun."),
    "trtnode_sequences_ended": (CounterMetricFamily, "Sequences that have ended, by reason."),
    "trtnode_sequences_refused": (CounterMetricFamily, "Requests of sequences that had no room."),
    "trtnode_sequence_state_bytes": (GaugeMetricFamily, "Memory of the state of sequences."),
    "trtnode_model_ready": (GaugeMetricFamily, "1 if the model can answer."),
    "trtnode_model_building": (GaugeMetricFamily, "1 while the model answers natively until its engines are built."),
    "trtnode_model_info": (GaugeMetricFamily, "1 for a model that can answer, with the SHA-256 of its file."),
    "trtnode_model_loaded_timestamp_seconds": (GaugeMetricFamily, "Time of the last load, in seconds since 1970."),
    "trtnode_failed_loads": (CounterMetricFamily, "Loads that failed; the version before keeps serving."),
    "trtnode_model_outdated": (GaugeMetricFamily, "1 while what is on disk couldn't be loaded, and isn't served."),
    "trtnode_model_variant": (GaugeMetricFamily, "1 for the variant that answers now, 0 for the others."),
    "trtnode_variant_latency_seconds": (GaugeMetricFamily, "Latency of a variant, as measured when it was loaded."),
    "trtnode_model_precision": (GaugeMetricFamily, "1, with the precision asked for and the one in effect as labels."),
}
