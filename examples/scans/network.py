"""A U-shaped network that cleans pictures: its layers, their gradients, and the ONNX nodes that they become.

The layers are NumPy code. Two convolutions halve the picture, two transposed ones bring it back to its size, and each
of those adds what was there before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
from numpy.lib.stride_tricks import sliding_window_view

Array = npt.NDArray[np.float32]

CHANNELS = 24
HEIGHT, WIDTH = 64, 160
IR_VERSION = 10  # fixed, so that the file does not depend on the installed onnx
OPSET_VERSION = 18


class Convolution:
    """A convolution with bias that keeps height and width, or divides them by its stride."""

    def __init__(self, many_in: int, many_out: int, *, size: int, stride: int, rng: np.random.Generator) -> None:
        # He initialization: variance 2 / fan_in keeps the scale of the signal through a Relu.
        deviation = math.sqrt(2 / (many_in * size * size))
        self.weight: Array = rng.normal(0, deviation, (many_out, many_in, size, size)).astype(np.float32)
        self.bias: Array = np.zeros(many_out, np.float32)
        self.size, self.stride = size, stride

    def forward(self, x: Array) -> Array:
        """Multiply the neighbourhood of every pixel with the weights, and keep it for ``backward``."""
        self._shape, self._columns = x.shape, self.columns(x)
        return self._as_picture(self.matrix() @ self._columns, x.shape) + per_channel(self.bias)

    def backward(self, grad: Array) -> Array:
        """Set the gradients of weight and bias, and return that of the input."""
        rows = as_rows(grad)
        self.gradients = [(rows @ self._columns.T).reshape(self.weight.shape), rows.sum(axis=1)]
        return self.summed(self.matrix().T @ rows, self._shape)

    def matrix(self) -> Array:
        """The weights as ``float32[channels of the small picture, neighbourhood]``."""
        return self.weight.reshape(len(self.weight), -1)

    def columns(self, x: Array) -> Array:
        """Return the neighbourhood of each pixel as a column (im2col)."""
        pad = (self.size - 1) // 2
        padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = sliding_window_view(padded, (self.size, self.size), axis=(2, 3))
        windows = windows[:, :, :: self.stride, :: self.stride]
        return windows.transpose(1, 4, 5, 0, 2, 3).reshape(x.shape[1] * self.size**2, -1)

    def summed(self, columns: Array, shape: tuple[int, ...]) -> Array:
        """Add each neighbourhood to a picture of a shape: the transpose of ``columns``."""
        n, channels, height, width = shape
        pad, step = (self.size - 1) // 2, self.stride
        parts = columns.reshape(channels, self.size, self.size, n, height // step, width // step)
        picture = np.zeros((channels, n, height + 2 * pad, width + 2 * pad), np.float32)
        for y, x in np.ndindex(self.size, self.size):
            picture[..., y : y + height : step, x : x + width : step] += parts[:, y, x]
        return picture[..., pad : pad + height, pad : pad + width].transpose(1, 0, 2, 3)

    def _as_picture(self, rows: Array, shape: tuple[int, ...]) -> Array:
        n, _, height, width = shape
        return rows.reshape(-1, n, height // self.stride, width // self.stride).transpose(1, 0, 2, 3)


class Transposed(Convolution):
    """The transpose of a convolution of 4x4 and stride 2: it doubles height and width."""

    def __init__(self, many_in: int, many_out: int, *, rng: np.random.Generator) -> None:
        super().__init__(many_out, many_in, size=4, stride=2, rng=rng)
        self.bias = np.zeros(many_out, np.float32)

    def forward(self, x: Array) -> Array:
        """Add the weights, times each pixel, to its neighbourhood."""
        n, _, height, width = x.shape
        self._x = as_rows(x)
        shape = (n, self.weight.shape[1], 2 * height, 2 * width)
        return self.summed(self.matrix().T @ self._x, shape) + per_channel(self.bias)

    def backward(self, grad: Array) -> Array:
        """Set the gradients of weight and bias, and return that of the input."""
        columns = self.columns(grad)
        self.gradients = [(self._x @ columns.T).reshape(self.weight.shape), grad.sum(axis=(0, 2, 3))]
        return self._as_picture(self.matrix() @ columns, grad.shape)


class Network:
    """From a scan ``float32[N, 1, H, W]`` to the clean picture of the same shape; H and W are multiples of 4."""

    def __init__(self, rng: np.random.Generator) -> None:
        few, some, many = CHANNELS, 2 * CHANNELS, 4 * CHANNELS
        self.layers = {
            "fine": Convolution(1, few, size=3, stride=1, rng=rng),
            "middle": Convolution(few, some, size=4, stride=2, rng=rng),
            "coarse": Convolution(some, many, size=4, stride=2, rng=rng),
            "middle_up": Transposed(many, some, rng=rng),
            "fine_up": Transposed(some, few, rng=rng),
            "clean": Convolution(few, 1, size=3, stride=1, rng=rng),
        }

    def forward(self, scan: Array) -> Array:
        """Return the clean picture, and keep what ``backward`` needs."""
        apply = {name: layer.forward for name, layer in self.layers.items()}
        self._fine = np.maximum(apply["fine"](scan), 0)
        self._middle = np.maximum(apply["middle"](self._fine), 0)
        self._coarse = np.maximum(apply["coarse"](self._middle), 0)
        self._middle_up = np.maximum(apply["middle_up"](self._coarse) + self._middle, 0)
        self._fine_up = np.maximum(apply["fine_up"](self._middle_up) + self._fine, 0)
        return apply["clean"](self._fine_up)

    def backward(self, grad: Array) -> None:
        """Take the gradient of the clean picture, and set those of all weights."""
        undo = {name: layer.backward for name, layer in self.layers.items()}
        fine_up = undo["clean"](grad) * (self._fine_up > 0)
        middle_up = undo["fine_up"](fine_up) * (self._middle_up > 0)
        coarse = undo["middle_up"](middle_up) * (self._coarse > 0)
        middle = (undo["coarse"](coarse) + middle_up) * (self._middle > 0)
        undo["fine"]((undo["middle"](middle) + fine_up) * (self._fine > 0))


def per_channel(values: Array) -> Array:
    """Return ``float32[C]`` as ``float32[C, 1, 1]``, which broadcasts over pictures."""
    return values[:, np.newaxis, np.newaxis]


def as_rows(picture: Array) -> Array:
    """Return ``float32[N, C, H, W]`` as ``float32[C, N * H * W]``."""
    return picture.transpose(1, 0, 2, 3).reshape(picture.shape[1], -1)


def export_model(layers: Mapping[str, Convolution]) -> onnx.ModelProto:
    """Return the network as an ONNX model with one node for each layer, addition and Relu."""
    nodes: list[onnx.NodeProto] = []
    before = {"middle_up": "middle", "fine_up": "fine"}
    source = "scan"
    for name, layer in layers.items():
        pad, last = (layer.size - 1) // 2, name == "clean"
        placed = {"kernel_shape": [layer.size] * 2, "strides": [layer.stride] * 2, "pads": [pad] * 4}
        kind = "ConvTranspose" if isinstance(layer, Transposed) else "Conv"
        summed, rectified = f"{name}.sum", f"{name}.relu"
        result = "clean" if last else f"{name}.out"
        inputs = [source, f"{name}.weight", f"{name}.bias"]
        nodes.append(onnx.helper.make_node(kind, inputs, [result], name=name, **placed))
        if name in before:
            nodes.append(onnx.helper.make_node("Add", [result, f"{before[name]}.relu"], [summed], name=summed))
            result = summed
        if not last:
            nodes.append(onnx.helper.make_node("Relu", [result], [rectified], name=rectified))
        source = rectified
    weights = {f"{name}.{kind}": getattr(layer, kind) for name, layer in layers.items() for kind in ("weight", "bias")}
    initializers = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    shape = ["batch", 1, HEIGHT, WIDTH]
    scan, clean = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n in ("scan", "clean"))
    graph = onnx.helper.make_graph(nodes, "scans", [scan], [clean], initializers)
    opsets = [onnx.helper.make_opsetid("", OPSET_VERSION)]
    model = onnx.ModelProto(ir_version=IR_VERSION, graph=graph, opset_import=opsets)
    onnx.checker.check_model(model, full_check=True)
    return model
