"""Scales of 8-bit weights: by the largest weight, or by the sums that a processor can add up."""

from __future__ import annotations

import numpy as np

LARGEST = 127
"""Largest quantized weight, and largest sum of two that are added in 16 bits. Rounded it is 128 at most, and 255 * 128
is less than 2**15."""


def weight_step(
    values: np.ndarray, axis: int | None, *, short_sums: bool, grouped: bool = False, most: float = LARGEST
) -> np.ndarray:
    """Return the value of the integer 1 in each channel.

    The largest absolute value becomes ``most``. Where a processor adds two products at a time in 16 bits, the largest
    sum of two neighbours of one sign does. So weights keep nearly all of their 8 bits, unless two large ones meet.

    Neighbours of OpenVINO are input channels 2i and 2i + 1 at one position of a kernel. Those of ONNX Runtime are
    elements 2i and 2i + 1 of all positions with their channels in a row. In kernels for groups or without channels, any
    two weights may meet, because their order is not known.

    Args:
        values: The weights, float32.
        axis: Axis of the output channels; None where all weights have one step.
        short_sums: True if the processor adds so.
        grouped: True if they are of a convolution with several groups of several channels.
        most: The largest quantized weight.

    Returns:
        float32[channels], or a scalar. A channel of zeros gets the step of the largest one, so that its bias still has
        a fine one.
    """
    if axis is not None and short_sums and not grouped:
        largest = _largest_pair(channel_rows(values, axis))
    else:
        single = np.abs(values).max() if axis is None else np.abs(channel_rows(values, axis)).max(axis=(1, 2))
        largest = np.asarray(2 * single if short_sums else single)
    return np.asarray(np.where(largest > 0, largest, largest.max() or 1.0) / most, np.float32)


def channel_rows(values: np.ndarray, axis: int) -> np.ndarray:
    """Return weights as [output channels, positions of a kernel, input channels]."""
    rows = np.moveaxis(values, axis, 0)
    return rows.reshape(*rows.shape[:2], -1).transpose(0, 2, 1)


def _largest_pair(rows: np.ndarray) -> np.ndarray:
    """The largest absolute sum of two neighbours of one sign, float32[output channels]."""
    return np.asarray(np.maximum(_largest_sum(rows), _largest_sum(rows.reshape(len(rows), 1, -1))))


def _largest_sum(rows: np.ndarray) -> np.ndarray:
    padded = np.pad(rows, ((0, 0), (0, 0), (0, rows.shape[2] % 2)))
    pairs = padded.reshape(*rows.shape[:2], -1, 2)
    positive, negative = (np.maximum(signed, 0).sum(axis=3).max(axis=(1, 2)) for signed in (pairs, -pairs))
    return np.asarray(np.maximum(positive, negative))
