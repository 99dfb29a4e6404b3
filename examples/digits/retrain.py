"""Train a pruned digits model on, with its zeros held.

``trtnode prune examples/digits/digits.onnx -o pruned.onnx --sparsity 0.5 --block 4`` sets weights to zero. Then
``python examples/digits/retrain.py pruned.onnx -o retrained.onnx`` wins back what that costs: after each step of the
optimizer, the weights that were zero become zero again. It exits with 1 if the loss against the dense model stays
above ``MOST_POINTS``.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from train import (
    BATCH_SIZE,
    BLAS_THREADS,
    SEED,
    TEST_COUNT,
    Array,
    BatchNorm,
    Digits,
    Layer,
    Parameter,
    build_network,
    count_right,
    export_model,
    load,
    shift_sideways,
    split,
    train_step,
)

logger = logging.getLogger(__name__)

DENSE = Path(__file__).with_name("digits.onnx")
EPOCHS = 3
LEARNING_RATE = 1e-3
MOST_POINTS = 0.6


def read_network(model: onnx.ModelProto) -> list[Layer]:
    """Return the network of train.py with the weights of a file."""
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    network = build_network(np.random.default_rng(SEED))
    for layer in network:
        for name, parameter in layer.parameters.items():
            parameter.value = values[f"{layer.name}.{name}"].copy()
        if isinstance(layer, BatchNorm):
            layer.mean, layer.variance = values[f"{layer.name}.mean"], values[f"{layer.name}.variance"]
    return network


def find_masks(network: Sequence[Layer]) -> dict[Parameter, Array]:
    """Return 0 for each weight that is zero, and 1 for each other one, of the parameters that have zeros."""
    parameters = [layer.parameters["weight"] for layer in network if "weight" in layer.parameters]
    masks = {parameter: (parameter.value != 0).astype(np.float32) for parameter in parameters}
    return {parameter: mask for parameter, mask in masks.items() if not mask.all()}


def retrain(network: Sequence[Layer], masks: Mapping[Parameter, Array], digits: Digits, epochs: int) -> None:
    """Train in place for a few epochs; the learning rate falls along half a cosine."""
    rng = np.random.default_rng(SEED)
    parameters = [parameter for layer in network for parameter in layer.parameters.values()]
    count, steps = len(digits.label), 0
    for epoch in range(epochs):
        rate = LEARNING_RATE * (1 + math.cos(math.pi * epoch / epochs)) / 2
        for indices in np.array_split(rng.permutation(count), count // BATCH_SIZE):
            batch = digits.take(indices)
            train_step(network, shift_sideways(batch.image, rng), batch.label)
            steps += 1
            for parameter in parameters:
                parameter.step(rate, steps)
                if parameter in masks:
                    parameter.value *= masks[parameter]


def main() -> int:
    """Retrain, write the model, and return 0 if it is about as good as the dense one."""
    parser = argparse.ArgumentParser(description="Train a pruned digits model on, with its zeros held.")
    parser.add_argument("model", type=Path, help="digits.onnx as `trtnode prune` wrote it")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="default: %(default)s")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    network = read_network(onnx.load(arguments.model))
    masks = find_masks(network)
    if not masks:
        logger.error("%s has no zeros to hold. Prune it first: trtnode prune.", arguments.model)
        return 1
    test, digits = split(load(), TEST_COUNT)
    with threadpool_limits(BLAS_THREADS):
        retrain(network, masks, digits, arguments.epochs)
    onnx.save_model(export_model(network), arguments.output)

    right = {path: count_right(path, test) for path in (DENSE, arguments.model, arguments.output)}
    for name, count in zip(("dense", "pruned", "retrained"), right.values(), strict=True):
        logger.info("%-9s %d of %d held-out digits right (%.1f %%)", name, count, TEST_COUNT, 100 * count / TEST_COUNT)
    points = 100 * (right[DENSE] - right[arguments.output]) / TEST_COUNT
    logger.info("%.1f points lost", points)
    return 0 if points <= MOST_POINTS else 1


if __name__ == "__main__":
    sys.exit(main())
