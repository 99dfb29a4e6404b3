"""Levels: the number of engine runs on a path to a node. The highest level is the smallest number of segments.

Engine nodes of equal level form a segment. Levels never fall along an edge and rise where a path reenters the engine.
So no path leaves a segment and comes back to it. Some path passes through all levels, so no legal cut has fewer
segments (typed fusion: Kennedy and McKinley, Rice TR 1994).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trtnode.partitioner.graph.topology import Topology


def earliest_levels(topology: Topology, inside: Sequence[bool]) -> list[int]:
    """Return the lowest level of each node, in O(nodes + edges).

    A native node has the largest level among its inputs, at least 0.
    An engine node has the largest among its inputs too, where a native input counts one more; at least 1.

    Args:
        topology: The graph.
        inside: True if the engine runs a node, by node.
    """
    levels: list[int] = []
    entered: list[int] = []  # the lowest level of an engine node that reads from each node
    for predecessors, engine in zip(topology.predecessors, inside, strict=True):
        if engine:
            level = 1
            for p in predecessors:
                if entered[p] > level:
                    level = entered[p]
            entered.append(level)
        else:
            level = 0
            for p in predecessors:
                if levels[p] > level:
                    level = levels[p]
            entered.append(level + 1)
        levels.append(level)
    return levels


def latest_levels(topology: Topology, inside: Sequence[bool], highest: int) -> list[int]:
    """Return the highest level of each node if no level exceeds ``highest``, in O(nodes + edges)."""
    levels = [highest] * len(inside)
    left = [highest] * len(inside)  # the highest level of a native node that each node reads from
    successors = topology.successors
    for node in range(len(inside) - 1, -1, -1):
        level = highest
        if inside[node]:
            for s in successors[node]:
                if levels[s] < level:
                    level = levels[s]
            left[node] = level - 1
        else:
            for s in successors[node]:
                if left[s] < level:
                    level = left[s]
            left[node] = level
        levels[node] = level
    return levels


def certifies(levels: np.ndarray, topology: Topology, inside: np.ndarray) -> bool:
    """Return whether levels prove that their segments form no cycle, in O(nodes + edges).

    Args:
        levels: Level by node, ``int[N]``.
        topology: The graph.
        inside: True if the engine runs a node, ``bool[N]``.
    """
    before, after = topology.edges
    return bool((levels[after] >= levels[before] + rises(topology, inside)).all())


def rises(topology: Topology, inside: np.ndarray) -> np.ndarray:
    """Return, by edge, whether it enters the engine, so that the level must rise along it."""
    before, after = topology.edges
    enters: np.ndarray = inside[after] & ~inside[before]
    return enters
