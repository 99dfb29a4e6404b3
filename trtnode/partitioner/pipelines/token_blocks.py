"""Building blocks behind models of text: vectors of tokens become one of the text, of unit length if asked for."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Literal

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.model.values import Dimension
from trtnode.partitioner.pipelines.blocks import Block
from trtnode.partitioner.pipelines.node_writer import BlockError, NodeWriter, Tensor, listed

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64

Pooling = Literal["cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken"]

Activation = Literal["sigmoid", "tanh", "relu", "gelu"]

MASK = "attention_mask"
"""The input that is 1 at tokens, and 0 at padding."""

POOLING_MASK = "pooling_mask"
"""The input that is 0 at the tokens of a prompt, too, where those don't count."""

SMALLEST_LENGTH = 1e-12
"""Vectors that are shorter are divided by it."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Block(Block):
    opset: ClassVar[int] = 13
    """From it on, axes of Unsqueeze, Squeeze and ReduceSum are inputs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pool(_Block):
    """One vector of a text from those of its tokens; of several ways, the vectors are put one behind the other.

    Sums are products of matrices. Padding is known by the mask alone, so it may stand at either side.

    Attributes:
        by: The ways.
        include_prompt: False if the tokens of a prompt don't count.
    """

    names: ClassVar[tuple[str, ...]] = ("sentence_embedding",)

    by: tuple[Pooling, ...]
    include_prompt: bool = True

    def apply(self, tensor: Tensor, write: NodeWriter) -> tuple[Tensor, ...]:
        """See ``Block``."""
        if len(tensor.shape) != 3:
            raise BlockError(f"takes vectors of tokens, [batch, tokens, size], but gets {listed(tensor.shape)}")
        hidden, attended = write.cast(tensor.value, FLOAT), _mask(MASK, tensor, write)
        mask = attended
        if not self.include_prompt:
            mask = write.node("Mul", [mask, _mask(POOLING_MASK, tensor, write)], FLOAT, Tensor(mask).shape)
        pooled = [
            _max(hidden, mask, write) if by == "max" else _sum(by, hidden, _weights(by, mask, attended, write), write)
            for by in self.by
        ]
        if len(pooled) == 1:
            return (Tensor(pooled[0]),)
        rows, _, size = tensor.shape
        whole = size * len(pooled) if isinstance(size, int) else None
        return (Tensor(write.node("Concat", pooled, FLOAT, (rows, whole), axis=1)),)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Dense(_Block):
    """A linear layer.

    Attributes:
        weight: float32[size of the result, size].
        bias: float32[size of the result], or None.
        activation: What follows; None for nothing.
    """

    weight: np.ndarray
    bias: np.ndarray | None
    activation: Activation | None

    def apply(self, tensor: Tensor, write: NodeWriter) -> tuple[Tensor, ...]:
        """See ``Block``."""
        size = tensor.shape[-1] if tensor.shape else None
        if size != self.weight.shape[1]:
            raise BlockError(f"takes vectors of {self.weight.shape[1]} elements, but gets {listed(tensor.shape)}")
        shape = (*tensor.shape[:-1], self.weight.shape[0])
        weight = write.constant("weight", ir.tensor(np.ascontiguousarray(self.weight.T)))
        value = write.node("MatMul", [write.cast(tensor.value, FLOAT), weight], FLOAT, shape)
        if self.bias is not None:
            value = write.node("Add", [value, write.constant("bias", ir.tensor(self.bias))], FLOAT, shape)
        return (Tensor(value),) if self.activation is None else Activate(self.activation).apply(Tensor(value), write)


@dataclasses.dataclass(frozen=True, slots=True)
class Activate(_Block):
    """A function of each element, in float32.

    Attributes:
        function: Its name.
    """

    function: Activation

    def apply(self, tensor: Tensor, write: NodeWriter) -> tuple[Tensor, ...]:
        """See ``Block``."""
        value, shape = write.cast(tensor.value, FLOAT), tensor.shape
        if self.function != "gelu":
            return (Tensor(write.node(self.function.capitalize(), [value], FLOAT, shape)),)
        scaled = write.node("Mul", [value, _number(write, "root", math.sqrt(0.5))], FLOAT, shape)
        error = write.node("Erf", [scaled], FLOAT, shape)
        above = write.node("Add", [error, _number(write, "one", 1)], FLOAT, shape)
        half = write.node("Mul", [value, _number(write, "half", 0.5)], FLOAT, shape)
        return (Tensor(write.node("Mul", [half, above], FLOAT, shape)),)


