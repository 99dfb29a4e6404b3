"""Metrics of answers against those in float32: some by name, such as ``recall@10``, or a function of the user's own."""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trtnode.engines.errors import MetricError
from trtnode.engines.quantization.user_functions import load_function

Outputs = Mapping[str, Any]
"""Results of one sample, by output name."""

Metric = Callable[[Sequence[Outputs], Sequence[Outputs]], float]
"""A user's own metric of answers against those in float32: at least 0, or True, where they are good enough."""

NAMED = re.compile(r"(?P<kind>recall@|spearman|psnr)(?P<k>(?<=@)[1-9]\d{0,3})?(?:>=(?P<limit>\d+(?:\.\d+)?))?")

LIMITS = {"recall@1": 0.95, "recall@": 0.97, "spearman": 0.98, "psnr": 40.0}
"""Least values that are good enough where none is given; of PSNR in decibels."""


@dataclasses.dataclass(frozen=True, slots=True)
class NamedMetric:
    """A metric that every model with float results has.

    Attributes:
        name: ``recall@K``, the mean share of each row's K nearest rows by cosine that stay so; ``spearman``, the rank
            correlation of scores, or of the cosines of all pairs of rows where a row has several numbers; ``psnr``, the
            peak signal-to-noise ratio, of the range of all numbers, in decibels.
        limit: The least value that is good enough.
    """

    name: str
    limit: float

    def measure(self, expected: Sequence[Outputs], actual: Sequence[Outputs]) -> float:
        """Return the value of the metric on the first float output.

        Raises:
            ValueError: There is no float output, or there are too few rows.
        """
        output = next((name for name, value in expected[0].items() if _is_float(value)), None)
        if output is None:
            raise ValueError("the model has no float output")
        want, got = (_rows([one[output] for one in side]) for side in (expected, actual))
        if want.shape != got.shape:
            raise ValueError(f"output {output!r} has other sizes")
        if self.name == "psnr":
            return _psnr(want, got)
        return _spearman(want, got) if self.name == "spearman" else _recall(want, got, int(self.name.split("@")[1]))


def named_metrics(names: str | None) -> tuple[NamedMetric, ...]:
    """Return the metrics that a list such as ``recall@10>=0.97,psnr`` names; none if it names a function."""
    found = [NAMED.fullmatch(name.strip()) for name in (names or "").split(",")]
    return tuple(_of(one) for one in found if one) if all(found) else ()


def load_metric(name: str) -> Metric:
    """Import a user's own metric.

    Raises:
        MetricError: The name is not ``module:function``, or there is no such function.
    """
    module, _, function = name.partition(":")
    if not (module and function):
        known = "or recall@K, spearman or psnr, each with a limit if need be: 'recall@10>=0.97'"
        raise MetricError(name, f"it should be MODULE:FUNCTION, such as 'evaluation:word_error_margin', {known}")
    try:
        metric: Metric = load_function(name)
    except Exception as error:  # whatever importing a module can raise
        raise MetricError(name, f"it can't be imported ({type(error).__name__}: {error})") from error
    if not callable(metric):
        raise MetricError(name, "it is no function")
    return metric


def measured(metric: Metric, name: str, expected: Sequence[Outputs], actual: Sequence[Outputs]) -> float:
    """Return what a metric gives; -1 for False, 0 for True.

    Raises:
        MetricError: It fails, or gives no number.
    """
    try:
        value = metric(expected, actual)
    except Exception as error:  # the function is the user's
        raise MetricError(name, f"it failed ({type(error).__name__}: {error})") from error
    if isinstance(value, bool | np.bool_):
        return 0.0 if value else -1.0
    if not isinstance(value, numbers.Real):
        raise MetricError(name, f"it gave {value!r}; it should give a number, at least 0 where answers are good enough")
    return float(value)


def _of(match: re.Match[str]) -> NamedMetric:
    name = f"{match['kind']}{match['k'] or ''}"
    return NamedMetric(name, float(match["limit"] or LIMITS.get(name, LIMITS[match["kind"]])))


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.floating)


def _rows(values: Sequence[np.ndarray]) -> np.ndarray:
    """Return the rows of all samples, float64[rows, numbers]; a sample without a batch axis is one row."""
    batches = [value.reshape(len(value) if value.ndim > 1 else 1, -1) for value in values]
    if len({batch.shape[1] for batch in batches}) > 1:
        batches = [np.concatenate([batch.ravel() for batch in batches])[:, np.newaxis]]
    return np.concatenate(batches).astype(np.float64)


def _cosines(rows: np.ndarray) -> np.ndarray:
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return np.asarray(unit @ unit.T)


def _recall(expected: np.ndarray, actual: np.ndarray, k: int) -> float:
    if len(expected) <= k:
        raise ValueError(f"{len(expected)} rows have no {k} neighbours each; give more samples")
    want, got = (_nearest(_cosines(rows), k) for rows in (expected, actual))
    return float(np.mean([len(np.intersect1d(a, b)) / k for a, b in zip(want, got, strict=True)]))


def _nearest(cosines: np.ndarray, k: int) -> np.ndarray:
    np.fill_diagonal(cosines, -np.inf)
    return np.argsort(-cosines, axis=1, kind="stable")[:, :k]


def _spearman(expected: np.ndarray, actual: np.ndarray) -> float:
    scores = [rows.ravel() if rows.shape[1] == 1 else _pairs(_cosines(rows)) for rows in (expected, actual)]
    want, got = map(_ranks, scores)
    if len(want) < 2 or min(want.std(), got.std()) == 0:
        raise ValueError("all rows have the same score; give samples that differ")
    return float(np.corrcoef(want, got)[0, 1])


def _pairs(cosines: np.ndarray) -> np.ndarray:
    return np.asarray(cosines[np.triu_indices(len(cosines), 1)])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the mean rank of each number among all."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places])


def _psnr(expected: np.ndarray, actual: np.ndarray) -> float:
    error, peak = float(np.mean((expected - actual) ** 2)), float(np.ptp(expected))
    if error == 0:
        return math.inf
    return 20 * math.log10(peak) - 10 * math.log10(error) if peak > 0 and math.isfinite(error) else -math.inf
