"""Building blocks of pipelines as ONNX nodes: they process images before a model and results behind it."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.pipelines.node_writer import BlockError, Layout, NodeWriter, Tensor, listed

OLDEST_OPSET = 11
"""Opset of blocks that state no other. Newer opsets give their nodes the same meaning."""

RESIZE_OPSET = 18
"""The first opset whose Resize has ``antialias`` and ``axes``."""


class Block(abc.ABC):
    """A step from tensor to tensor."""

    __slots__ = ()

    opset: ClassVar[int] = OLDEST_OPSET
    """The oldest ONNX opset that has the block's nodes."""
    names: ClassVar[tuple[str, ...]] = ()
    """Names of the results; empty if the only result keeps the name of the block's input."""

    @abc.abstractmethod
    def apply(self, tensor: Tensor, write: NodeWriter) -> tuple[Tensor, ...]:
        """Add the block's nodes behind a tensor.

        Raises:
            BlockError: The block doesn't fit the tensor.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class Resize(Block):
    """Bilinear resize of images to one size with antialiasing (ONNX Resize).

    It computes as Pillow's ``Image.resize``, but gives float32, where Pillow rounds after each direction.

    Attributes:
        size: Height and width.
    """

    opset: ClassVar[int] = RESIZE_OPSET

    size: tuple[int, int]

    def apply(self, tensor: Tensor, write: NodeWriter) -> tuple[Tensor, ...]:
        """See ``Block``."""
        height, width, _ = tensor.image_axes()
        resized = write.node(
            "Resize",
            [_as_float(tensor.value, write), None, None, write.constant("sizes", _int64(*self.size))],
            ir.DataType.FLOAT,
            tensor.with_sizes({height: self.size[0], width: self.size[1]}),
            mode="linear",
            antialias=1,
            exclude_outside=1,  # as Pillow; else copies of the edge's pixels count as pixels beyond it
            axes=[height, width],
        )
        return (Tensor(resized, tensor.layout),)


@dataclasses.dataclass(frozen=True, slots=True)
class CenterCrop(Block):
    """Crop of images to their middle, rounded half a pixel towards the top left.

    Attributes:
        size: Height and width.
    """

    size: tuple[int, int]

    def apply(self, tensor: Tensor, write: NodeWriter) -> tuple[Tensor, ...]:
        """See ``Block``."""
        height, width, _ = tensor.image_axes()
        full = [size for size in (tensor.shape[height], tensor.shape[width]) if isinstance(size, int)]
        if len(full) < 2:
            raise BlockError("needs images of a known height and width; put resize before it, or give decode a size")
        if full[0] < self.size[0] or full[1] < self.size[1]:
            raise BlockError(f"{listed(self.size)} is larger than the images, which are {listed(full)}")
        starts = [(whole - part) // 2 for whole, part in zip(full, self.size, strict=True)]
        bounds = [
            write.constant("starts", _int64(*starts)),
            write.constant("ends", _int64(*(start + part for start, part in zip(starts, self.size, strict=True)))),
            write.constant("axes", _int64(height, width)),
        ]
        shape = tensor.with_sizes({height: self.size[0], width: self.size[1]})
        return (Tensor(write.node("Slice", [tensor.value, *bounds], _dtype(tensor), shape), tensor.layout),)


@dataclasses.dataclass(frozen=True, slots=True)
class SwapColors(Block):
    """Reversal of the three colours: RGB becomes BGR, and BGR becomes RGB."""

    def apply(self, tensor: Tensor, write: NodeWriter) -> tuple[Tensor, ...]:
        """See ``Block``."""
        channels = tensor.image_axes()[2]
        if tensor.shape[channels] != 3:
            raise BlockError(f"needs images of three colours, but gets {listed(tensor.shape)} ({tensor.layout})")
        order = write.constant("order", _int64(2, 1, 0))
        swapped = write.node("Gather", [tensor.value, order], _dtype(tensor), tensor.shape, axis=channels)
        return (Tensor(swapped, tensor.layout),)


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeLayout(Block):
    """Transposition of images to another layout.

    Attributes:
        layout: Layout of the result.
    """

    layout: Layout

    def apply(self, tensor: Tensor, write: NodeWriter) -> tuple[Tensor, ...]:
        """See ``Block``."""
        tensor.image_axes()
        if tensor.layout == self.layout:
            raise BlockError(f"the images are {self.layout} already; leave it out")
        order = [0, 3, 1, 2] if self.layout == "nchw" else [0, 2, 3, 1]
        shape = [tensor.shape[axis] for axis in order]
        return (Tensor(write.node("Transpose", [tensor.value], _dtype(tensor), shape, perm=order), self.layout),)


@dataclasses.dataclass(frozen=True, slots=True)
class Normalize(Block):
    """``(x * scale - mean) / std`` in float32, or in the floating-point type of the images.

    Attributes:
        scale: Factor of every element.
        mean: One number, or one a channel.
        std: Likewise; none is zero.
    """

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def apply(self, tensor: Tensor, write: NodeWriter) -> tuple[Tensor, ...]:
        """See ``Block``."""
        value = tensor.value if _dtype(tensor).is_floating_point() else _as_float(tensor.value, write)
        steps = (("Mul", "scale", (self.scale,), 1.0), ("Sub", "mean", self.mean, 0.0), ("Div", "std", self.std, 1.0))
        for op_type, name, numbers, neutral in steps:
            if any(number != neutral for number in numbers):
                constant = write.constant(name, self._broadcast(name, numbers, tensor, value.dtype))
                value = write.node(op_type, [value, constant], _dtype(Tensor(value)), tensor.shape)
        return (Tensor(value, tensor.layout),)

    def _broadcast(
        self, name: str, numbers: Sequence[float], tensor: Tensor, dtype: ir.DataType | None
    ) -> ir.TensorProtocol:
        """Return the numbers in a shape that broadcasts along the channels."""
        channels = tensor.shape[tensor.image_axes()[2]]
        if len(numbers) > 1 and isinstance(channels, int) and channels != len(numbers):
            raise BlockError(f"{name} has {len(numbers)} numbers, but the images have {channels} channels")
        shape = (len(numbers), 1, 1) if tensor.layout == "nchw" and len(numbers) > 1 else (len(numbers),)
        assert dtype is not None
        return ir.tensor(np.array(numbers, np.float32).reshape(shape).astype(dtype.numpy()), dtype=dtype)


@dataclasses.dataclass(frozen=True, slots=True)
class Cast(Block):
    """Conversion to another element type; integers are truncated, not rounded (ONNX Cast).

    Attributes:
        dtype: Element type of the result.
    """

    dtype: ir.DataType

    def apply(self, tensor: Tensor, write: NodeWriter) -> tuple[Tensor, ...]:
        """See ``Block``."""
        return (Tensor(write.cast(tensor.value, self.dtype), tensor.layout),)


@dataclasses.dataclass(frozen=True, slots=True)
class Softmax(Block):
    """Softmax along the last axis, which are the classes."""

    names: ClassVar[tuple[str, ...]] = ("probabilities",)

    def apply(self, tensor: Tensor, write: NodeWriter) -> tuple[Tensor, ...]:
        """See ``Block``."""
        return (Tensor(write.node("Softmax", [tensor.value], _dtype(tensor), tensor.shape, axis=-1)),)


@dataclasses.dataclass(frozen=True, slots=True)
class TopK(Block):
    """The best classes with their scores, best first; the first of equal ones wins (ONNX TopK).

    Attributes:
        k: Number of classes in the result.
        labels: Name of each class; if empty, the result holds numbers.
    """

    names: ClassVar[tuple[str, ...]] = ("scores", "labels")

    k: int
    labels: tuple[str, ...] = ()

    def apply(self, tensor: Tensor, write: NodeWriter) -> tuple[Tensor, ...]:
        """See ``Block``."""
        classes = tensor.shape[-1] if tensor.shape else 0
        if isinstance(classes, int) and self.k > classes:
            raise BlockError(f"k is {self.k}, but there are only {classes} classes in {listed(tensor.shape)}")
        if isinstance(classes, int) and len(self.labels) not in (0, classes):
            raise BlockError(f"there are {len(self.labels)} labels, but {classes} classes; write one label a line")
        shape = (*tensor.shape[:-1], self.k)
        inputs = [tensor.value, write.constant("k", _int64(self.k))]
        scores, numbers = write.nodes("TopK", inputs, [(_dtype(tensor), shape), (ir.DataType.INT64, shape)], axis=-1)
        if not self.labels:
            return Tensor(scores), Tensor(numbers)
        words = ir.StringTensor([label.encode() for label in self.labels], shape=ir.Shape([len(self.labels)]))
        labels = write.node("Gather", [write.constant("labels", words), numbers], ir.DataType.STRING, shape)
        return Tensor(scores), Tensor(labels)


def _dtype(tensor: Tensor) -> ir.DataType:
    if tensor.value.dtype is None:
        raise BlockError(f"the type of {tensor.value.name!r} is unknown; export it with its type")
    return tensor.value.dtype


def _as_float(value: ir.Value, write: NodeWriter) -> ir.Value:
    return write.cast(value, ir.DataType.FLOAT)


def _int64(*numbers: int) -> ir.TensorProtocol:
    return ir.tensor(np.array(numbers, np.int64))
