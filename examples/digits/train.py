"""Train a small convolutional network on handwritten digits and export it to ONNX.

The data are the 1797 scans of 8x8 pixels that scikit-learn ships. The layers and the optimizer are NumPy code.
The export writes one node with the name of each layer.
One seed fixes the split, the initial weights and the order of the batches.

``python examples/digits/train.py`` writes ``digits.onnx``, ``calibration.npz`` and ``test.npz`` beside itself.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

logger = logging.getLogger(__name__)

Array = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

SEED = 20
CLASS_COUNT = 10
TEST_COUNT = 360
CALIBRATION_COUNT = 200
PIXEL_MAX = 16
EPOCHS = 60
BATCH_SIZE = 64
LEARNING_RATE = 2e-3
LABEL_SMOOTHING = 0.1
MIN_ACCURACY = 0.98
BLAS_THREADS = 2  # their number changes the order of sums, and so the last bits of the weights
IR_VERSION = 10  # fixed, so that the file does not depend on the installed onnx
OPSET_VERSION = 18


class Parameter:
    """A trained array with its gradient and its two Adam moments."""

    def __init__(self, value: npt.ArrayLike) -> None:
        self.value: Array = np.asarray(value, np.float32)
        self.grad: Array = np.zeros_like(self.value)
        self._mean: Array = np.zeros_like(self.value)
        self._square: Array = np.zeros_like(self.value)

    def step(self, rate: float, count: int) -> None:
        """Apply Adam's update number ``count``, counted from 1 (Kingma and Ba 2015, algorithm 1)."""
        self._mean += 0.1 * (self.grad - self._mean)
        self._square += 0.001 * (self.grad**2 - self._square)
        mean = self._mean / (1 - 0.9**count)
        square = self._square / (1 - 0.999**count)
        self.value -= rate * mean / (np.sqrt(square) + 1e-8)


class Layer(ABC):
    """One step of the network, and the ONNX node that it becomes; ``parameters`` are in the order of its inputs."""

    op_type: ClassVar[str]
    attributes: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, name: str, **parameters: Parameter) -> None:
        self.name = name
        self.parameters = parameters

    @abstractmethod
    def forward(self, x: Array, *, training: bool) -> Array:
        """Return the layer's output; in training, keep what ``backward`` needs."""

    @abstractmethod
    def backward(self, grad: Array) -> Array:
        """Take the gradient of the output, set those of the parameters, return that of the input."""

    def constants(self) -> Mapping[str, Array]:
        """Return the node's inputs after the first, in the operator's order."""
        return {name: parameter.value for name, parameter in self.parameters.items()}


class Conv(Layer):
    """A 3x3 convolution that keeps height and width. The normalization after it has the bias."""

    op_type = "Conv"
    attributes: ClassVar[Mapping[str, Any]] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}

    def __init__(self, name: str, channels_in: int, channels_out: int, *, rng: np.random.Generator) -> None:
        # He initialization: variance 2 / fan_in keeps the scale of the signal through a Relu.
        deviation = math.sqrt(2 / (channels_in * 9))
        self.weight = Parameter(rng.normal(0, deviation, (channels_out, channels_in, 3, 3)))
        super().__init__(name, weight=self.weight)

    def forward(self, x: Array, *, training: bool) -> Array:
        """Multiply the 3x3 neighbourhood of every pixel with the weights (im2col)."""
        n, channels, height, width = x.shape
        windows = sliding_window_view(pad_by_one(x), (3, 3), axis=(2, 3))
        columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * height * width, channels * 9)
        if training:
            self._columns, self._shape = columns, x.shape
        rows: Array = columns @ self._matrix().T
        return rows.reshape(n, height, width, -1).transpose(0, 3, 1, 2)

    def backward(self, grad: Array) -> Array:
        """Undo the nine shifted copies of im2col by nine shifted sums."""
        n, channels, height, width = self._shape
        rows = grad.transpose(0, 2, 3, 1).reshape(n * height * width, -1)
        self.weight.grad = (rows.T @ self._columns).reshape(self.weight.value.shape)
        columns = (rows @ self._matrix()).reshape(n, height, width, channels, 3, 3)
        padded = np.zeros((n, height + 2, width + 2, channels), np.float32)
        for dy, dx in np.ndindex(3, 3):
            padded[:, dy : dy + height, dx : dx + width] += columns[..., dy, dx]
        return padded[:, 1:-1, 1:-1].transpose(0, 3, 1, 2)

    def _matrix(self) -> Array:
        return self.weight.value.reshape(len(self.weight.value), -1)


