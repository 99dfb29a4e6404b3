"""Estimates of a partition in which the engine takes one operator more, or initializers are constants."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import operator
from collections.abc import Mapping, Sequence

import numpy as np

from trtnode.partitioner.cut.cost_model import CostModel
from trtnode.partitioner.cut.labels import ReasonCode, Verdict, engine_nodes
from trtnode.partitioner.cut.placement import place_nodes
from trtnode.partitioner.cut.segments import Segment, places_of
from trtnode.partitioner.graph.topology import as_booleans
from trtnode.partitioner.graph.view import Graph, Node
from trtnode.partitioner.model.default_values import held_defaults, inputs_with_defaults
from trtnode.partitioner.model.values import read_values

MAX_OPERATORS = 12
"""Limit of operators to try, the most frequent ones first."""

MAX_NODES = 20_000
"""Limit of a graph's nodes, because each try takes as long as a cut."""

NO_OBSTACLES = frozenset({ReasonCode.USER_EXCLUDED, ReasonCode.TOO_SMALL, ReasonCode.NOT_FASTER})
"""Reasons that support for an operator doesn't remove."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Outcome of one try.

    Attributes:
        op_type: The operator.
        nodes: Number of its nodes that run natively now.
        segments: Number of segments with the operator supported.
        saved_ms: Estimated saving of time.
    """

    op_type: str
    nodes: int
    segments: int
    saved_ms: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FrozenWhatIf:
    """Outcome of constants in place of the initializers that a request may replace.

    Attributes:
        initializers: Number of these initializers.
        nodes: Number of nodes that read one.
        segments: Number of segments with constants instead.
        saved_ms: Estimated saving of time.
    """

    initializers: int
    nodes: int
    segments: int
    saved_ms: float


def compare_frozen(
    graph: Graph, segments: Sequence[Segment], frozen: Graph, frozen_segments: Sequence[Segment]
) -> FrozenWhatIf | None:
    """Compare a cut graph with the same one after ``freeze_initializers``; None where that gives engines nothing.

    Where engines hold defaults as constants, that may still save segments: more can be folded.

    Args:
        graph: The graph.
        segments: Of the graph.
        frozen: The graph with constants.
        frozen_segments: Of the graph with constants.
    """
    inside = {node.index for segment in segments for node in segment.nodes}
    kept_native = sum(node.index not in inside and _reads_replaceable(node) for node in graph.nodes)
    saves = kept_native or len(frozen_segments) < len(segments)
    if not saves or not frozen_segments:
        return None
    own = graph.model.graph
    replaceable = {*inputs_with_defaults(own), *held_defaults(own)}
    return FrozenWhatIf(
        initializers=len(replaceable),
        nodes=sum(not replaceable.isdisjoint(read_values(node.op)) for node in graph.nodes),
        segments=len(frozen_segments),
        saved_ms=(_total_s(graph, segments) - _total_s(frozen, frozen_segments)) * 1e3,
    )


def try_operators(graph: Graph, labels: Mapping[str, Verdict], costs: CostModel) -> tuple[WhatIf, ...]:
    """Cut again with each refused operator supported, one at a time. The greatest saving comes first."""
    if len(graph.nodes) > MAX_NODES:
        return ()
    constant = graph.constant
    inside = engine_nodes(graph, labels)
    refused: dict[str, list[int]] = collections.defaultdict(list)
    for node in itertools.compress(graph.nodes, map(operator.not_, inside)):
        obstacle = not constant[node.index] and labels[node.name].code not in NO_OBSTACLES
        if obstacle and not _reads_replaceable(node):
            refused[node.op_type].append(node.index)
    counts = collections.Counter({op_type: len(nodes) for op_type, nodes in refused.items()})
    now_s = costs.total_s(_places(graph, inside)) if counts else 0.0
    tries = []
    for op_type, count in counts.most_common(MAX_OPERATORS):
        wider = as_booleans(inside).copy()
        wider[refused[op_type]] = True
        places = _places(graph, wider.tolist())
        saved_ms = (now_s - costs.total_s(places)) * 1e3
        tries.append(WhatIf(op_type=op_type, nodes=count, segments=int(places.max(initial=0)), saved_ms=saved_ms))
    return tuple(sorted(tries, key=lambda one: (-one.saved_ms, one.op_type)))


def _reads_replaceable(node: Node) -> bool:
    """Return whether a node reads an initializer that a request may replace, so that no engine takes it."""
    return any(value.is_initializer() for value in node.reads)


def _total_s(graph: Graph, segments: Sequence[Segment]) -> float:
    return CostModel(graph).total_s(places_of(graph, segments))


def _places(graph: Graph, inside: Sequence[bool]) -> np.ndarray:
    return np.where(inside, place_nodes(graph.topology, inside), -1)
