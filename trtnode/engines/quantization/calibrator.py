"""Runs a model on samples and learns the range of each of its tensors."""

from __future__ import annotations

import hashlib
import importlib.metadata
import itertools
import logging
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.artifact.files import sha256_of_model, write_temporary
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.backends.progress import Progress, report
from trtnode.engines.errors import CalibrationDataError, ExecutionError, QuantizationError
from trtnode.engines.inputs.samples import Feeds
from trtnode.engines.inputs.source import cleaned
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.quantization.bias_correction import ChannelMeans
from trtnode.engines.quantization.channel_equalization import ChannelExtremes, Group, equalizing_factors, free_groups
from trtnode.engines.quantization.dataset import CalibrationDataset
from trtnode.engines.quantization.qdq_writer import prepare
from trtnode.engines.quantization.range_estimators import EstimatorFactory, RangeEstimator, find_estimator
from trtnode.engines.quantization.smooth_quant import SmoothingSamples, smoothed_readers
from trtnode.engines.quantization.table import CalibrationTable
from trtnode.partitioner.graph.extraction import extract_model
from trtnode.partitioner.graph.view import Graph, TensorSpec, specs
from trtnode.partitioner.passes.batch_norms import CHANNEL_AXES

logger = logging.getLogger(__name__)

BATCH_BYTES = 2**24
"""16 MiB: the most that the observed tensors of several samples in one run may take. More misses the caches."""

LARGEST = 1e30
"""Limit of values that have a range. Masks hold the lowest float instead of minus infinity."""

DEFAULT_PERCENTILE = 99.99

ONE_BY_ONE = ("mean", "moving-average")
"""Methods whose ranges depend on the limits of samples, so that samples aren't joined to batches."""

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)

FUSED = frozenset({"Clip", "Relu"})
"""Engines compute these together with the node before, so the tensor between is never stored and needs no range."""

CALIBRATING = "Calibrating"
"""Phase of progress; its steps are samples. Where only their end tells how many there are, one more is expected."""


def calibrate(
    model: pathlib.Path,
    dataset: CalibrationDataset,
    *,
    method: str = "mean",
    percentile: float = DEFAULT_PERCENTILE,
    samples: int | None = None,
) -> CalibrationTable:
    """Learn the ranges of a model's floating-point tensors in native execution.

    Memory is bounded: one batch of samples with all that the model computes from it, and one estimator a tensor.

    Args:
        model: The FP32 model.
        dataset: Samples of its inputs.
        method: One of ``CALIBRATION_METHODS``.
        percentile: Share of values that the method of this name keeps, in percent.
        samples: Most samples to use; None uses all.

    Raises:
        PartitionError: The file is no model.
        AlreadyCompiledError: It is a compiled model.
        ModelLoadError: ONNX Runtime refuses the model.
        CalibrationDataError: Samples can't be read, don't fit the model, or the model doesn't run on them.
    """
    factory = find_estimator(method, percentile)
    graph = cleaned(model, ())
    inputs = specs(graph.inputs)
    ranges, means, channels = _Ranges.of(graph, factory), ChannelMeans(graph), _Channels(model)
    stream = _Stream(dataset, inputs, samples)
    joins = method not in ONE_BY_ONE and _has_batch_axis(inputs, specs(graph.outputs))
    batches = _batches(stream, lambda: ranges.batch_size if joins else 1)
    report(Progress(CALIBRATING, 0, stream.total or 1))
    for values, count in _observed(graph, batches, dataset.source):
        ranges.observe(values, count)
        means.observe(values)
        channels.observe(values)
        report(Progress(CALIBRATING, ranges.samples, stream.total or ranges.samples + 1))
    report(Progress(CALIBRATING, ranges.samples, ranges.samples))
    ranges.warn_of_constants(inputs, dataset.source)
    learnt = ranges.estimates()
    return CalibrationTable(
        ranges=learnt,
        means=means.estimates(),
        **channels.factors(learnt),
        model_sha256=sha256_of_model(model),
        data_sha256=stream.sha256,
        samples=ranges.samples,
        method=f"percentile {percentile:g}" if method == "percentile" else method,
        versions={name: importlib.metadata.version(name) for name in ("onnxruntime", "numpy")},
    )