class BatchNorm(Layer):
    """Batch normalization; outside training it uses the running mean and variance."""

    op_type = "BatchNormalization"
    attributes: ClassVar[Mapping[str, Any]] = {"epsilon": 1e-5}
    _momentum = 0.9

    def __init__(self, name: str, channels: int) -> None:
        self.scale = Parameter(np.ones(channels))
        self.bias = Parameter(np.zeros(channels))
        self.mean: Array = np.zeros(channels, np.float32)
        self.variance: Array = np.ones(channels, np.float32)
        super().__init__(name, scale=self.scale, bias=self.bias)

    def forward(self, x: Array, *, training: bool) -> Array:
        """Normalize each channel, then scale and shift it."""
        mean, variance = self.mean, self.variance
        if training:
            mean, variance = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
            self.mean = self._momentum * self.mean + (1 - self._momentum) * mean
            self.variance = self._momentum * self.variance + (1 - self._momentum) * variance
        deviation = np.sqrt(variance + self.attributes["epsilon"])
        normal = (x - per_channel(mean)) / per_channel(deviation)
        if training:
            self._normal, self._deviation = normal, deviation
        return normal * per_channel(self.scale.value) + per_channel(self.bias.value)

    def backward(self, grad: Array) -> Array:
        """Follow the gradient through the mean and the variance of the batch too."""
        self.bias.grad = grad.sum(axis=(0, 2, 3))
        self.scale.grad = (grad * self._normal).sum(axis=(0, 2, 3))
        count = grad.size // grad.shape[1]
        centred = grad - per_channel(self.bias.grad / count) - self._normal * per_channel(self.scale.grad / count)
        return centred * per_channel(self.scale.value / self._deviation)

    def constants(self) -> Mapping[str, Array]:
        """Return scale, bias, mean and variance, each ``float32[channels]``."""
        return {**super().constants(), "mean": self.mean, "variance": self.variance}


class Relu(Layer):
    """The positive part."""

    op_type = "Relu"

    def forward(self, x: Array, *, training: bool) -> Array:
        """Replace negative values by zero."""
        if training:
            self._positive = x > 0
        return np.maximum(x, 0)

    def backward(self, grad: Array) -> Array:
        """Pass the gradient where the input was positive."""
        return grad * self._positive


