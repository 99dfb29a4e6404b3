"""BatchNormalization folded into convolutions across nodes that engines don't look behind.

Engines fold one that follows a convolution directly; that is left to them.

Proof. BatchNormalization of constants is ``a·x + b`` for each channel, with ``a = scale / √(variance + ε)`` and
``b = bias - a·mean`` (operator specification, inference form).

- Behind: a convolution's result scaled by a and moved by b is the convolution with weights ``a[o]·W[o]`` and bias
  ``a·bias + b``. An average of elements of one channel, padding not counted, has weights that sum up to 1, so
  ``avg(a·x + b) = a·avg(x) + b``; so it is with interpolation, and with Concat of channels, part by part.
- Before: a convolution without padding reads ``a·x + b`` everywhere, so it is the one with weights ``W[o, i]·a[i]`` and
  bias ``bias[o] + Σ_i Σ_j W[o, i, j]·b[i]``. With padding, the zeros at the border would have to be ``-b/a``.

Weights are computed in float64 and rounded once.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.model.values import ONNX_DOMAINS, dimensions
from trtnode.partitioner.passes.rewrites.patterns import array_in, is_closed, is_float32
from trtnode.partitioner.passes.rewrites.replacement import Place, Writer

NORMALIZATION = "BatchNormalization"

BLENDS = ("nearest", "linear")
"""Modes of Resize whose weights sum up to 1."""


@dataclasses.dataclass(frozen=True, slots=True)
class Affine:
    """A factor and an offset of each channel, float64[channels]."""

    factor: np.ndarray
    offset: np.ndarray


def affine_of(op: ir.Node) -> Affine | None:
    """Return what a BatchNormalization does to each channel; None where it isn't of float32 constants."""
    arrays = [array_in(value) for value in op.inputs[1:5]]
    in_training = op.attributes.get_int("training_mode", 0) or not op.attributes.get_int("spatial", 1)
    if in_training or len(arrays) != 4 or sum(bool(v.name and v.uses()) for v in op.outputs[1:]):
        return None
    if any(array is None or array.dtype != np.float32 for array in arrays):
        return None
    scale, shift, mean, variance = (array.astype(np.float64) for array in arrays if array is not None)
    factor = scale / np.sqrt(variance + op.attributes.get_float("epsilon", 1e-5))
    return Affine(factor, shift - factor * mean)


def is_normalization(op: ir.Node | None) -> bool:
    """Return whether a node is a BatchNormalization of ONNX's own domain."""
    return op is not None and op.op_type == NORMALIZATION and op.domain in ONNX_DOMAINS


def find_batch_norm(op: ir.Node) -> Place | None:
    """Find a BatchNormalization that convolutions can take: behind it, or before it but not next to it."""
    affine = affine_of(op) if is_normalization(op) else None
    if affine is None:
        return None
    return _into_next(op, affine) or _into_previous(op, affine)


def _into_next(op: ir.Node, affine: Affine) -> Place | None:
    """Fold into the convolution without padding that alone reads the result."""
    readers = op.outputs[0].consumers()
    weights = array_in(readers[0].inputs[1]) if len(readers) == 1 and _is_convolution(readers[0]) else None
    if weights is None or op.outputs[0].is_graph_output() or readers[0].inputs[0] is not op.outputs[0]:
        return None
    conv = readers[0]
    grouped = conv.attributes.get_int("group", 1) != 1
    if is_padded(conv) or grouped or weights.shape[1] != affine.factor.size or not _bias_is_known(conv):
        return None

    def apply() -> None:
        writer = Writer((conv, op), "folded")
        wide = weights.astype(np.float64)
        moved = wide.sum(axis=tuple(range(2, wide.ndim))) @ affine.offset + _bias(conv, len(wide))
        kernel = wide * _by_axis(affine.factor, 1, wide.ndim)
        constants = writer.constant(kernel), writer.constant(moved)
        writer.finish(writer.copy(conv, op.inputs[0], *constants))

    return Place((conv, op), apply)


def _into_previous(op: ir.Node, affine: Affine) -> Place | None:
    """Fold into the convolutions before pooling, interpolation and Concat."""
    nodes = [op]
    source = op.inputs[0]
    producer = None if source is None else source.producer()
    if producer is None or _is_convolution(producer) or not _collect(source, affine.factor.size, nodes):
        return None
    if not is_closed(nodes):
        return None

    def apply() -> None:
        writer = Writer(nodes, "folded")
        assert source is not None
        writer.finish(_written(writer, source, affine, like=op.outputs[0]))

    return Place(nodes, apply)


