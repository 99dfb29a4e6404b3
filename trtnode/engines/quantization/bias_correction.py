"""Estimates the mean error that rounded weights add to results, so that it can be taken from biases.

M. Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, ICCV 2019, section 4.2. The
means of activations come from samples here, not from batch normalization.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trtnode.partitioner.graph.view import Graph

CORRECTED = frozenset({"Conv", "Gemm"})
"""Operators that add a bias themselves. The second axis of their first input counts channels."""


class ChannelMeans:
    """Means of the tensors that ``CORRECTED`` operators read, by channel, batch by batch."""

    def __init__(self, graph: Graph) -> None:
        values = [node.op.inputs[0] for node in graph.nodes if node.op_type in CORRECTED]
        self._names = {value.name for value in values if value is not None and value.name}
        self._sums: dict[str, np.ndarray] = {}
        self._counts: dict[str, int] = {}

    def observe(self, values: Mapping[str, np.ndarray]) -> None:
        """Take the tensors of one run into account; those that are not read, or have no elements, are left out."""
        for name in self._names & values.keys():
            array = values[name]
            if array.ndim > 1 and array.size:
                count = array.size // array.shape[1]
                axes = tuple(axis for axis in range(array.ndim) if axis != 1)
                sums = array.mean(axis=axes, dtype=np.float32).astype(np.float64) * count
                self._sums[name] = self._sums.get(name, np.float64(0)) + sums
                self._counts[name] = self._counts.get(name, 0) + count

    def estimates(self) -> dict[str, tuple[float, ...]]:
        """Return the mean of each channel, to the digits of float32, by value name; only where all are finite."""
        means = {name: sums / self._counts[name] for name, sums in self._sums.items()}
        finite = {name: values for name, values in means.items() if np.isfinite(values).all()}
        return {name: tuple(float(f"{value:.7g}") for value in values) for name, values in finite.items()}


def expected_shift(errors: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Estimate the mean that errors of weights add to each output channel, as if nothing were padded.

    Args:
        errors: float32[output channels, positions of a kernel, input channels of a group].
        means: float[input channels].

    Returns:
        float64[output channels].
    """
    by_group = means.reshape(-1, errors.shape[2])
    rows = errors.sum(axis=1, dtype=np.float64).reshape(len(by_group), -1, errors.shape[2])
    return np.asarray(np.einsum("goi,gi->go", rows, by_group).reshape(-1))
