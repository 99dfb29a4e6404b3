"""The classification extension: an output's best classes instead of its values, as Triton writes them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from trtnode.serving.errors import InvalidRequestError
from trtnode.serving.protocol.wire_signature import BOOL, BYTES, WireTensor

MOST_CLASSES = 1 << 20
"""Of one output in one response: a class takes many times the memory of a value."""


def classified(
    tensors: Sequence[WireTensor], arrays: Sequence[np.ndarray], counts: Mapping[str, int], *, is_batched: bool
) -> tuple[list[WireTensor], list[np.ndarray]]:
    """Replace the outputs that are wanted as classifications.

    Args:
        tensors: The outputs.
        arrays: Of each output.
        counts: How many classes are wanted, by name of the output; others stay as they are.
        is_batched: Whether each row of axis 0 is an example of its own. Else the whole array is one.

    Returns:
        The outputs and their arrays. A classification is BYTES[rows, k], or BYTES[k] for one example, of
        ``"value:index"``, or ``"value:index:label"`` where the class has a name, the largest value first.

    Raises:
        InvalidRequestError: An output has no order, or its classes are too many for one response.
    """
    pairs = [
        _classified(tensor, array, counts[tensor.name], is_batched=is_batched)
        if tensor.name in counts
        else (tensor, array)
        for tensor, array in zip(tensors, arrays, strict=True)
    ]
    return [tensor for tensor, _ in pairs], [array for _, array in pairs]


def _classified(
    tensor: WireTensor, array: np.ndarray, count: int, *, is_batched: bool
) -> tuple[WireTensor, np.ndarray]:
    if tensor.datatype in (BOOL, BYTES):
        raise InvalidRequestError(f"{tensor.label} has type {tensor.datatype.name}, which has no classification")
    batch = array.shape[:1] if is_batched else ()
    size = math.prod(array.shape[len(batch) :])
    shape = (*batch, min(count, size))
    if math.prod(shape) > MOST_CLASSES:
        raise InvalidRequestError(f"{tensor.label} has more than {MOST_CLASSES} classes to give; ask for fewer")
    rows = array.reshape(math.prod(batch), size)
    classes = np.array([one for row in rows for one in _best(row, shape[-1], tensor.classes)], object).reshape(shape)
    return dataclasses.replace(tensor, datatype=BYTES), classes


def _best(values: np.ndarray, count: int, names: Sequence[str]) -> list[str]:
    """Return the largest values of an example with their places; of equal ones the first, and NaN last."""
    whole = values.dtype.kind in "iu"  # float16 and bfloat16 are neither, nor of kind f
    values = values if whole else values.astype(np.float64)
    ranked = values if whole else np.where(np.isnan(values), -np.inf, values)
    return [
        f"{values[place] if whole else format(values[place], 'f')}:{place}"
        + (f":{names[place]}" if place < len(names) else "")
        for place in _descending(ranked)[:count]
    ]


def _descending(values: np.ndarray) -> np.ndarray:
    return (len(values) - 1 - np.argsort(values[::-1], kind="stable"))[::-1]
