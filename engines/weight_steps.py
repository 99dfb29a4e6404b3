"""How finely eight bits can hold weights: by the largest one, or by what a processor can add up."""

from __future__ import annotations

import numpy as np

from engines.quantization_plan import QuantizationScheme

LARGEST = 127
"""Of a quantized weight. Of two that are added in 16 bits as well: rounded they are at most 128; 255 * 128 < 2**15."""


def weight_step(values: np.ndarray, axis: int | None, scheme: QuantizationScheme) -> np.ndarray:
    """The value of the integer 1 in each channel.

    The largest absolute value becomes 127. Where a processor adds two products at a time in 16 bits, the largest sum of
    two neighbours of one sign does: weights keep nearly all of their 8 bits, unless two large ones meet.

    Args:
        values: The weights, float32.
        axis: Of the output channels; None where all weights have one step.
        scheme: What the target likes.

    Returns:
        float32[channels], or a scalar. A channel of zeros gets the step of the largest one, so that its bias still has
        a fine one.
    """
    if axis is None:
        largest = np.abs(values).max() * (2 if scheme.short_sums else 1)
    elif scheme.short_sums:
        largest = _largest_pair(channel_rows(values, axis), scheme)
    else:
        largest = np.abs(channel_rows(values, axis)).max(axis=(1, 2))
    return np.asarray(np.where(largest > 0, largest, largest.max() or 1.0) / LARGEST, np.float32)


def channel_rows(values: np.ndarray, axis: int) -> np.ndarray:
    """Weights as [output channels, input channels, positions of a kernel]."""
    rows = np.moveaxis(values, axis, 0)
    return rows.reshape(*rows.shape[:2], -1)


def _largest_pair(rows: np.ndarray, scheme: QuantizationScheme) -> np.ndarray:
    """The largest absolute sum of two neighbours of one sign, float32[output channels]."""
    if scheme.pairs_cross_positions:
        rows = rows.transpose(0, 2, 1).reshape(len(rows), -1, 1)
    padded = np.pad(rows, ((0, 0), (0, rows.shape[1] % 2), (0, 0)))
    pairs = padded.reshape(len(rows), -1, 2, rows.shape[2])
    return np.maximum(*(np.maximum(signed, 0).sum(axis=2).max(axis=(1, 2)) for signed in (pairs, -pairs)))
