"""Parallel convolutions of one value, added up, become one convolution (RepVGG, MobileOne, and networks like them).

Networks that are trained with several branches a block are meant to be merged before they are used: Ding et al.,
RepVGG: Making VGG-style ConvNets Great Again, 2021, section 3.3; Vasu et al., MobileOne, 2023, section 3.2.

Proof. A convolution without bias is a sum over kernel positions, ``y[o, p] = Σ_j W[o, :, j] · x[:, s·p - P + D·j]``,
where x is 0 outside. It is linear in W, so:

- BatchNormalization of constants is ``a·y + b`` for each channel, with ``a = scale / √(variance + ε)`` and
  ``b = bias - a·mean`` (operator specification, inference form): a scales W[o], and b is a bias.
- A kernel with padding P' inside one with padding P ≥ P' stands P - P' positions further; zeros around it add nothing.
  Their results have the same size where ``P + P_end - (K - 1)·D`` is the same, for the same stride.
- The value itself is its convolution by a 1 x 1 identity, for stride 1.
- Sums of convolutions that read the same positions are the convolution by the sum of the kernels and of the biases.

Weights are added up in float64 and rounded once. The merged kernel is no larger than all branches together.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.model.values import ONNX_DOMAINS
from trtnode.partitioner.passes.rewrites.patterns import array_in, is_closed, is_float32
from trtnode.partitioner.passes.rewrites.replacement import Replacement, Writer

SUMS = ("Add", "Sum")

MOST_BRANCHES = 64


@dataclasses.dataclass(frozen=True, slots=True)
class _Affine:
    """A factor and an offset of each channel, float64[channels]."""

    factor: np.ndarray
    offset: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    """A convolution with its normalization, or the value itself with its own.

    Attributes:
        source: The value that it reads.
        nodes: Its nodes.
        affine: What follows the convolution.
        conv: The convolution; None for the value itself.
    """

    source: ir.Value
    nodes: tuple[ir.Node, ...]
    affine: _Affine | None
    conv: ir.Node | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """Weights and geometry of a branch; ``weights`` is float64[channels, channels of a group, sizes...]."""

    weights: np.ndarray
    bias: np.ndarray
    begin: tuple[int, ...]
    reach: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self.weights.shape[2:])


def find_branches(op: ir.Node) -> Replacement | None:
    """Find a sum of convolutions of one value that ends at a node."""
    if op.op_type not in SUMS or op.domain not in ONNX_DOMAINS or not is_float32(op.outputs[0]):
        return None
    sums, leaves = _leaves(op)
    if not 2 <= len(leaves) <= MOST_BRANCHES:
        return None
    found = [_branch(leaf) for leaf in leaves]
    for source in dict.fromkeys(branch.source for branch in found if branch.conv is not None):
        # The value itself may be the result of a convolution or a normalization.
        branches = [b if b.source is source else _itself(leaf) for b, leaf in zip(found, leaves, strict=True)]
        if all(branch.source is source for branch in branches):
            return _place(source, sums, branches)
    return None


def _place(source: ir.Value, sums: Sequence[ir.Node], branches: Sequence[_Branch]) -> Replacement | None:
    nodes = tuple(dict.fromkeys([*sums, *(op for branch in branches for op in branch.nodes)]))
    merged = _merged(branches) if is_closed(nodes) else None
    if merged is None:
        return None

    def apply() -> None:
        writer = Writer(nodes, "merged")
        writer.finish(_write(writer, source, merged, like=sums[0].outputs[0]))

    return Replacement(nodes, apply)


def _write(writer: Writer, source: ir.Value, kernel: _Kernel, *, like: ir.Value) -> ir.Value:
    end = [
        r - b + (k - 1) * d
        for r, b, k, d in zip(kernel.reach, kernel.begin, kernel.sizes, kernel.dilations, strict=True)
    ]
    constants = writer.constant(kernel.weights), writer.constant(kernel.bias)
    return writer.call(
        "Conv",
        source,
        *constants,
        like=like,
        kernel_shape=kernel.sizes,
        strides=kernel.strides,
        dilations=kernel.dilations,
        pads=(*kernel.begin, *end),
        group=kernel.groups,
    )


def _leaves(root: ir.Node) -> tuple[list[ir.Node], list[ir.Value]]:
    """Return the nodes of a tree of sums and the values that they add up."""
    sums, leaves, pending = [], [], [root]
    while pending:
        op = pending.pop()
        sums.append(op)
        for value in op.inputs:
            producer = None if value is None else value.producer()
            inner = value is not None and len(value.uses()) == 1 and not value.is_graph_output()
            if inner and producer is not None and producer.op_type in SUMS and producer.domain in ONNX_DOMAINS:
                pending.append(producer)
            elif value is not None:
                leaves.append(value)
    return sums, leaves


def _branch(leaf: ir.Value) -> _Branch:
    norm = leaf.producer()
    if norm is None or not _is_normalization(norm):
        return _convolution(leaf, None)
    affine, source = _affine_of(norm), norm.inputs[0]
    if affine is None or source is None:
        return _itself(leaf)
    if len(source.uses()) > 1 or source.is_graph_output():
        return _Branch(source=source, nodes=(norm,), affine=affine, conv=None)
    branch = _convolution(source, affine)
    return dataclasses.replace(branch, nodes=(norm, *branch.nodes), affine=affine)


def _convolution(value: ir.Value, affine: _Affine | None) -> _Branch:
    conv = value.producer()
    if conv is None or conv.op_type != "Conv" or conv.domain not in ONNX_DOMAINS or conv.inputs[0] is None:
        return _Branch(source=value, nodes=(), affine=affine, conv=None)
    return _Branch(source=conv.inputs[0], nodes=(conv,), affine=affine, conv=conv)


def _itself(value: ir.Value) -> _Branch:
    return _Branch(source=value, nodes=(), affine=None, conv=None)


def _merged(branches: Sequence[_Branch]) -> _Kernel | None:
    """Return the sum of branches; None where one can't be added up, or the sum would be larger than all of them."""
    convolutions = [_kernel(branch) for branch in branches if branch.conv is not None]
    known = [kernel for kernel in convolutions if kernel is not None]
    if len(known) < len(convolutions) or not known:
        return None
    first = known[0]
    identities = [_identity(first, branch.affine) for branch in branches if branch.conv is None]
    kernels = [*known, *(kernel for kernel in identities if kernel is not None)]
    same = {(k.strides, k.reach, k.groups, k.weights.shape[:2]) for k in kernels}
    dilations = _joined_dilations(kernels)
    if len(same) > 1 or len(kernels) < len(branches) or dilations is None:
        return None
    begin = tuple(max(k.begin[axis] for k in kernels) for axis in range(len(first.sizes)))
    offsets = [tuple((p - b) // d for p, b, d in zip(begin, k.begin, dilations, strict=True)) for k in kernels]
    if any((p - b) % d for k in kernels for p, b, d in zip(begin, k.begin, dilations, strict=True)):
        return None
    sizes = tuple(
        max(o[axis] + k.sizes[axis] for o, k in zip(offsets, kernels, strict=True)) for axis in range(len(begin))
    )
    ends = [r - b + (k - 1) * d for r, b, k, d in zip(first.reach, begin, sizes, dilations, strict=True)]
    if math.prod(sizes) > sum(math.prod(k.sizes) for k in known) or min(ends) < 0:
        return None
    weights = np.zeros((*first.weights.shape[:2], *sizes))
    for kernel, offset in zip(kernels, offsets, strict=True):
        inside = tuple(slice(o, o + k) for o, k in zip(offset, kernel.sizes, strict=True))
        weights[(slice(None), slice(None), *inside)] += kernel.weights
    bias = np.sum([kernel.bias for kernel in kernels], axis=0)
    return dataclasses.replace(first, weights=weights, bias=bias, begin=begin, dilations=dilations)


def _joined_dilations(kernels: Sequence[_Kernel]) -> tuple[int, ...] | None:
    """Return the dilations of all kernels; None where they differ. Along one position, any will do."""
    joined: list[int] = []
    for axis in range(len(kernels[0].sizes)):
        found = {k.dilations[axis] for k in kernels if k.sizes[axis] > 1} or {1}
        if len(found) > 1:
            return None
        joined.extend(found)
    return tuple(joined)


def _kernel(branch: _Branch) -> _Kernel | None:
    """Return a convolution's weights with its normalization; None where they aren't float32 constants."""
    conv = branch.conv
    assert conv is not None
    weights = array_in(conv.inputs[1])
    if weights is None or weights.dtype != np.float32 or weights.ndim < 3 or not _runs(conv, weights.shape[2:]):
        return None
    channels, sizes, axes = len(weights), weights.shape[2:], weights.ndim - 2
    bias = array_in(conv.inputs[2]) if len(conv.inputs) > 2 and conv.inputs[2] is not None else np.zeros(channels)
    if bias is None or bias.shape != (channels,) or not _fits(branch.affine, channels):
        return None
    pads = conv.attributes.get_ints("pads", (0,) * 2 * axes)
    begin, end = tuple(pads[:axes]), tuple(pads[axes:])
    dilations = tuple(conv.attributes.get_ints("dilations", (1,) * axes))
    wide, moved = _normalized(weights.astype(np.float64), bias, branch.affine)
    return _Kernel(
        weights=wide,
        bias=moved,
        begin=begin,
        reach=tuple(b + e - (k - 1) * d for b, e, k, d in zip(begin, end, sizes, dilations, strict=True)),
        strides=tuple(conv.attributes.get_ints("strides", (1,) * axes)),
        dilations=dilations,
        groups=conv.attributes.get_int("group", 1),
    )


def _runs(conv: ir.Node, sizes: tuple[int, ...]) -> bool:
    """Return whether attributes fit the sizes of a kernel, and state the padding."""
    given, axes = conv.attributes, len(sizes)
    lengths = {"pads": 2 * axes, "strides": axes, "dilations": axes}
    stated = "NOTSET" if "pads" in given else "VALID"
    return (
        given.get_string("auto_pad", "NOTSET") in ("NOTSET", stated)
        and tuple(given.get_ints("kernel_shape", sizes)) == sizes
        and all(len(given.get_ints(name, (1,) * length)) == length for name, length in lengths.items())
    )


def _fits(affine: _Affine | None, channels: int) -> bool:
    return affine is None or affine.factor.shape == affine.offset.shape == (channels,)


def _identity(like: _Kernel, affine: _Affine | None) -> _Kernel | None:
    """Return the kernel of the value itself beside others; None where the number of channels or the stride differ."""
    channels, width = like.weights.shape[:2]
    axes = len(like.sizes)
    if width * like.groups != channels or like.strides != (1,) * axes or not _fits(affine, channels):
        return None
    weights = np.zeros((channels, width, *(1,) * axes))
    weights[np.arange(channels), np.arange(channels) % width] = 1
    wide, moved = _normalized(weights, np.zeros(channels), affine)
    nothing = (0,) * axes
    return dataclasses.replace(like, weights=wide, bias=moved, begin=nothing, reach=nothing, dilations=(1,) * axes)


def _normalized(weights: np.ndarray, bias: np.ndarray, affine: _Affine | None) -> tuple[np.ndarray, np.ndarray]:
    if affine is None:
        return weights, bias.astype(np.float64)
    factor = affine.factor.reshape(-1, *(1,) * (weights.ndim - 1))
    return weights * factor, bias * affine.factor + affine.offset


def _affine_of(op: ir.Node) -> _Affine | None:
    """Return what a BatchNormalization does to each channel; None where it isn't of float32 constants."""
    arrays = [array_in(value) for value in op.inputs[1:5]]
    in_training = op.attributes.get_int("training_mode", 0) or not op.attributes.get_int("spatial", 1)
    if in_training or len(arrays) != 4 or sum(bool(v.name and v.uses()) for v in op.outputs[1:]):
        return None
    if any(array is None or array.dtype != np.float32 for array in arrays):
        return None
    scale, shift, mean, variance = (array.astype(np.float64) for array in arrays if array is not None)
    if len({array.shape for array in (scale, shift, mean, variance)}) > 1:
        return None
    factor = scale / np.sqrt(variance + op.attributes.get_float("epsilon", 1e-5))
    return _Affine(factor, shift - factor * mean)


def _is_normalization(op: ir.Node | None) -> bool:
    """Return whether a node is a BatchNormalization of ONNX's own domain."""
    return op is not None and op.op_type == "BatchNormalization" and op.domain in ONNX_DOMAINS
