"""Magnitude pruning by blocks: the weights of least size become zero.

The first and the last layer stay by default, depthwise convolutions always: they hold few weights, and cost most
accuracy.
"""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from trtnode.engines.errors import PruningError
from trtnode.engines.sparse.layers import find_layers
from trtnode.engines.sparse.packing import LEAST_VALUES
from trtnode.engines.sparse.tensors import floats_of

RECURRENT = ("LSTM", "GRU")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PruningScope:
    """The layers that are pruned."""

    ends: bool = False
    """True prunes the first and the last layer too."""
    dense: tuple[str, ...] = ()
    """Patterns of names of nodes that keep their weights."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weights of a layer.

    Attributes:
        layer: Name of its node.
        tensor: Name of the initializer.
        matrix: The weights as [outputs, inputs of each].
        transposed: True if the file holds them as [inputs, outputs].
    """

    layer: str
    tensor: str
    matrix: np.ndarray
    transposed: bool


def prune_model(
    model: onnx.ModelProto,
    share: float,
    block: int,
    scope: PruningScope = PruningScope(),
) -> list[Weights]:
    """Set blocks of weights to zero in place.

    Args:
        model: Its layers have constant float32 weights.
        share: Of the blocks that become zero, from 0 to 1.
        block: Successive output channels of a block.
        scope: The layers.

    Returns:
        The weights that were pruned, with their new values, in the order of the graph.

    Raises:
        PruningError: No layer can be pruned, or a pattern of ``scope`` names none.
    """
    found = list(_weights(model))
    for pattern in scope.dense:
        if found and not any(fnmatch.fnmatchcase(one.layer, pattern) for one in found):
            raise PruningError(_unmatched(pattern, found))
    candidates = _candidates(found, block, scope)
    if not candidates:
        raise PruningError(f"There is nothing to prune: {_nothing(found, block)}.")
    scores = [_sizes(weights.matrix, block) for weights in candidates]
    kept = [_largest(one.reshape(-1), share).reshape(one.shape) for one in scores]
    pruned = [
        dataclasses.replace(one, matrix=np.where(np.repeat(keep, block, axis=0), one.matrix, np.float32(0)))
        for one, keep in zip(candidates, kept, strict=True)
    ]
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for one in pruned:
        _write(one, tensors[one.tensor])
    return pruned


def _weights(model: onnx.ModelProto) -> Iterator[Weights]:
    """Yield all weights of layers that only one node reads, in the order of the graph."""
    inferred = onnx.shape_inference.infer_shapes(model)
    names = {tensor.name for tensor in inferred.graph.initializer}
    inputs = [value for value in inferred.graph.input if value.name not in names]  # old files list weights too
    del inferred.graph.input[:]
    inferred.graph.input.extend(inputs)
    uses = collections.Counter(name for node in inferred.graph.node for name in node.input)
    layers = {layer.node.output[0]: layer for layer in find_layers(inferred)}
    tensors = {tensor.name: tensor for tensor in inferred.graph.initializer}
    for node in inferred.graph.node:
        name = node.name or (node.output[0] if node.output else "")
        if (layer := layers.get(node.output[0]) if node.output else None) is not None:
            found = [Weights(layer=name, tensor=node.input[1], matrix=layer.matrix, transposed=layer.transposed)]
        elif node.op_type in RECURRENT and not node.domain:
            found = list(_recurrent_weights(node, name, tensors))
        else:
            continue
        yield from (one for one in found if uses[one.tensor] == 1)


def _recurrent_weights(node: onnx.NodeProto, name: str, tensors: Mapping[str, onnx.TensorProto]) -> Iterator[Weights]:
    for tensor in (tensors.get(given) for given in node.input[1:3]):
        array = floats_of(tensor)
        if tensor is not None and array is not None and array.ndim == 3:
            matrix = array.reshape(-1, array.shape[-1])
            yield Weights(layer=name, tensor=tensor.name, matrix=matrix, transposed=False)


def _candidates(found: Sequence[Weights], block: int, scope: PruningScope) -> list[Weights]:
    ends = set() if scope.ends or not found else {found[0].layer, found[-1].layer}
    return [
        one
        for one in found
        if one.layer not in ends
        and one.matrix.size >= LEAST_VALUES
        and one.matrix.shape[0] % block == 0
        and not any(fnmatch.fnmatchcase(one.layer, pattern) for pattern in scope.dense)
    ]


def _unmatched(pattern: str, found: Sequence[Weights]) -> str:
    names = list(dict.fromkeys(one.layer for one in found))
    shown = ", ".join(repr(name) for name in names[:5])
    more = ", ..." if len(names) > 5 else ""
    return f"--dense {pattern!r} names no layer that could be pruned. Those are {shown}{more}."


def _nothing(found: Sequence[Weights], block: int) -> str:
    if not found:
        return "no Conv of one group, Gemm, MatMul, LSTM or GRU has constant float32 weights of its own"
    return (
        f"each of its {len(found)} layers is the first or the last, is left dense, has fewer than {LEAST_VALUES} "
        f"weights, or outputs that are no multiple of {block}. Other blocks or --all-layers may fit"
    )


def _sizes(matrix: np.ndarray, block: int) -> np.ndarray:
    """Return the energy of each block, ``float64[rows / block, columns]``."""
    rows, columns = matrix.shape
    energies: np.ndarray = np.square(matrix, dtype=np.float64).reshape(rows // block, block, columns).sum(axis=1)
    return energies


def _largest(scores: np.ndarray, share: float) -> np.ndarray:
    """Return ``bool`` of the same shape: False for the smallest."""
    kept = np.ones(scores.size, dtype=bool)
    kept[np.argsort(scores, kind="stable")[: round(share * scores.size)]] = False
    return kept


def _write(weights: Weights, tensor: onnx.TensorProto) -> None:
    array = (weights.matrix.T if weights.transposed else weights.matrix).reshape(tuple(tensor.dims))
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))
