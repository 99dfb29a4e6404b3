"""A budget: how far answers may move from float32 before a precision is given up. Figures: how far they have moved.

With fewer than ten samples, each must be inside the budget's cosine by itself, because a joint cosine hides a bad
sample. Data with fewer than ten samples are evaluated on all of them. With many samples, the worst one says more about
the sample than about the precision.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.errors import MetricError
from trtnode.engines.precision.options import AccuracyBudget
from trtnode.engines.quantization.user_functions import load_function
from trtnode.partitioner.graph.view import Graph

RESHAPING = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})

COSINE = 0.99
"""Smallest cosine of any output where the user sets no limit: over all samples together, and in each one of few."""

COSINE_OF_CLASSES = 0.995
"""Smallest cosine of a classifier whose user sets no limit: noise of a tenth. The two largest probabilities of an
uncertain answer change places early. Of a few dozen samples, a cosine is surer than a share of best classes."""

Outputs = Mapping[str, Any]
"""Results of one sample, by output name."""

Metric = Callable[[Sequence[Outputs], Sequence[Outputs]], float]
"""A user's own metric of answers against those in float32: at least 0, or True, where they are good enough."""

FEW_SAMPLES = 10
"""Fewer samples than this say little about a mean, so each must be near enough by itself."""

SILENT = 1e-4
"""A sample in which an output has less than this part of its mean energy has no direction worth comparing."""


def adapted(budget: AccuracyBudget, graph: Graph | None) -> AccuracyBudget:
    """Return the limits for a model; those that are set hold for any.

    Without any, there is one of the cosine, which is higher where the model gives probabilities of classes. Of answers
    to generated inputs, which is without a graph, it isn't.
    """
    if budget != AccuracyBudget():
        return budget
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
        metric: Result of the user's own metric; -1 for False, 0 for True.
    """

    cosine: float
    top1_agreement: float
    max_abs: float
    samples: int
    metric: float | None = None

    def breaking(self, budget: AccuracyBudget) -> str | None:
        """Return a sentence about the first limit that is exceeded; None if the budget is met."""
        if budget.min_cosine is not None and not self.cosine >= budget.min_cosine:
            return f"the cosine of an output is {self.cosine:.5f}, less than {budget.min_cosine:g}"
        if budget.min_top1_agreement is not None and not self.top1_agreement >= budget.min_top1_agreement:
            return f"{self.top1_agreement:.2%} of the best classes stay, fewer than {budget.min_top1_agreement:.2%}"
        if budget.max_abs is not None and not self.max_abs <= budget.max_abs:
            return f"an element differs by {self.max_abs:.4g}, more than {budget.max_abs:g}"
        if self.metric is not None and not self.metric >= 0:
            return f"{budget.metric} gives {self.metric:.5g}, less than 0"
        return None

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values, which have no infinity."""
        fields = {k: v for k, v in dataclasses.asdict(self).items() if v is not None}
        return {k: round(v, 6) if math.isfinite(v) else None for k, v in fields.items()}


class Comparison:
    """Collects the figures of one precision, sample by sample, in bounded memory unless there is a metric."""

    def __init__(self, budget: AccuracyBudget) -> None:
        """Prepare a comparison without samples.

        Raises:
            MetricError: There is no such metric.
        """
        self._metric = None if budget.metric is None else load_metric(budget.metric)
        self._name = budget.metric or ""
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
        if self._metric is not None:
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
            metric=None if self._metric is None else _measured(self._metric, self._name, *self._kept),
        )


class _OutputSums:
    """Sums over all samples of one output."""

    def __init__(self) -> None:
        self._products = np.zeros(3)  # expected x actual, expected squared, actual squared
        self._single: list[np.ndarray] = []  # the same of the first samples
        self._equal = self._elements = 0
        self._agreeing = self._classes = 0
        self._has_floats = False
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
        share = self._equal / self._elements if self._elements else 1.0
        if not self._has_floats:
            return share
        few = self._single if len(self._single) < FEW_SAMPLES else []
        audible = SILENT * self._products[1] / max(len(few), 1)
        compared = [self._products, *(one for one in few if one[1] >= audible)]
        return min(share, *map(_cosine, compared))

    @property
    def top1_agreement(self) -> float:
        return self._agreeing / self._classes if self._classes else 1.0

    def _add_floats(self, expected: np.ndarray, actual: np.ndarray) -> None:
        self._has_floats = True
        same = np.isclose(expected, actual, rtol=0, atol=0, equal_nan=True)
        finite = np.isfinite(expected) & np.isfinite(actual)
        if not (same | finite).all():
            self._fail(max(1, expected.size))
            return
        a, b = expected[finite], actual[finite]
        products = np.array((a @ b, a @ a, b @ b))
        self._products += products
        if len(self._single) < FEW_SAMPLES:
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


def load_metric(name: str) -> Metric:
    """Import a user's own metric.

    Raises:
        MetricError: The name is not ``module:function``, or there is no such function.
    """
    module, _, function = name.partition(":")
    if not (module and function):
        raise MetricError(name, "it should be MODULE:FUNCTION, such as 'evaluation:word_error_margin'")
    try:
        metric: Metric = load_function(name)
    except Exception as error:  # whatever importing a module can raise
        raise MetricError(name, f"it can't be imported ({type(error).__name__}: {error})") from error
    if not callable(metric):
        raise MetricError(name, "it is no function")
    return metric


def _measured(metric: Metric, name: str, expected: Sequence[Outputs], actual: Sequence[Outputs]) -> float:
    try:
        value = metric(expected, actual)
    except Exception as error:  # the function is the user's
        raise MetricError(name, f"it failed ({type(error).__name__}: {error})") from error
    if isinstance(value, bool | np.bool_):
        return 0.0 if value else -1.0
    if not isinstance(value, numbers.Real):
        raise MetricError(name, f"it gave {value!r}; it should give a number, at least 0 where answers are good enough")
    return float(value)


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