class MaxPool(Layer):
    """The largest value of each 2x2 square."""

    op_type = "MaxPool"
    attributes: ClassVar[Mapping[str, Any]] = {"kernel_shape": [2, 2], "strides": [2, 2]}

    def forward(self, x: Array, *, training: bool) -> Array:
        """Halve height and width."""
        n, channels, height, width = x.shape
        squares = x.reshape(n, channels, height // 2, 2, width // 2, 2)
        largest: Array = squares.max(axis=(3, 5), keepdims=True)
        if training:
            # A tie after a Relu is a tie of zeros, and the Relu stops their gradient.
            self._is_largest = squares == largest
        return largest.reshape(n, channels, height // 2, width // 2)

    def backward(self, grad: Array) -> Array:
        """Pass the gradient to the largest value of each square."""
        n, channels, height, width = grad.shape
        spread: Array = grad[:, :, :, np.newaxis, :, np.newaxis] * self._is_largest
        return spread.reshape(n, channels, 2 * height, 2 * width)


class Flatten(Layer):
    """One row per sample."""

    op_type = "Flatten"
    attributes: ClassVar[Mapping[str, Any]] = {"axis": 1}

    def forward(self, x: Array, *, training: bool) -> Array:
        """Join all dimensions but the first."""
        if training:
            self._shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, grad: Array) -> Array:
        """Give the gradient the shape of the input."""
        return grad.reshape(self._shape)


class Gemm(Layer):
    """A fully connected layer."""

    op_type = "Gemm"

    def __init__(self, name: str, features_in: int, features_out: int, *, rng: np.random.Generator) -> None:
        self.weight = Parameter(rng.normal(0, math.sqrt(1 / features_in), (features_in, features_out)))
        self.bias = Parameter(np.zeros(features_out))
        super().__init__(name, weight=self.weight, bias=self.bias)

    def forward(self, x: Array, *, training: bool) -> Array:
        """Return ``x @ weight + bias``."""
        if training:
            self._x = x
        return np.asarray(x @ self.weight.value + self.bias.value)

    def backward(self, grad: Array) -> Array:
        """Return ``grad @ weight.T``."""
        self.weight.grad = self._x.T @ grad
        self.bias.grad = grad.sum(axis=0)
        return np.asarray(grad @ self.weight.value.T)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Digits:
    """Images ``float32[N, 1, 8, 8]``, from 0 (paper) to 1 (ink), and the digits they show, ``int64[N]``."""

    image: Array
    label: Labels

    def take(self, indices: npt.NDArray[np.int64]) -> Digits:
        """Return the samples at ``indices``, in their order."""
        return Digits(image=self.image[indices], label=self.label[indices])


def per_channel(values: Array) -> Array:
    """Return ``float32[C]`` as ``float32[C, 1, 1]``, which broadcasts over images."""
    return values[:, np.newaxis, np.newaxis]


def pad_by_one(images: Array) -> Array:
    """Return the images with one row or column of zeros on each side."""
    return np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))


def load() -> Digits:
    """Return all scans."""
    data = load_digits()
    image = (data.images / PIXEL_MAX).astype(np.float32)
    return Digits(image=image[:, np.newaxis], label=data.target.astype(np.int64))


def split(digits: Digits, count: int) -> tuple[Digits, Digits]:
    """Return ``count`` samples, drawn with every digit in its share, and the rest."""
    indices = np.arange(len(digits.label))
    drawn, rest = train_test_split(indices, train_size=count, stratify=digits.label, random_state=SEED)
    return digits.take(drawn), digits.take(rest)


def build_network(rng: np.random.Generator) -> list[Layer]:
    """Return the layers from image to logits; the export adds the Softmax."""
    return [
        Conv("conv1", 1, 16, rng=rng),
        BatchNorm("norm1", 16),
        Relu("relu1"),
        Conv("conv2", 16, 32, rng=rng),
        BatchNorm("norm2", 32),
        Relu("relu2"),
        MaxPool("pool"),
        Conv("conv3", 32, 64, rng=rng),
        BatchNorm("norm3", 64),
        Relu("relu3"),
        Flatten("flatten"),
        Gemm("gemm", 64 * 4 * 4, CLASS_COUNT, rng=rng),
    ]


def shift_sideways(images: Array, rng: np.random.Generator) -> Array:
    """Move each image by -1, 0 or 1 pixel; not up or down, where the digits touch the border."""
    windows = sliding_window_view(pad_by_one(images)[:, :, 1:-1], images.shape[-1], axis=3)
    starts = rng.integers(0, 3, len(images))
    return windows[np.arange(len(images)), :, :, starts]


