"""From the values of one tensor, batch by batch, to the range that eight bits should represent.

The rules are those of ONNX Runtime's calibrators. Those keep every tensor of every batch until the last one, and search
thresholds in Python loops that take seconds a tensor. Here a tensor costs the memory of one histogram.

A histogram has 2048 bins, whose width doubles when a value lies outside. Tests compare its thresholds with ONNX
Runtime's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

EMPTY_BIN = 1e-4
"""Count of an empty bin in a divergence, as a part of one value."""

Histogram = npt.NDArray[np.int64]


class RangeEstimator(Protocol):
    """Learns the range of one tensor."""

    def observe(self, values: np.ndarray, lowest: float, highest: float, /) -> None:
        """Take one batch into account.

        Args:
            values: float32, not empty, all finite; its memory is used again after the call.
            lowest: The smallest value.
            highest: The largest value.
        """
        ...

    def estimate(self) -> tuple[float, float]:
        """The range, after at least one batch."""
        ...


EstimatorFactory = Callable[[], RangeEstimator]


class MinMax:
    """Everything that was seen."""

    def __init__(self) -> None:
        self._low, self._high = np.inf, -np.inf

    def observe(self, _values: np.ndarray, lowest: float, highest: float, /) -> None:
        """Widen the range."""
        self._low, self._high = min(self._low, lowest), max(self._high, highest)

    def estimate(self) -> tuple[float, float]:
        """Lowest and highest value."""
        return self._low, self._high


class MovingAverage:
    """Extremes of the batches, averaged with weights that fall exponentially, so that one outlier counts little."""

    WEIGHT = 0.01

    def __init__(self) -> None:
        self._range: tuple[float, float] | None = None

    def observe(self, _values: np.ndarray, lowest: float, highest: float, /) -> None:
        """Move both ends a little towards the batch's."""
        low, high = self._range or (lowest, highest)
        self._range = low + self.WEIGHT * (lowest - low), high + self.WEIGHT * (highest - high)

    def estimate(self) -> tuple[float, float]:
        """The averages."""
        assert self._range is not None
        return self._range


class Mean:
    """Extremes of groups of samples, averaged: values that few samples reach are cut off, and all steps get finer.

    A group has as many samples as make ``ENOUGH`` values: cutting off about one in ten thousand costs eight bits of a
    normal distribution the least squared error. So a tensor with few values keeps its extremes.
    """

    ENOUGH = 1 << 14

    def __init__(self) -> None:
        self._sums, self._groups = np.zeros(2), 0
        self._open, self._count = MinMax(), 0

    def observe(self, values: np.ndarray, lowest: float, highest: float, /) -> None:
        """Take one sample into the open group, and close it if it has enough values."""
        self._open.observe(values, lowest, highest)
        self._count += values.size
        if self._count >= self.ENOUGH:
            self._sums += self._open.estimate()
            self._groups += 1
            self._open, self._count = MinMax(), 0

    def estimate(self) -> tuple[float, float]:
        """The averages."""
        low, high = self._sums / self._groups if self._groups else self._open.estimate()
        return float(low), float(high)