@dataclasses.dataclass(frozen=True, slots=True)
class UnitLength(_Block):
    """Division of vectors by their Euclidean length."""

    def apply(self, tensor: Tensor, write: NodeWriter) -> tuple[Tensor, ...]:
        """See ``Block``."""
        value, shape = write.cast(tensor.value, FLOAT), tensor.shape
        squares = write.node("Mul", [value, value], FLOAT, shape)
        sums = _total(squares, (*shape[:-1], 1), write)
        length = write.node("Sqrt", [sums], FLOAT, (*shape[:-1], 1))
        length = write.node("Max", [length, _number(write, "least", SMALLEST_LENGTH)], FLOAT, (*shape[:-1], 1))
        return (Tensor(write.node("Div", [value, length], FLOAT, shape)),)


def _mask(name: str, tensor: Tensor, write: NodeWriter) -> ir.Value:
    """Return a mask as float32[batch, 1, tokens]."""
    rows, tokens, _ = tensor.shape
    mask = write.cast(write.model_input(name, INT64, (rows, tokens)), FLOAT)
    return write.node("Unsqueeze", [mask, _axis(write, 1)], FLOAT, (rows, 1, tokens))


def _weights(by: Pooling, mask: ir.Value, attended: ir.Value, write: NodeWriter) -> ir.Value:
    """Return the weight of each token: 0 outside the mask. Places count from the first token that is attended to."""
    shape = Tensor(mask).shape
    if by == "weightedmean":
        return write.node("Mul", [mask, _count(attended, write)], FLOAT, shape)
    if by not in ("cls", "lasttoken"):
        return mask
    count = _count(mask, write, backwards=by == "lasttoken")
    chosen = write.node("Equal", [count, _number(write, "one", 1)], ir.DataType.BOOL, shape)
    return write.node("Mul", [mask, write.cast(chosen, FLOAT)], FLOAT, shape)


def _sum(by: Pooling, hidden: ir.Value, weights: ir.Value, write: NodeWriter) -> ir.Value:
    """Return the weighted sum of vectors, or their mean, float32[batch, size]."""
    rows, _, size = Tensor(hidden).shape
    product = write.node("MatMul", [weights, hidden], FLOAT, (rows, 1, size))
    vector = write.node("Squeeze", [product, _axis(write, 1)], FLOAT, (rows, size))
    if by in ("cls", "lasttoken"):
        return vector
    weight = write.node("Squeeze", [_total(weights, (rows, 1, 1), write), _axis(write, 1)], FLOAT, (rows, 1))
    weight = write.node("Max", [weight, _number(write, "least", 1e-9)], FLOAT, (rows, 1))
    if by == "mean_sqrt_len":
        weight = write.node("Sqrt", [weight], FLOAT, (rows, 1))
    return write.node("Div", [vector, weight], FLOAT, (rows, size))


def _max(hidden: ir.Value, mask: ir.Value, write: NodeWriter) -> ir.Value:
    """Return the largest element of all tokens in each place, float32[batch, size]."""
    rows, tokens, size = Tensor(hidden).shape
    turned = write.node("Transpose", [hidden], FLOAT, (rows, size, tokens), perm=[0, 2, 1])
    is_token = write.cast(mask, ir.DataType.BOOL)
    lowest = _number(write, "lowest", float(np.finfo(np.float32).min))
    masked = write.node("Where", [is_token, turned, lowest], FLOAT, (rows, size, tokens))
    return write.node(
        "Squeeze",
        [write.node("GlobalMaxPool", [masked], FLOAT, (rows, size, 1)), _axis(write, 2)],
        FLOAT,
        (rows, size),
    )


def _count(mask: ir.Value, write: NodeWriter, *, backwards: bool = False) -> ir.Value:
    """Return the number of ones up to each place, or from there on."""
    inputs = [mask, write.constant("axis", ir.tensor(np.array(2, np.int64)))]
    return write.node("CumSum", inputs, FLOAT, Tensor(mask).shape, reverse=int(backwards))


def _total(value: ir.Value, shape: tuple[Dimension, ...], write: NodeWriter) -> ir.Value:
    """Return the sum along the last axis, which stays."""
    return write.node("ReduceSum", [value, _axis(write, -1)], FLOAT, shape, keepdims=1)


def _axis(write: NodeWriter, axis: int) -> ir.Value:
    return write.constant("axes", ir.tensor(np.array([axis], np.int64)))


def _number(write: NodeWriter, name: str, number: float) -> ir.Value:
    return write.constant(name, ir.tensor(np.array(number, np.float32)))
