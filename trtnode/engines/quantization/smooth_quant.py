"""Moves scales from channels of activations into the weights that they meet; what the model computes stays the same.

G. Xiao et al., SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models, ICML 2023,
equation 4. Behind a LayerNorm a few channels are far larger than the others, and take the steps of one scale for all.
The strength of each tensor is the one with the smallest error on samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.engines.quantization.channel_equalization import ChannelExtremes
from trtnode.partitioner.model.new_values import add_constant, new_names
from trtnode.partitioner.model.values import is_constant, tensor_of

STRENGTHS = (0.5, 0.65, 0.8, 0.9)
"""Shares of the activations' scales that weights take over: alpha in the paper."""

WORTH = 0.8
"""The error has to fall to this share, since each factor costs a multiplication of the tensor."""

ROWS_OF_A_RUN, ROWS, COLUMNS = 4, 64, 512
"""Most vectors of a tensor that are kept of one run and compared, and most columns of weights."""

LEVELS, LARGEST = 255, 127
"""Steps of an activation, and the largest quantized weight."""


def smoothed_readers(graph: ir.Graph) -> dict[ir.Value, list[ir.Node]]:
    """Find tensors, not constant, that MatMuls multiply by a constant matrix of their own, with these MatMuls."""
    found: dict[ir.Value, list[ir.Node]] = {}
    for node in graph:
        value, weight = (*node.inputs, None, None)[:2]
        if node.op_type != "MatMul" or node.domain or value is None or weight is None or is_constant(value):
            continue
        own = all(reader.inputs[0] is value for reader in weight.consumers())
        if is_constant(weight) and own and len(tensor_of(weight).shape) == 2:
            found.setdefault(value, []).append(node)
    return found


class SmoothingSamples:
    """Samples of the tensors that can be smoothed: extremes of channels, and some vectors."""

    def __init__(self, readers: Mapping[ir.Value, Sequence[ir.Node]]) -> None:
        self._readers = {value.name: nodes for value, nodes in readers.items() if value.name}
        self._kept: dict[str, list[np.ndarray]] = {name: [] for name in self._readers}
        self.extremes = ChannelExtremes(self._readers, axis=-1)

    def observe(self, values: Mapping[str, np.ndarray]) -> None:
        """Take the tensors of one run into account."""
        self.extremes.observe(values)
        for name, kept in self._kept.items():
            if name in values and values[name].size and len(kept) < ROWS:
                rows = values[name].reshape(-1, values[name].shape[-1])
                kept.append(rows[:: -(-len(rows) // ROWS_OF_A_RUN)].astype(np.float32))

    def factors(self) -> dict[str, tuple[float, ...]]:
        """Return the factor of each channel, to the digits of float32, by the names of tensors where it is worth it."""
        found: dict[str, tuple[float, ...]] = {}
        for name, kept in self._kept.items():
            weights = [tensor_of(node.inputs[1]).numpy().astype(np.float32) for node in self._readers[name]]
            if kept and all(len(weight) == kept[0].shape[-1] for weight in weights):
                factors = _best(_spread(np.concatenate(kept), ROWS), self.extremes.largest(name), weights)
                if factors is not None:
                    found[name] = tuple(float(f"{factor:.7g}") for factor in factors)
        return found


def smooth(graph: ir.Graph, factors: Mapping[str, Sequence[float]], keep: Iterable[ir.Node]) -> dict[str, str]:
    """Multiply channels of tensors before the MatMuls that read them, and divide their weights, in place.

    Args:
        graph: Constants as initializers.
        factors: Of each channel, by value name.
        keep: MatMuls that stay as they are.

    Returns:
        The name of each smoothed tensor, with that of the tensor it comes from.
    """
    left, new, sources = set(keep), new_names(graph), dict[str, str]()
    for value, nodes in smoothed_readers(graph).items():
        readers, source = [node for node in nodes if node not in left], value.name or ""
        if not readers or source not in factors or value.dtype not in (None, ir.DataType.FLOAT):
            continue
        found = np.array(factors[source], np.float32)
        constant, named = add_constant(graph, f"{source}_smoothing", found), new(f"{source}_smooth")
        result = ir.Value(name=named, type=ir.TensorType(ir.DataType.FLOAT), shape=value.shape)
        scaling = ir.node("Mul", [value, constant], name=new(f"{source}/Smooth"), outputs=[result])
        graph.insert_before(readers[0], scaling)
        for node in readers:
            weight = tensor_of(node.inputs[1]).numpy() / found[:, np.newaxis]
            node.replace_input_with(0, result)
            node.replace_input_with(1, add_constant(graph, f"{node.outputs[0].name}_smooth_weight", weight))
        sources[named] = source
    return sources


def _best(rows: np.ndarray, largest: np.ndarray, weights: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return the factors with the smallest error; None where none is worth its multiplication."""
    if not (np.isfinite(rows).all() and np.isfinite(largest).all() and largest.max() > 0):
        return None
    some = [_spread(weight.T, COLUMNS).T for weight in weights]
    choices = [_factors(largest, weights, strength) for strength in STRENGTHS]
    errors = [_error(rows, some, factors) for factors in choices]
    least = int(np.argmin(errors))
    return choices[least] if errors[least] < WORTH * _error(rows, some, np.ones_like(largest)) else None


def _factors(largest: np.ndarray, weights: Sequence[np.ndarray], strength: float) -> np.ndarray:
    """Return the inverse of the paper's scales, around one."""
    of_weights = np.max([np.abs(weight).max(axis=1) for weight in weights], axis=0)
    floor = 1e-5 * np.array([largest.max(), max(of_weights.max(), np.finfo(np.float32).tiny)])
    scales = np.maximum(largest, floor[0]) ** strength / np.maximum(of_weights, floor[1]) ** (1 - strength)
    return np.asarray(np.exp(np.log(scales).mean()) / scales, np.float32)


def _error(rows: np.ndarray, weights: Sequence[np.ndarray], factors: np.ndarray) -> float:
    """Return the energy of what quantization adds to the products."""
    activations = _as_integers(rows * factors)
    products = ((rows @ w, activations @ _rounded(w / factors[:, np.newaxis])) for w in weights)
    return float(sum(np.square(exact - rounded).sum() for exact, rounded in products))


def _as_integers(rows: np.ndarray) -> np.ndarray:
    low, high = min(float(rows.min()), 0.0), max(float(rows.max()), 0.0)
    step = (high - low) / LEVELS or 1.0
    return np.asarray(np.rint(rows / step) * step)


def _rounded(weight: np.ndarray) -> np.ndarray:
    step = np.maximum(np.abs(weight).max(axis=0), np.finfo(np.float32).tiny) / LARGEST
    return np.asarray(np.rint(weight / step) * step)


def _spread(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most so many rows, evenly spread."""
    return rows[:: -(-len(rows) // most)]
