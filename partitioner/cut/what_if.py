"""Estimates of a partition in which the engine takes one operator more."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from partitioner.cut.cost_model import CostModel
from partitioner.cut.labels import ReasonCode, Verdict
from partitioner.cut.placement import place_nodes
from partitioner.graph.view import Graph

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
    refused = {
        node.name
        for node, once in zip(graph.nodes, constant, strict=True)
        if not once and labels[node.name].code not in (None, *NO_OBSTACLES)
    }
    counts = collections.Counter(node.op_type for node in graph.nodes if node.name in refused)
    inside = [labels[node.name].supported for node in graph.nodes]
    now_s = costs.total_s(_places(graph, inside))
    tries = []
    for op_type, count in counts.most_common(MAX_OPERATORS):
        wider = [
            engine or (node.op_type == op_type and node.name in refused)
            for node, engine in zip(graph.nodes, inside, strict=True)
        ]
        places = _places(graph, wider)
        saved_ms = (now_s - costs.total_s(places)) * 1e3
        tries.append(WhatIf(op_type=op_type, nodes=count, segments=int(places.max(initial=0)), saved_ms=saved_ms))
    return tuple(sorted(tries, key=lambda one: (-one.saved_ms, one.op_type)))


def _places(graph: Graph, inside: Sequence[bool]) -> np.ndarray:
    return np.where(inside, place_nodes(graph.topology, inside), -1)
