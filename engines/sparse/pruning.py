"""Magnitude pruning by blocks: the weights of least size become zero."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from engines.sparse.layers import find_layers
from engines.sparse.packing import LEAST_VALUES


def prune_model(model: onnx.ModelProto, share: float, block: int) -> list[str]:
    """Set blocks of weights to zero in place, layer by layer.

    The first and the last layer stay, depthwise convolutions too: they hold few weights, and cost most accuracy.

    Args:
        model: Its layers have constant float32 weights.
        share: Of the blocks of each layer that become zero, from 0 to 1.
        block: Successive output channels of a block.

    Returns:
        Names of the weights that were pruned.
    """
    layers = find_layers(model)[1:-1]
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    pruned = []
    for layer in layers:
        if layer.matrix.size < LEAST_VALUES or layer.matrix.shape[0] % block:
            continue
        name = layer.node.input[1]
        matrix = _pruned(layer.matrix, share, block)
        weights = (matrix.T if layer.transposed else matrix).reshape(tuple(tensors[name].dims))
        tensors[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(weights), name))
        pruned.append(name)
    return pruned


def _pruned(matrix: np.ndarray, share: float, block: int) -> np.ndarray:
    rows, columns = matrix.shape
    sizes = np.square(matrix).reshape(rows // block, block, columns).sum(axis=1)
    order = np.argsort(sizes, axis=None, kind="stable")
    kept = np.ones(sizes.size, dtype=bool)
    kept[order[: round(share * sizes.size)]] = False
    return np.where(np.repeat(kept.reshape(sizes.shape), block, axis=0), matrix, np.float32(0))
