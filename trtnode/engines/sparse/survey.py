"""The zeros in a model's weights: how many there are, in which blocks, and what leaving them out could gain."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from trtnode.engines.sparse.packing import BLOCK_COSTS, LEAST_VALUES, best_block, expected_gain, sparsity, stored_share
from trtnode.partitioner.graph.view import Graph, Node

NOTABLE = 0.2
"""Share of zeros from which a layer is told."""

LAYERS = frozenset({"Conv", "Gemm", "MatMul", "LSTM", "GRU"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LayerSparsity:
    """The zeros of one layer's weights.

    Attributes:
        node: Identity of the node.
        op_type: Its operator.
        weights: Shape of the weights.
        zeros: Share of zeros.
        stored: Share of values that blocks store, by rows of a block along output channels; only rows that divide.
        two_of_four: True if at most two of four successive inputs of an output are not zero, as TensorRT's sparse
            kernels need.
        gain: Expected times as fast as a dense engine, with the best block; below 1 where dense is faster.
    """

    node: str
    op_type: str
    weights: tuple[int, ...]
    zeros: float
    stored: dict[int, float]
    two_of_four: bool
    gain: float


def survey(graph: Graph) -> list[LayerSparsity]:
    """List the layers that have many zeros in their constant float weights."""
    return [told for node in graph.nodes if node.op_type in LAYERS and (told := _layer_sparsity(node)) is not None]


def has_sparse_layers(graph: ir.Graph) -> bool:
    """Return whether some layer is expected to gain from an engine that leaves zeros out."""
    layers = (op for op in graph if op.op_type in LAYERS)
    return any(best_block(matrix) is not None for op in layers for matrix, _ in _matrices(op))


def _layer_sparsity(node: Node) -> LayerSparsity | None:
    found = [(matrix, shape) for matrix, shape in _matrices(node.op) if matrix.size >= LEAST_VALUES]
    if not found:
        return None
    matrix, shape = max(found, key=lambda one: one[0].size)
    zeros = sparsity(matrix)
    if zeros < NOTABLE:
        return None
    shares = {block: share for block in (1, 4, 8) if (share := stored_share(matrix, block)) is not None}
    gains = [gain for block in BLOCK_COSTS if (gain := expected_gain(matrix, block)) is not None]
    return LayerSparsity(
        node=node.name,
        op_type=node.op_type,
        weights=shape,
        zeros=zeros,
        stored=shares,
        two_of_four=_is_two_of_four(matrix),
        gain=max(gains),
    )


def _matrices(op: ir.Node) -> Iterator[tuple[np.ndarray, tuple[int, ...]]]:
    """Yield the constant weights of a layer as [outputs, inputs of each], with their shape in the file."""
    for value in op.inputs[1 : 3 if op.op_type in ("LSTM", "GRU") else 2]:
        constant = value.const_value if value is not None else None
        if constant is None or constant.dtype != ir.DataType.FLOAT or constant.shape.rank() < 2:
            continue
        array = constant.numpy()
        shape = tuple(array.shape)
        if op.op_type == "MatMul" or (op.op_type == "Gemm" and not op.attributes.get_int("transB", 0)):
            array = array.swapaxes(-1, -2)
        rows = array.shape[0] if op.op_type in ("Conv", "Gemm") else int(np.prod(array.shape[:-1]))
        yield array.reshape(rows, -1), shape


def _is_two_of_four(matrix: np.ndarray) -> bool:
    rows, columns = matrix.shape
    if columns % 4:
        return False
    return bool(((matrix.reshape(rows, columns // 4, 4) != 0).sum(axis=2) <= 2).all())
