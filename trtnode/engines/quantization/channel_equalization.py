"""Scales channels so that those of one tensor share its eight bits evenly; what the model computes stays the same.

M. Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, ICCV 2019, section 4.1. The
ranges of channels come from samples here. A depthwise convolution has a scale for each channel's weights, so what it
reads is scaled for the activations alone. Other convolutions share a factor between activations and weights.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.model.new_values import add_constant
from trtnode.partitioner.model.values import input_of, is_constant, tensor_of

HOMOGENEOUS = frozenset("Add AveragePool Clip GlobalAveragePool LeakyRelu MaxPool Relu".split())
"""Operators whose results scale with their inputs, channel by channel, where factors are above zero."""

MOST = 16.0
"""Largest ratio between two factors of a tensor: samples say little about channels that are hardly used."""

ROWS = 256
"""Samples whose extremes are kept, so that memory is bounded."""


@dataclasses.dataclass(slots=True, eq=False)
class Group:
    """Values whose channels have the same factors, with the convolutions that make and read them.

    Attributes:
        values: Tensors with these channels on their second axis.
        producers: Convolutions that make one of them.
        consumers: Convolutions that read one of them.
        limit: The least value at which a Clip cuts.
        fixed: True if their factors must be one.
    """

    values: list[ir.Value] = dataclasses.field(default_factory=list)
    producers: list[ir.Node] = dataclasses.field(default_factory=list)
    consumers: list[ir.Node] = dataclasses.field(default_factory=list)
    limit: float = math.inf
    fixed: bool = False

    def absorb(self, other: Group) -> None:
        """Take over all that another group has."""
        self.values += other.values
        self.producers += other.producers
        self.consumers += other.consumers
        self.limit = min(self.limit, other.limit)
        self.fixed |= other.fixed


def free_groups(graph: ir.Graph) -> list[Group]:
    """Find the values that can be scaled: inside the graph, and between convolutions of constant weights.

    Args:
        graph: Nodes in topological order, constants as initializers, batch normalization folded.
    """
    groups: dict[ir.Value, Group] = {}

    def group_of(value: ir.Value) -> Group:
        if value not in groups:
            captured = any(reader.graph is not graph for reader in value.consumers())
            outside = captured or value.is_graph_input() or value.is_graph_output()
            groups[value] = Group([value], fixed=outside)
        return groups[value]

    for node in graph:
        inputs = [value for value in node.inputs if value is not None and not is_constant(value)]
        if _is_scalable(node, inputs):
            group_of(node.outputs[0]).producers.append(node)
            source = group_of(inputs[0])
            source.consumers.append(node)
            source.fixed |= node.attributes.get_int("group", 1) != 1 and not _is_depthwise(node)
        elif _is_homogeneous(node, inputs):
            joined = group_of(node.outputs[0])
            joined.limit = min(joined.limit, _limit(node))
            for other in {id(group): group for group in map(group_of, inputs)}.values():
                if other is not joined:
                    joined.absorb(other)
                    groups.update(dict.fromkeys(other.values, joined))
        else:
            for value in (*inputs, *node.outputs):
                group_of(value).fixed = True
    return [group for group in {id(g): g for g in groups.values()}.values() if _is_free(group)]


class ChannelExtremes:
    """Lowest and highest values of the channels of some tensors, sample by sample."""

    def __init__(self, names: Iterable[str], axis: int = 1) -> None:
        """Prepare for no samples yet.

        Args:
            names: The tensors.
            axis: The one that counts channels.
        """
        self._axis = axis
        self._rows: dict[str, list[np.ndarray]] = {name: [] for name in names}

    def observe(self, values: Mapping[str, np.ndarray]) -> None:
        """Take the tensors of one run into account."""
        for name, rows in self._rows.items():
            if name in values and values[name].size and sum(map(len, rows)) < ROWS:
                array = np.moveaxis(values[name], self._axis, 1)
                array = array.reshape(*array.shape[:2], -1)
                rows.append(np.stack([array.min(axis=2), array.max(axis=2)], axis=1).astype(np.float32))

    def largest(self, name: str) -> np.ndarray:
        """Return the largest absolute value of each channel; of no channel where the tensor was never seen."""
        rows = self._rows.get(name)
        return np.abs(self._of(name)).max(axis=(0, 1)) if rows else np.empty(0)

    def widen(self, name: str, known: tuple[float, float], factors: Sequence[float]) -> tuple[float, float]:
        """Return a range of a scaled tensor: as many times the known one as the mean extremes are."""
        rows = self._of(name)
        before, after = _mean_extremes(rows), _mean_extremes(rows * np.array(factors))
        low, high = np.array(known) * np.divide(after, before, out=np.ones(2), where=before != 0)
        return float(min(low, high)), float(max(low, high))

    def _of(self, name: str) -> np.ndarray:
        return np.concatenate(self._rows[name])


def equalizing_factors(groups: Sequence[Group], extremes: ChannelExtremes) -> dict[str, tuple[float, ...]]:
    """Return the factor of each channel, to the digits of float32, by the names of values that were seen."""
    found: dict[str, tuple[float, ...]] = {}
    for group in groups:
        largest = {v.name: seen for v in group.values if v.name and (seen := extremes.largest(v.name)).size}
        factors = _factors(group, list(largest.values()))
        if factors is not None:
            found.update(dict.fromkeys(largest, tuple(float(f"{factor:.7g}") for factor in factors)))
    return found


def _mean_extremes(rows: np.ndarray) -> np.ndarray:
    return np.array([rows[:, 0].min(axis=1).mean(), rows[:, 1].max(axis=1).mean()])


def scale_channels(graph: ir.Graph, factors: Mapping[str, Sequence[float]]) -> set[str]:
    """Scale weights and biases of convolutions, in place, where all readers of a tensor are in the graph.

    Args:
        graph: As ``free_groups`` takes it.
        factors: Of each channel, by value name.

    Returns:
        Names of the values that are scaled.
    """
    scaled: set[str] = set()
    outer: dict[ir.Node, np.ndarray] = {}
    inner: dict[ir.Node, np.ndarray] = {}
    for group in free_groups(graph):
        names = {v.name for v in group.values if v.name is not None and v.name in factors}
        if names:
            found = np.array(factors[min(names)])
            outer.update(dict.fromkeys(group.producers, found))
            inner.update(dict.fromkeys(group.consumers, found))
            scaled |= names
    for node in dict.fromkeys((*outer, *inner)):
        _scale(graph, node, outer.get(node), inner.get(node))
    return scaled


def _is_scalable(node: ir.Node, inputs: Sequence[ir.Value]) -> bool:
    """Return whether a node is a convolution of constants."""
    return node.op_type == "Conv" and not node.domain and list(inputs) == list(node.inputs[:1])


def _is_homogeneous(node: ir.Node, inputs: Sequence[ir.Value]) -> bool:
    whole = len(inputs) == (2 if node.op_type == "Add" else 1)
    return node.op_type in HOMOGENEOUS and not node.domain and whole and _limit(node) > 0


def _limit(node: ir.Node) -> float:
    """The value at which a Clip cuts; 0 where its least value is another than 0."""
    if node.op_type != "Clip":
        return math.inf
    low, high = ((*node.inputs[1:], None, None))[:2]
    if low is None or low.const_value is None or low.const_value.numpy() != 0:
        return 0.0
    return math.inf if high is None or high.const_value is None else float(high.const_value.numpy())


def _is_free(group: Group) -> bool:
    """Return whether factors can be taken up by weights, with one channel an index in all of them."""
    weights = [_weight(node) for node in group.producers]
    same = {(len(weight), weight.ndim) for weight in weights}
    return not group.fixed and len(same) == 1 and bool(group.consumers)


def _factors(group: Group, largest_of: Sequence[np.ndarray]) -> np.ndarray | None:
    """Choose factors from the largest absolute values of channels; None where they don't fit or are all zero."""
    channels = len(_weight(group.producers[0]))
    if not largest_of or any(len(largest) != channels for largest in largest_of):
        return None
    largest = np.max(largest_of, axis=0)
    if not (np.isfinite(largest).all() and largest.max() > 0):
        return None
    wanted = largest.max() / np.maximum(largest, largest.max() / MOST)
    dense = [_share(_weight(node)) for node in group.consumers if not _is_depthwise(node)]
    if dense:
        wanted = np.sqrt(wanted * np.maximum(np.max(dense, axis=0), 1 / MOST))
    if math.isinf(group.limit):
        return np.asarray(wanted * (largest.max() / (wanted * largest).max()))
    inside = group.limit / np.maximum(largest, group.limit / MOST)  # behind it, a Clip would cut what it left before
    return np.asarray(np.clip(wanted / wanted.min(), 1, np.maximum(inside, 1)))