def _collect(value: ir.Value | None, channels: int, nodes: list[ir.Node]) -> bool:
    """Add the nodes up to the convolutions that make a value; return whether there is nothing else in the way."""
    op = None if value is None else value.producer()
    if op is None or op in nodes or op.domain not in ONNX_DOMAINS:
        return False
    nodes.append(op)
    if _is_convolution(op):
        weights = array_in(op.inputs[1])
        return weights is not None and len(weights) == channels and _bias_is_known(op)
    if op.op_type == "Concat" and op.attributes.get_int("axis", 0) == 1:
        sizes = [_channels(part) for part in op.inputs]
        parts = zip(op.inputs, sizes, strict=True)
        return sum(size or 0 for size in sizes) == channels and all(_collect(v, n or 0, nodes) for v, n in parts)
    return _averages(op) and _collect(op.inputs[0], channels, nodes)


def _averages(op: ir.Node) -> bool:
    """Return whether each element of a node's result is a mean of elements of its own channel."""
    match op.op_type:
        case "GlobalAveragePool":
            return True
        case "AveragePool":
            counted = op.attributes.get_int("count_include_pad", 0) and is_padded(op)
            return not counted and not op.attributes.get_int("ceil_mode", 0)
        case "Resize" | "Upsample":
            crops = op.attributes.get_string("coordinate_transformation_mode", "") == "tf_crop_and_resize"
            blends = op.attributes.get_string("mode", "nearest") in BLENDS
            kept = _channels(op.inputs[0]) is not None and _channels(op.inputs[0]) == _channels(op.outputs[0])
            return blends and kept and not crops
    return False


def is_padded(op: ir.Node) -> bool:
    """Return whether a window may reach beyond the border: ``auto_pad`` takes the place of ``pads``."""
    automatic = op.attributes.get_string("auto_pad", "NOTSET")
    return automatic.startswith("SAME") if automatic != "NOTSET" else any(op.attributes.get_ints("pads", ()))


def _written(writer: Writer, value: ir.Value, affine: Affine, like: ir.Value | None = None) -> ir.Value:
    """Write the nodes that make a value once more, with convolutions that normalize it."""
    op = value.producer()
    assert op is not None
    if _is_convolution(op):
        weights = array_in(op.inputs[1])
        assert weights is not None
        kernel = weights * _by_axis(affine.factor, 0, weights.ndim)
        moved = _bias(op, len(weights)) * affine.factor + affine.offset
        return writer.copy(op, op.inputs[0], writer.constant(kernel), writer.constant(moved), like=value)
    if op.op_type != "Concat":
        assert op.inputs[0] is not None
        return writer.copy(op, _written(writer, op.inputs[0], affine), *op.inputs[1:], like=like or value)
    ends = np.cumsum([_channels(part) or 0 for part in op.inputs])[:-1]
    factors, offsets = np.split(affine.factor, ends), np.split(affine.offset, ends)
    parts = zip(op.inputs, map(Affine, factors, offsets), strict=True)
    return writer.copy(op, *[_written(writer, part, own) for part, own in parts if part is not None], like=value)


def _is_convolution(op: ir.Node) -> bool:
    return op.op_type == "Conv" and op.domain in ONNX_DOMAINS and all(map(is_float32, op.inputs[:2]))


def _bias_is_known(conv: ir.Node) -> bool:
    return len(conv.inputs) < 3 or conv.inputs[2] is None or array_in(conv.inputs[2]) is not None


def _bias(conv: ir.Node, channels: int) -> np.ndarray:
    known = array_in(conv.inputs[2]) if len(conv.inputs) > 2 else None
    return np.zeros(channels) if known is None else known.astype(np.float64)


def _by_axis(numbers: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """Return numbers in a shape that spreads them over an axis."""
    return numbers.reshape([-1 if place == axis else 1 for place in range(rank)])


def _channels(value: ir.Value | None) -> int | None:
    shape = None if value is None else dimensions(value)
    size = shape[1] if shape is not None and len(shape) > 1 else None
    return size if isinstance(size, int) else None
