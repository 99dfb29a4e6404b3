"""Builds a network operator by operator. Shapes are known at once; weights are drawn when they are read."""

from __future__ import annotations

import collections
import functools
import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

OPSET = 18
IR_VERSION = 10

SEED = 1998
"""Seed of a tensor's values, together with its name."""

RELU_GAIN = 2.0
"""Gain that compensates for ReLU: He et al., Delving Deep into Rectifiers, 2015, equation 10."""


class NetworkBuilder:
    """Builder of a network.

    Every initializer is a parameter of the network, or the running mean or variance of a BatchNormalization; other
    constants are Constant nodes. The first dimension of every input is the symbol ``batch``; images are
    ``[batch, channels, height, width]``.
    """

    def __init__(self, name: str, *, epsilon: float = 1e-5) -> None:
        """Start a network; ``epsilon`` is that of its batch normalizations."""
        self._epsilon = epsilon
        self._graph = ir.Graph([], [], nodes=[], opset_imports={"": OPSET}, name=name)
        self._counts: collections.Counter[str] = collections.Counter()

    def input(self, name: str, *sizes: int, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
        """Add an input ``[batch, *sizes]``."""
        value = ir.val(name, dtype, ["batch", *sizes])
        self._graph.inputs.append(value)
        return value

    def op(self, op_type: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        """Add a node of ONNX's own domain and return its first output."""
        name = self._next(op_type)
        self._counts[op_type] += 1
        node = ir.node(op_type, inputs, attributes, name=name, outputs=[ir.val(f"{name}_out")])
        self._graph.append(node)
        _infer_types(node)
        return node.outputs[0]

    def constant(self, value: object, dtype: type[np.generic]) -> ir.Value:
        """Add a constant that is no parameter."""
        return self.op("Constant", value=ir.tensor(np.asarray(value, dtype)))

    def normal(self, name: str, *shape: int, std: float) -> ir.Value:
        """Add a float32 parameter with normally distributed values."""

        def draw() -> ir.TensorProtocol:
            rng = np.random.default_rng([SEED, zlib.crc32(f"{self._graph.name}/{name}".encode())])
            return ir.tensor(rng.standard_normal(shape, dtype=np.float32) * np.float32(std))

        return self._initializer(name, shape, draw)

    def filled(self, name: str, *shape: int, value: float = 0.0) -> ir.Value:
        """Add a float32 parameter with equal values."""
        return self._initializer(name, shape, lambda: ir.tensor(np.full(shape, value, np.float32)))

    @staticmethod
    def channels(x: ir.Value) -> int:
        """Return the number of channels of images."""
        return _size(x, 1)

    def conv(
        self,
        x: ir.Value,
        channels: int,
        kernel: int | tuple[int, int],
        *,
        stride: int = 1,
        pad: int | None = None,
        groups: int = 1,
        bias: bool = True,
    ) -> ir.Value:
        """Add a convolution.

        Args:
            x: Images.
            channels: Number of channels of the result.
            kernel: Height and width, or the side of a square.
            stride: In both directions.
            pad: Zeros on each side; None for half the kernel, which keeps the size at stride 1.
            groups: Groups of channels; as many as channels for a depthwise convolution.
            bias: True to add a bias to each channel.
        """
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        fan_in = self.channels(x) // groups * height * width
        name = self._next("Conv")
        weight = self.normal(
            f"{name}.weight", channels, self.channels(x) // groups, height, width, std=math.sqrt(RELU_GAIN / fan_in)
        )
        pads = [height // 2, width // 2] * 2 if pad is None else [pad] * 4
        return self.op(
            "Conv",
            x,
            weight,
            *([self.filled(f"{name}.bias", channels)] if bias else []),
            kernel_shape=[height, width],
            strides=[stride, stride],
            pads=pads,
            group=groups,
        )

    def batch_norm(self, x: ir.Value) -> ir.Value:
        """Add a BatchNormalization in inference form; ``set_statistics`` sets its mean and variance."""
        name, channels = self._next("BatchNormalization"), self.channels(x)
        scale, variance = (self.filled(f"{name}.{what}", channels, value=1.0) for what in ("scale", "variance"))
        bias, mean = (self.filled(f"{name}.{what}", channels) for what in ("bias", "mean"))
        return self.op("BatchNormalization", x, scale, bias, mean, variance, epsilon=self._epsilon)

    def linear(self, x: ir.Value, units: int, *, gain: float = RELU_GAIN) -> ir.Value:
        """Add a fully connected layer over the last axis, with a bias.

        Args:
            x: ``[batch, features]`` for a Gemm, more dimensions for MatMul and Add.
            units: Features of the result.
            gain: Variance of the result over the mean square of ``x``.
        """
        assert x.shape is not None
        flat = len(x.shape) == 2
        name, features = self._next("Gemm" if flat else "MatMul"), _size(x, -1)
        std = math.sqrt(gain / features)
        if flat:
            weight = self.normal(f"{name}.weight", units, features, std=std)
            return self.op("Gemm", x, weight, self.filled(f"{name}.bias", units), transB=1)
        weight = self.normal(f"{name}.weight", features, units, std=std)
        return self.op("Add", self.op("MatMul", x, weight), self.filled(f"{name}.bias", units))

    def pool(self, kind: str, x: ir.Value, kernel: int, *, stride: int, pad: int = 0, **attributes: Any) -> ir.Value:
        """Add a square MaxPool or AveragePool; ``kind`` is the operator."""
        square = {"kernel_shape": [kernel, kernel], "strides": [stride, stride], "pads": [pad] * 4}
        return self.op(kind, x, **square, **attributes)

    def global_pool(self, x: ir.Value) -> ir.Value:
        """Average each channel, and drop height and width."""
        return self.op("Flatten", self.op("GlobalAveragePool", x))

    def finish(self, **outputs: ir.Value) -> ir.Model:
        """Return the network with its outputs, by name."""
        for name, value in outputs.items():
            value.name = name
            self._graph.outputs.append(value)
        return ir.Model(self._graph, ir_version=IR_VERSION, producer_name="trtnode")

    def _initializer(self, name: str, shape: tuple[int, ...], make: Callable[[], ir.TensorProtocol]) -> ir.Value:
        tensor = ir.LazyTensor(make, dtype=ir.DataType.FLOAT, shape=ir.Shape(shape), name=name)
        value = ir.val(name, const_value=tensor)
        self._graph.register_initializer(value)
        return value

    def _next(self, op_type: str) -> str:
        """Return the name of the next node of an operator."""
        return f"{op_type}_{self._counts[op_type]}"


def _size(value: ir.Value, axis: int) -> int:
    assert value.shape is not None
    size = value.shape[axis]
    assert isinstance(size, int)
    return size


def _infer_types(node: ir.Node) -> None:
    """Set the types and shapes of a node's outputs by ONNX's rules."""
    inputs = [value for value in node.inputs if value is not None]
    constants = {v.name: ir.convenience.get_const_tensor(v) for v in inputs if not v.is_initializer()}
    known = onnx.shape_inference.infer_node_outputs(
        _schema(node.op_type),
        ir.serde.serialize_node(node),
        {value.name or "": ir.serde.serialize_value(value).type for value in inputs},
        {name or "": ir.serde.serialize_tensor(tensor) for name, tensor in constants.items() if tensor is not None},
        opset_imports=[onnx.OperatorSetIdProto(domain="", version=OPSET)],
        ir_version=IR_VERSION,
    )
    for value in node.outputs:
        kind = known[value.name or ""]
        value.type = ir.serde.deserialize_type_proto_for_type(kind)
        value.shape = ir.serde.deserialize_type_proto_for_shape(kind)


@functools.cache
def _schema(op_type: str) -> onnx.defs.OpSchema:
    return onnx.defs.get_schema(op_type, OPSET, "")
