"""Estimates of a partition in which the engine takes one operator more."""

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
from trtnode.partitioner.graph.topology import as_booleans
from trtnode.partitioner.graph.view import Graph, Node

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


def _places(graph: Graph, inside: Sequence[bool]) -> np.ndarray:
    return np.where(inside, place_nodes(graph.topology, inside), -1)