def softmax(logits: Array) -> Array:
    """Return the probabilities, row by row."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def train_step(network: Sequence[Layer], images: Array, labels: Labels) -> float:
    """Set the gradient of every parameter and return the cross-entropy with smoothed labels."""
    x = images
    for layer in network:
        x = layer.forward(x, training=True)
    probabilities = softmax(x)
    targets = np.full(x.shape, LABEL_SMOOTHING / CLASS_COUNT, np.float32)
    targets[np.arange(len(labels)), labels] += 1 - LABEL_SMOOTHING
    grad = (probabilities - targets) / np.float32(len(labels))
    for layer in reversed(network):
        grad = layer.backward(grad)
    return float(-(targets * np.log(probabilities + 1e-12)).sum(axis=1).mean())


def train(digits: Digits, rng: np.random.Generator) -> list[Layer]:
    """Return a trained network; the learning rate falls along half a cosine."""
    network = build_network(rng)
    count, steps = len(digits.label), 0
    for epoch in range(EPOCHS):
        rate = LEARNING_RATE * (1 + math.cos(math.pi * epoch / EPOCHS)) / 2
        for indices in np.array_split(rng.permutation(count), count // BATCH_SIZE):
            batch = digits.take(indices)
            loss = train_step(network, shift_sideways(batch.image, rng), batch.label)
            steps += 1
            for layer in network:
                for parameter in layer.parameters.values():
                    parameter.step(rate, steps)
        if (epoch + 1) % 10 == 0:
            logger.info("Epoch %d of %d, loss of the last batch %.3f", epoch + 1, EPOCHS, loss)
    return network


def export_model(network: Sequence[Layer]) -> onnx.ModelProto:
    """Return the network with a Softmax: one node per layer, each fed by the one before it."""
    nodes: list[onnx.NodeProto] = []
    initializers: list[onnx.TensorProto] = []
    source = "image"
    for layer in network:
        constants = [onnx.numpy_helper.from_array(v, f"{layer.name}.{k}") for k, v in layer.constants().items()]
        inputs = [source, *(constant.name for constant in constants)]
        source = f"{layer.name}.out"
        nodes.append(onnx.helper.make_node(layer.op_type, inputs, [source], name=layer.name, **layer.attributes))
        initializers += constants
    nodes.append(onnx.helper.make_node("Softmax", [source], ["probabilities"], name="softmax", axis=1))
    image = onnx.helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["batch", 1, 8, 8])
    answer = onnx.helper.make_tensor_value_info("probabilities", onnx.TensorProto.FLOAT, ["batch", CLASS_COUNT])
    graph = onnx.helper.make_graph(nodes, "digits", [image], [answer], initializers)
    opsets = [onnx.helper.make_opsetid("", OPSET_VERSION)]
    model = onnx.ModelProto(ir_version=IR_VERSION, graph=graph, opset_import=opsets)
    onnx.checker.check_model(model, full_check=True)
    return model


def count_right(model: Path, digits: Digits) -> int:
    """Return how many images the exported file classifies rightly in onnxruntime."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(["probabilities"], {"image": digits.image})
    return int((probabilities.argmax(axis=1) == digits.label).sum())


def main() -> int:
    """Train, write the three files and return 0 if the model is good enough to show."""
    parser = argparse.ArgumentParser(description="Train the digits example and export it to ONNX.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the files written")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    test, train_digits = split(load(), TEST_COUNT)
    calibration, _ = split(train_digits, CALIBRATION_COUNT)
    start = time.perf_counter()
    with threadpool_limits(BLAS_THREADS):
        network = train(train_digits, np.random.default_rng(SEED))
    logger.info("Trained on %d digits in %.0f s", len(train_digits.label), time.perf_counter() - start)

    onnx.save_model(export_model(network), out / "digits.onnx")
    np.savez_compressed(out / "calibration.npz", image=calibration.image)
    np.savez_compressed(out / "test.npz", image=test.image, label=test.label)
    right = count_right(out / "digits.onnx", test)
    logger.info("%d of %d held-out digits right (%.1f %%)", right, TEST_COUNT, 100 * right / TEST_COUNT)
    return 0 if right >= MIN_ACCURACY * TEST_COUNT else 1


if __name__ == "__main__":
    sys.exit(main())