class _Channels:
    """The channels that can be scaled: none where the model can't be prepared for INT8."""

    def __init__(self, source: pathlib.Path) -> None:
        graph = cleaned(source, (), freeze=True)  # engines hold defaults of inputs as constants
        self._groups: list[Group] = []
        readers: dict[ir.Value, list[ir.Node]] = {}
        try:
            work, _ = prepare(extract_model(graph, graph.nodes, inputs=graph.inputs, outputs=graph.outputs))
            self._groups, readers = free_groups(work.graph), smoothed_readers(work.graph)
        except QuantizationError as error:
            logger.info("Channels keep their scales: %s", error)
        self._extremes = ChannelExtremes(value.name for group in self._groups for value in group.values if value.name)
        self._smoothing = SmoothingSamples(readers)

    def observe(self, values: Mapping[str, np.ndarray]) -> None:
        """Take the tensors of one run into account."""
        self._extremes.observe(values)
        self._smoothing.observe(values)

    def factors(self, ranges: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
        """Return the fields ``factors`` and ``scaled_ranges`` of a table, of tensors with a range."""
        found = (
            (equalizing_factors(self._groups, self._extremes), self._extremes),
            (self._smoothing.factors(), self._smoothing.extremes),
        )
        scaled = [(name, values, seen) for factors, seen in found for name, values in factors.items() if name in ranges]
        return {
            "factors": {name: values for name, values, _ in scaled},
            "scaled_ranges": {name: seen.widen(name, ranges[name], values) for name, values, seen in scaled},
        }


def _observed(
    graph: Graph, batches: Iterable[tuple[Feeds, int]], source: str
) -> Iterator[tuple[dict[str, np.ndarray], int]]:
    """Run the model on batches; give all of its tensors, and the number of samples, of each."""
    with TemporaryFolder() as folder:
        session = _open_observed(graph, folder / "observed.onnx")
        for batch, count in batches:
            try:
                results = session.run(batch) if session.outputs else []
                values = dict(zip(session.outputs, results, strict=True))
            except ExecutionError as error:
                raise CalibrationDataError(source, f"the model does not run on it: {error}") from error
            yield {**batch, **values}, count


class _Ranges:
    """Estimators of the range of each observed tensor.

    Attributes:
        samples: Number of samples observed.
        batch_size: Number of samples that may be run at once.
    """

    def __init__(self, estimators: dict[str, RangeEstimator]) -> None:
        self.samples = 0
        self.batch_size = 1
        self._estimators = estimators
        self._seen: set[str] = set()

    @classmethod
    def of(cls, graph: Graph, factory: EstimatorFactory) -> _Ranges:
        """Make an estimator for each tensor of a model."""
        return cls({value.name or "": factory() for value in _observable(graph)})

    def observe(self, values: Mapping[str, np.ndarray], samples: int) -> None:
        """Take the tensors of one run into account."""
        for name in list(self._estimators):
            array = values[name].astype(np.float32, copy=False)
            if not array.size:
                continue
            low, high = float(array.min()), float(array.max())
            if low > -LARGEST and high < LARGEST:
                self._estimators[name].observe(array, low, high)
                self._seen.add(name)
            else:
                logger.info("%r holds NaN, infinity or values near it, so it gets no range", name)
                del self._estimators[name]
        self.samples += samples
        if self.batch_size == 1:
            observed_bytes = sum(values[name].nbytes for name in self._estimators)
            self.batch_size = max(1, samples * BATCH_BYTES // max(observed_bytes, 1))

    def estimates(self) -> dict[str, tuple[float, float]]:
        """Return the range of each tensor that was seen, with finite values only."""
        return {name: e.estimate() for name, e in self._estimators.items() if name in self._seen}

    def warn_of_constants(self, inputs: Iterable[TensorSpec], source: str) -> None:
        """Warn about inputs that never changed: they have no range to learn."""
        for name in (spec.name for spec in inputs if spec.name in self._seen):
            low, high = self._estimators[name].estimate()
            if low == high:
                logger.warning("%s: input %r is %g in every sample; nodes that read it stay float", source, name, low)


class _Stream:
    """Samples on their way from a data set, counted and hashed.

    Attributes:
        total: Number of samples, if it is known.
    """

    def __init__(self, dataset: CalibrationDataset, inputs: Sequence[TensorSpec], limit: int | None) -> None:
        counts = [n for n in (dataset.count(inputs), limit) if n is not None]
        self.total = min(counts, default=None)
        self._feeds = dataset.feeds(inputs, limit=limit)
        self._digest = hashlib.sha256()

    def __iter__(self) -> Iterator[Feeds]:
        for feeds in self._feeds:
            for name in sorted(feeds):
                array = np.ascontiguousarray(feeds[name])
                self._digest.update(f"{name} {array.dtype} {array.shape}".encode())
                self._digest.update(array.tobytes())
            yield feeds

    @property
    def sha256(self) -> str:
        """Hash of all samples so far."""
        return self._digest.hexdigest()


def _observable(graph: Graph) -> list[ir.Value]:
    """Return the run-time tensors of floats: inputs without a default, and results that are stored."""
    inputs = (value for value in graph.inputs if not value.is_initializer())
    made = (value for node in graph.nodes for value in node.op.outputs if not _is_fused(value))
    return [v for v in (*inputs, *made) if v.name and isinstance(v.type, ir.TensorType) and v.dtype in FLOATS]


def _is_fused(value: ir.Value) -> bool:
    readers = {node.op_type for node in value.consumers()}
    producer = value.producer()
    normalized = readers == {"BatchNormalization"} and producer is not None and producer.op_type in CHANNEL_AXES
    return bool(readers) and (readers <= FUSED or normalized) and not value.is_graph_output()


def _open_observed(graph: Graph, path: pathlib.Path) -> NativeSession:
    """Open the model with every observed tensor as an output, and no other."""
    given = set(graph.inputs)
    outputs = [v for v in _observable(graph) if v not in given]
    write_temporary(extract_model(graph, graph.nodes, inputs=graph.inputs, outputs=outputs, keep_defaults=True), path)
    return NativeSession(path, name="the model with all its tensors as outputs")


def _has_batch_axis(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> bool:
    """Return whether all inputs and outputs begin with the same dimension without a size."""
    first = {spec.shape[0] if spec.shape else None for spec in (*inputs, *outputs)}
    return len(first) == 1 and isinstance(first.pop(), str)


def _batches(stream: Iterable[Feeds], size: Callable[[], int]) -> Iterator[tuple[Feeds, int]]:
    """Join neighbouring samples of the same shape."""
    for _, alike in itertools.groupby(stream, key=_shapes):
        while group := list(itertools.islice(alike, size())):
            yield (_join(group) if len(group) > 1 else group[0]), len(group)


def _shapes(feeds: Feeds) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in feeds.items()}


def _join(group: Sequence[Feeds]) -> Feeds:
    return {name: np.concatenate([feeds[name] for feeds in group]) for name in group[0]}