def _share(weight: np.ndarray) -> np.ndarray:
    """Return each input channel's largest share of the largest weight of an output channel."""
    largest = np.abs(weight).reshape(*weight.shape[:2], -1).max(axis=2)
    return np.asarray((largest / np.maximum(largest.max(axis=1, keepdims=True), np.finfo(np.float32).tiny)).max(axis=0))


def _is_depthwise(node: ir.Node) -> bool:
    rows, columns = _weight(node).shape[:2]
    return bool(columns == 1 and rows == node.attributes.get_int("group", 1))


def _scale(graph: ir.Graph, node: ir.Node, made: np.ndarray | None, read: np.ndarray | None) -> None:
    """Give a convolution the weights and the bias that it needs between scaled tensors."""
    weight, name = _weight(node).astype(np.float64), node.outputs[0].name
    columns = (1, *[1] * (weight.ndim - 2))
    if read is not None:
        weight = weight / (read.reshape(-1, *columns) if _is_depthwise(node) else read.reshape(-1, *columns[1:]))
    if made is not None:
        weight = weight * made.reshape(-1, *columns)
        bias = input_of(node, 2)
        if bias is not None and bias.const_value is not None:
            shifted = add_constant(graph, f"{name}_equalized_bias", bias.const_value.numpy() * made, bias.dtype)
            node.replace_input_with(2, shifted)
    source = node.inputs[1]
    assert source is not None
    node.replace_input_with(1, add_constant(graph, f"{name}_equalized_weight", weight, source.dtype))


def _weight(node: ir.Node) -> np.ndarray:
    return tensor_of(node.inputs[1]).numpy()
