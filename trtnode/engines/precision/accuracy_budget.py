"""A budget: how far answers may move from float32 before a precision is given up. Figures: how far they have moved.

With fewer than ten samples, each must be inside the budget's cosine by itself, because a joint cosine hides a bad
sample. Data with fewer than ten samples are evaluated on all of them. With many samples, the worst one says more about
the sample than about the precision.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.precision.metrics import NamedMetric, Outputs, load_metric, measured, named_metrics
from trtnode.engines.precision.options import AccuracyBudget
from trtnode.partitioner.graph.view import Graph

RESHAPING = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})

COSINE = 0.99
"""Smallest cosine of any output where the user sets no limit: over all samples together, and in each one of few."""

COSINE_OF_CLASSES = 0.995
"""Smallest cosine of a classifier whose user sets no limit: noise of a tenth. The two largest probabilities of an
uncertain answer change places early. Of a few dozen samples, a cosine is surer than a share of best classes."""

OF_VECTORS = AccuracyBudget(min_cosine=COSINE, metric="recall@10>=0.97,recall@1>=0.95")
"""Limits of a model whose user sets none, and whose only float result is a vector for each row: they are compared with
each other, so that their neighbours count. A cosine near one says little about that."""

FEWEST_VECTORS, COSINE_OF_FEW_VECTORS = 50, 0.995
"""Of fewer rows, neighbours say little, and the cosine has a narrower limit instead."""

SHORTEST_VECTOR = 16
"""Elements of a row that make it a vector to compare, instead of scores to read."""

FEW_SAMPLES = 10
"""Fewer samples than this say little about a mean, so each must be near enough by itself."""

SILENT = 1e-4
"""A sample in which an output has less than this part of its mean energy has no direction worth comparing."""


def adapted(budget: AccuracyBudget, graph: Graph | None) -> AccuracyBudget:
    """Return the limits for a model; those that are set hold for any.

    Without any, there is one of the cosine, which is higher where the model gives probabilities of classes. Of vectors,
    the neighbours count too. Of answers to generated inputs, which is without a graph, neither is so.
    """
    if budget != AccuracyBudget():
        return budget
    if graph is not None and holds_vectors(graph.outputs):
        return OF_VECTORS
    classes = graph is not None and any(map(_holds_classes, graph.outputs))
    return AccuracyBudget(min_cosine=COSINE_OF_CLASSES if classes else COSINE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Distances of answers from those in float32.

    Attributes:
        cosine: Smallest cosine of any output, in all samples together or in one of few. For outputs that are no floats,
            the share of equal elements.
        top1_agreement: Share of best classes that stay: the largest along the last axis of floats that is longer than
            one, or equal integers.
        max_abs: Largest difference of any element; infinite where shapes, or what is finite, differ.
        samples: Number of samples.
        worst_cosine: Smallest cosine of any output in one sample.
        metric: Result of the user's own metric; -1 for False, 0 for True.
        named: Values of metrics by name.
    """

    cosine: float
    top1_agreement: float
    max_abs: float
    samples: int
    worst_cosine: float = 1.0
    metric: float | None = None
    named: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def breaking(self, budget: AccuracyBudget) -> str | None:
        """Return a sentence about the first limit that is exceeded; None if the budget is met."""
        few = budget == OF_VECTORS and not self.named
        min_cosine = COSINE_OF_FEW_VECTORS if few else budget.min_cosine
        if min_cosine is not None and not self.cosine >= min_cosine:
            why = f", which counts since fewer than {FEWEST_VECTORS} vectors say little of neighbours" if few else ""
            return f"the cosine of an output is {self.cosine:.5f}, less than {min_cosine:g}{why}"
        if budget.min_top1_agreement is not None and not self.top1_agreement >= budget.min_top1_agreement:
            return f"{self.top1_agreement:.2%} of the best classes stay, fewer than {budget.min_top1_agreement:.2%}"
        if budget.max_abs is not None and not self.max_abs <= budget.max_abs:
            return f"an element differs by {self.max_abs:.4g}, more than {budget.max_abs:g}"
        if self.metric is not None and not self.metric >= 0:
            return f"{budget.metric} gives {self.metric:.5g}, less than 0"
        missed = (one for one in named_metrics(budget.metric) if not self.named.get(one.name, one.limit) >= one.limit)
        return next((f"{one.name} is {self.named[one.name]:.3f}, less than {one.limit:g}" for one in missed), None)

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values, which have no infinity."""
        fields = dataclasses.asdict(self)
        figures = {k: v for k, v in {**fields, **self.named}.items() if v is not None and k != "named"}
        return {k: round(v, 6) if math.isfinite(v) else None for k, v in figures.items()}


class Comparison:
    """Collects the figures of one precision, sample by sample, in bounded memory unless there is a metric."""

    def __init__(self, budget: AccuracyBudget) -> None:
        """Prepare a comparison without samples.

        Raises:
            MetricError: There is no such metric.
        """
        self._budget = budget
        self._named = named_metrics(budget.metric)
        self._metric = None if budget.metric is None or self._named else load_metric(budget.metric)
        self._outputs: dict[str, _OutputSums] = {}
        self._kept: tuple[list[Outputs], list[Outputs]] = ([], [])
        self._samples = 0

    def add(self, expected: Outputs, actual: Outputs) -> None:
        """Compare the results of one sample.

        Args:
            expected: Results in float32.
            actual: Results in the precision under test.
        """
        self._samples += 1
        for name, value in expected.items():
            self._outputs.setdefault(name, _OutputSums()).add(value, actual[name])
        if self._budget.metric is not None:
            self._kept[0].append(dict(expected))
            self._kept[1].append(dict(actual))

    def figures(self) -> Figures:
        """Return the figures of all samples so far.

        Raises:
            MetricError: The metric failed, or gives no number.
        """
        outputs = self._outputs.values()
        return Figures(
            cosine=min((o.cosine for o in outputs), default=1.0),
            top1_agreement=min((o.top1_agreement for o in outputs), default=1.0),
            max_abs=max((o.max_abs for o in outputs), default=0.0),
            samples=self._samples,
            worst_cosine=min((o.worst_cosine for o in outputs), default=1.0),
            metric=None if self._metric is None else measured(self._metric, self._budget.metric or "", *self._kept),
            named={one.name: measured(one.measure, one.name, *self._kept) for one in self._counting},
        )

    @property
    def _counting(self) -> Sequence[NamedMetric]:
        """The metrics by name that say something of so many rows."""
        arrays = (value for outputs in self._kept[0] for value in outputs.values() if isinstance(value, np.ndarray))
        few = self._budget == OF_VECTORS and sum(map(len, arrays)) < FEWEST_VECTORS
        return () if few else self._named


class _OutputSums:
    """Sums over all samples of one output."""

    def __init__(self) -> None:
        self._products = np.zeros(3)  # expected x actual, expected squared, actual squared
        self._single: list[np.ndarray] = []  # the same of each sample
        self._equal = self._elements = 0
        self._agreeing = self._classes = 0
        self.max_abs = 0.0

    def add(self, expected: Any, actual: Any) -> None:
        if not (isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray)):
            self._count_equal(np.array(_same_objects(expected, actual)))
        elif expected.shape != actual.shape:
            self._fail(max(1, expected.size))
        elif expected.dtype.kind in "fV" and ir.DataType.from_numpy(expected.dtype).is_floating_point():
            self._add_floats(expected.astype(np.float64), actual.astype(np.float64))
        else:
            self._count_equal(np.asarray(expected == actual))
            if expected.dtype.kind in "iu" and expected.size:
                distance = np.abs(expected.astype(np.float64) - actual.astype(np.float64))
                self.max_abs = max(self.max_abs, float(distance.max()))

    @property
    def cosine(self) -> float:
        joint = min(self._share, _cosine(self._products))
        return min(joint, self.worst_cosine) if len(self._single) < FEW_SAMPLES else joint

    @property
    def worst_cosine(self) -> float:
        audible = SILENT * self._products[1] / max(len(self._single), 1)
        return min((self._share, *(_cosine(one) for one in self._single if one[1] >= audible)))

    @property
    def _share(self) -> float:
        """The share of equal elements, of those that are compared so."""
        return self._equal / self._elements if self._elements else 1.0

    @property
    def top1_agreement(self) -> float:
        return self._agreeing / self._classes if self._classes else 1.0

    def _add_floats(self, expected: np.ndarray, actual: np.ndarray) -> None:
        same = np.isclose(expected, actual, rtol=0, atol=0, equal_nan=True)
        finite = np.isfinite(expected) & np.isfinite(actual)
        if not (same | finite).all():
            self._fail(max(1, expected.size))
            return
        a, b = expected[finite], actual[finite]
        products = np.array((a @ b, a @ a, b @ b))
        self._products += products
        self._single.append(products)
        self.max_abs = max(self.max_abs, float(np.abs(a - b).max()) if a.size else 0.0)
        axis = _class_axis(expected.shape)
        if axis is not None:
            agreeing = np.asarray(np.argmax(expected, axis=axis) == np.argmax(actual, axis=axis))
            self._agreeing += int(np.count_nonzero(agreeing))
            self._classes += agreeing.size

    def _count_equal(self, equal: np.ndarray) -> None:
        count = int(np.count_nonzero(equal))
        self._equal, self._elements = self._equal + count, self._elements + equal.size
        self._agreeing, self._classes = self._agreeing + count, self._classes + equal.size

    def _fail(self, elements: int) -> None:
        """Count results that can't be compared as wrong in every element."""
        self.max_abs = math.inf
        self._elements += elements
        self._classes += elements