class _HistogramEstimator:
    """Counts values in bins of equal width between -limit and +limit.

    A value beyond the limit doubles it: neighbouring bins are joined, so that memory stays the same.
    """

    BINS = 2048
    ENOUGH = 1 << 16
    """Of a batch with twice as many values or more, only some are counted, evenly spaced; extremes are always seen."""

    def __init__(self) -> None:
        self._counts: Histogram = np.zeros(self.BINS, np.int64)
        self._limit = 0.0
        self._extremes = MinMax()

    def observe(self, values: np.ndarray, lowest: float, highest: float, /) -> None:
        """Count a batch."""
        self._extremes.observe(values, lowest, highest)
        self._reach(max(abs(lowest), abs(highest)))
        limit = np.float32(self._limit)
        scale = np.float32(self.BINS * (1 - 1e-6) / (2 * self._limit) if limit else 0)  # the limit itself is inside
        step = (values.size // self.ENOUGH) | 1  # odd, so as not to pick the same columns of every row
        bins = ((values.reshape(-1)[::step] + limit) * scale).astype(np.intp)
        self._counts += np.bincount(bins, minlength=self.BINS)

    def _reach(self, largest: float) -> None:
        if not self._limit:  # all values so far were zeros
            zeros, self._counts = self._counts.sum(), np.zeros_like(self._counts)
            self._counts[self.BINS // 2] = zeros
            self._limit = largest
        while self._limit < largest:
            quarter = self.BINS // 4
            self._counts = np.pad(self._counts.reshape(-1, 2).sum(axis=1), quarter)
            self._limit *= 2

    def _between(self, left: int, right: int) -> tuple[float, float]:
        """The values at two edges of bins, inside what was seen."""
        low, high = self._extremes.estimate()
        edges = np.linspace(-self._limit, self._limit, self.BINS + 1)
        return max(low, float(edges[left])), min(high, float(edges[right]))


class Percentile(_HistogramEstimator):
    """Leaves out the same share of the values at both ends."""

    def __init__(self, percentile: float) -> None:
        super().__init__()
        self._cut = (100.0 - percentile) / 200.0

    def estimate(self) -> tuple[float, float]:
        """The range without its tails."""
        cumulated = np.cumsum(self._counts / self._counts.sum())
        left, right = np.searchsorted(cumulated, [self._cut, 1.0 - self._cut])
        return self._between(int(left), min(int(right) + 1, self.BINS))


class Entropy(_HistogramEstimator):
    """Cuts both ends where the quantized distribution keeps the most information about the original one.

    The threshold with the smallest Kullback-Leibler divergence, as in TensorRT's entropy calibration
    (S. Migacz, 8-bit Inference with TensorRT, GTC 2017).
    """

    LEVELS = 128

    def estimate(self) -> tuple[float, float]:
        """The range with the smallest divergence."""
        middle = self.BINS // 2
        candidates = range(self.LEVELS // 2, middle + 1)
        half = min(candidates, key=lambda half: self._divergence(middle - half, min(middle + half + 1, self.BINS)))
        return self._between(middle - half, min(middle + half + 1, self.BINS))

    def _divergence(self, start: int, end: int) -> float:
        """Divergence from quantizing bins [start, end) to ``LEVELS`` levels, with values outside moved to the ends."""
        inside = self._counts[start:end]
        original = inside.copy()
        original[0] += self._counts[:start].sum()
        original[-1] += self._counts[end:].sum()
        width = inside.size // self.LEVELS
        shape, used = (self.LEVELS, width), self.LEVELS * width
        sums = inside[:used].reshape(shape).sum(axis=1)
        sums[-1] += inside[used:].sum()
        filled = (original[:used] != 0).reshape(shape).sum(axis=1)
        quantized = np.zeros_like(original)
        quantized[:used] = np.repeat(sums // np.maximum(filled, 1), width)
        if not quantized.any():
            return float("inf")
        p, q = _smoothed(original), _smoothed(quantized)
        return float(np.sum(p * np.log(p / q)))


def _smoothed(counts: Histogram) -> npt.NDArray[np.float64]:
    """A distribution without zeros: each gets a little, which the others give."""
    empty = counts == 0
    given = EMPTY_BIN * empty.sum() / (~empty).sum()
    smooth = counts + np.where(empty, EMPTY_BIN, -given)
    return np.asarray(smooth / smooth.sum())


def find_estimator(method: str, percentile: float) -> EstimatorFactory:
    """Look up one of ``CALIBRATION_METHODS``."""
    estimators: dict[str, EstimatorFactory] = {
        "mean": Mean,
        "minmax": MinMax,
        "moving-average": MovingAverage,
        "entropy": Entropy,
        "percentile": functools.partial(Percentile, percentile),
    }
    return estimators[method]
