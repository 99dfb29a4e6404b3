"""Tools to write building blocks: tensors with a layout, and nodes with names of their stage."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import onnx
import onnx_ir as ir

from trtnode.partitioner.model.new_values import new_names
from trtnode.partitioner.model.values import Dimension, dimensions

Layout = Literal["nhwc", "nchw"]
"""Order of an image's axes: batch, height, width and channels, or channels before height and width."""


class BlockError(Exception):
    """A block doesn't fit a tensor. The message says why, and what to do."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """A value between two stages of a pipeline.

    Attributes:
        value: The value with its type, and its shape if known.
        layout: Order of height, width and channels if the value holds images.
    """

    value: ir.Value
    layout: Layout = "nhwc"

    @property
    def shape(self) -> tuple[Dimension, ...]:
        """Dimensions of the value.

        Raises:
            BlockError: The rank is unknown.
        """
        known = dimensions(self.value)
        if known is None:
            raise BlockError(f"the number of dimensions of {self.value.name!r} is unknown; export it with its shape")
        return known

    def image_axes(self) -> tuple[int, int, int]:
        """Return the axes of height, width and channels.

        Raises:
            BlockError: The value has not four dimensions.
        """
        if len(self.shape) != 4:
            raise BlockError(f"takes images with four dimensions, but gets {listed(self.shape)}")
        return (1, 2, 3) if self.layout == "nhwc" else (2, 3, 1)

    def with_sizes(self, sizes: Mapping[int, Dimension]) -> tuple[Dimension, ...]:
        """Return the dimensions with some of them replaced."""
        return tuple(sizes.get(axis, size) for axis, size in enumerate(self.shape))


class NodeWriter:
    """Adds the nodes and constants of one stage to a graph. Their names begin with the stage's prefix."""

    def __init__(self, graph: ir.Graph, prefix: str, inputs: dict[str, ir.Value] | None = None) -> None:
        self._graph = graph
        self._prefix = prefix
        self._inputs = {} if inputs is None else inputs

    def model_input(self, name: str, dtype: ir.DataType, shape: Sequence[Dimension]) -> ir.Value:
        """Return the input of the whole pipeline that has this name; a new one where there is none."""
        if name not in self._inputs:
            self._inputs[name] = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
        return self._inputs[name]

    def node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        dtype: ir.DataType,
        shape: Sequence[Dimension] | None,
        /,
        **attributes: Any,
    ) -> ir.Value:
        """Add a node and return its output."""
        return self.nodes(op_type, inputs, [(dtype, shape)], **attributes)[0]

    def nodes(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        results: Sequence[tuple[ir.DataType, Sequence[Dimension] | None]],
        /,
        **attributes: Any,
    ) -> tuple[ir.Value, ...]:
        """Add a node and return its outputs, each with an element type and a shape."""
        name = new_names(self._graph)(f"{self._prefix}/{op_type}")
        outputs = [
            ir.Value(
                name=new_names(self._graph)(f"{name}:{index}"),
                type=ir.TensorType(dtype),
                shape=None if shape is None else ir.Shape(shape),
            )
            for index, (dtype, shape) in enumerate(results)
        ]
        self._graph.append(ir.node(op_type, inputs, attributes, outputs=outputs, name=name))
        return tuple(outputs)

    def formula(self, text: str, shape: Sequence[Dimension], /, **values: ir.Value) -> ir.Value:
        """Add nodes in ONNX's text form, of float32 unless they cast or compare; return the value ``result``.

        Args:
            text: Constants and nodes: ``<float one = {1}> { result = Add(x, one) }``.
            shape: That of the result.
            values: Those that the text names and doesn't make.
        """
        graph = onnx.parser.parse_graph(f"g () => () {text}")
        used = {name for node in graph.node for name in node.input}
        constants = {
            one.name: self.constant(one.name, ir.from_proto(one)) for one in graph.initializer if one.name in used
        }
        known = {**values, **constants}
        for node in graph.node:
            attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
            dtype = ir.DataType(attributes.get("to", 9 if node.op_type == "Equal" else 1))
            size = shape if node.output[0] == "result" else None
            known[node.output[0]] = self.node(node.op_type, [known[n] for n in node.input], dtype, size, **attributes)
        return known["result"]

    def constant(self, name: str, content: ir.TensorProtocol) -> ir.Value:
        """Add an initializer and return its value."""
        value = ir.Value(
            name=new_names(self._graph)(f"{self._prefix}/{name}"),
            type=ir.TensorType(content.dtype),
            shape=ir.Shape(content.shape.numpy()),
            const_value=content,
        )
        self._graph.register_initializer(value)
        return value

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return a value in another element type."""
        return value if value.dtype == dtype else self.node("Cast", [value], dtype, dimensions(value), to=int(dtype))


def listed(shape: Sequence[Dimension]) -> str:
    """Return a shape as people write it."""
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