def _cosine(products: np.ndarray) -> float:
    product, expected, actual = products.tolist()
    if expected == actual == 0:
        return 1.0
    norms = math.sqrt(expected * actual)
    return product / norms if norms else 0.0


def _class_axis(shape: Sequence[int]) -> int | None:
    """The last axis with more than one element; the first one counts samples, unless it is the only one."""
    return next((i for i in reversed(range(len(shape))) if shape[i] > 1 and (i or len(shape) == 1)), None)


def _same_objects(expected: Any, actual: Any) -> bool:
    try:
        return bool(expected == actual)
    except ValueError:  # sequences of arrays
        return all(np.array_equal(a, b) for a, b in zip(expected, actual, strict=False)) and len(expected) == len(
            actual
        )


def _holds_classes(output: ir.Value) -> bool:
    """Return whether an output holds a probability for each class of each sample."""
    producer = output.producer()
    while producer is not None and producer.op_type in RESHAPING:
        value = producer.inputs[0]
        producer = None if value is None else value.producer()
    if producer is None or producer.op_type not in ("Softmax", "LogSoftmax") or output.shape is None:
        return False
    return sum(size != 1 for size in output.shape[1:]) == 1


POOLING = frozenset("GlobalAveragePool GlobalMaxPool LpNormalization ReduceL2 ReduceMax ReduceMean ReduceSum".split())
"""Operators that end in a vector: they join the elements of a sequence or a map, or give it the length one."""

SCALING = frozenset({"Cast", "Clip", "Div", "Identity", "Max", "Mul", "Sqrt", *RESHAPING})
"""Operators between pooling and the result."""


def holds_vectors(outputs: Sequence[ir.Value]) -> bool:
    """Return whether the only float result of a model is a vector for each row, pooled or normalized."""
    floats = [value for value in outputs if value.dtype is not None and value.dtype.is_floating_point()]
    if len(floats) != 1 or floats[0].shape is None or floats[0].shape.rank() != 2:
        return False
    width = floats[0].shape[1]
    return not (isinstance(width, int) and width < SHORTEST_VECTOR) and _is_pooled(floats[0])


def _is_pooled(value: ir.Value | None, steps: int = 8) -> bool:
    producer = None if value is None else value.producer()
    if producer is None or not steps:
        return False
    if producer.op_type in ("Gather", "Slice"):  # the vector of one token
        source = producer.inputs[0]
        return source is not None and source.shape is not None and source.shape.rank() == 3
    first = (_is_pooled(one, steps - 1) for one in producer.inputs)
    return producer.op_type in POOLING or (producer.op_type in SCALING and any(first))
