"""Building blocks behind models of text: vectors of tokens become one of the text, of unit length if asked for."""

from __future__ import annotations

import dataclasses
import logging
from typing import ClassVar, Literal

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.pipelines.blocks import Block
from trtnode.partitioner.pipelines.node_writer import BlockError, NodeWriter, Tensor, listed

logger = logging.getLogger(__name__)

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64

Pooling = Literal["cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken"]

Activation = Literal["sigmoid", "tanh", "relu", "gelu"]

MASK, POOLING_MASK = "attention_mask", "pooling_mask"
"""The input that is 1 at tokens and 0 at padding, and that which is 0 at the tokens of a prompt that doesn't count."""

_SUM = "product = MatMul(weights, hidden) result = Squeeze(product, middle)"
_SIZE = "all = ReduceSum<keepdims = 1>(weights, last) flat = Squeeze(all, middle) size = Max(flat, tiny)"
_ONE = f"is_one = Equal(count, one) ones = Cast<to = 1>(is_one) weights = Mul(row, ones) {_SUM}"
_MEAN = f"{_SUM.replace('result', 'sum')} {_SIZE}"

POOLING: dict[Pooling, str] = {
    "cls": f"count = CumSum(row, two) {_ONE}",
    "max": "turned = Transpose<perm = [0, 2, 1]>(hidden) is_token = Cast<to = 9>(row) "
    "masked = Where(is_token, turned, lowest) largest = GlobalMaxPool(masked) result = Squeeze(largest, last)",
    "mean": f"weights = Identity(row) {_MEAN} result = Div(sum, size)",
    "mean_sqrt_len": f"weights = Identity(row) {_MEAN} root = Sqrt(size) result = Div(sum, root)",
    "weightedmean": f"count = CumSum(attended, two) weights = Mul(row, count) {_MEAN} result = Div(sum, size)",
    "lasttoken": f"count = CumSum<reverse = 1>(row, two) {_ONE}",
}
"""From ``hidden``, float32[batch, tokens, size], and the mask ``row``, float32[batch, 1, tokens]. Sums are products of
matrices. Padding is known by the mask alone, so it may stand at either side."""

POOLING_CONSTANTS = (
    "int64[1] middle = {1}, int64[1] last = {2}, int64 two = {2}, float one = {1}, float tiny = {1e-9}, "
    f"float lowest = {{{float(np.finfo(np.float32).min)}}}"
)

ACTIVATIONS: dict[Activation, str] = {
    "sigmoid": "result = Sigmoid(x)",
    "tanh": "result = Tanh(x)",
    "relu": "result = Relu(x)",
    "gelu": "scaled = Mul(x, root) error = Erf(scaled) above = Add(error, one) part = Mul(x, half) "
    "result = Mul(part, above)",
}


@dataclasses.dataclass(frozen=True, slots=True)
class _Block(Block):
    opset: ClassVar[int] = 13
    """From it on, axes of Unsqueeze, Squeeze and ReduceSum are inputs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pool(_Block):
    """One vector of a text from those of its tokens; of several ways, the vectors are put one behind the other.

    Attributes:
        by: The ways.
        include_prompt: False if the tokens of a prompt don't count.
    """

    names: ClassVar[tuple[str, ...]] = ("sentence_embedding",)

    by: tuple[Pooling, ...]
    include_prompt: bool = True

    def apply(self, tensor: Tensor, write: NodeWriter) -> tuple[Tensor, ...]:
        """See ``Block``."""
        if len(tensor.shape) == 2 and tensor.value.name == self.names[0]:
            logger.warning("Assumed that the model pools by itself, since it gives %r and no tokens", self.names[0])
            return (tensor,)
        if len(tensor.shape) != 3:
            raise BlockError(f"takes vectors of tokens, [batch, tokens, size], but gets {listed(tensor.shape)}")
        rows, tokens, size = tensor.shape
        masks = [
            write.model_input(name, INT64, (rows, tokens)) for name in (MASK, POOLING_MASK)[: 2 - self.include_prompt]
        ]
        unsqueeze = "<int64[1] middle = {1}> { ones = Cast<to = 1>(mask) result = Unsqueeze(ones, middle) }"
        attended, *others = [write.formula(unsqueeze, (rows, 1, tokens), mask=mask) for mask in masks]
        row = write.node("Mul", [attended, *others], FLOAT, (rows, 1, tokens)) if others else attended
        known = {"hidden": write.cast(tensor.value, FLOAT), "row": row, "attended": attended}
        pooled = [write.formula(f"<{POOLING_CONSTANTS}> {{ {POOLING[by]} }}", (rows, size), **known) for by in self.by]
        whole = size * len(pooled) if isinstance(size, int) else None
        return (Tensor(write.node("Concat", pooled, FLOAT, (rows, whole), axis=1) if len(pooled) > 1 else pooled[0]),)


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
        if tensor.shape[-1:] != self.weight.shape[1:]:
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
        constants = "float root = {0.7071067811865476}, float one = {1}, float half = {0.5}"
        text = f"<{constants}> {{ {ACTIVATIONS[self.function]} }}"
        return (Tensor(write.formula(text, tensor.shape, x=write.cast(tensor.value, FLOAT))),)


@dataclasses.dataclass(frozen=True, slots=True)
class UnitLength(_Block):
    """Division of vectors by their Euclidean length, if that is more than 1e-12."""

    def apply(self, tensor: Tensor, write: NodeWriter) -> tuple[Tensor, ...]:
        """See ``Block``."""
        text = """<int64[1] last = {-1}, float tiny = {1e-12}> {
            squares = Mul(x, x) sum = ReduceSum<keepdims = 1>(squares, last)
            root = Sqrt(sum) length = Max(root, tiny) result = Div(x, length)
        }"""
        return (Tensor(write.formula(text, tensor.shape, x=write.cast(tensor.value, FLOAT))),)
