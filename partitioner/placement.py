"""Places engine nodes into levels so that few bytes cross segments, without a single segment more than need be.

With the number of segments at its minimum, most nodes still have a choice: a window from their earliest level to their
latest. A tensor stays inside an engine where its producer and all its readers share a level. Deciding for each such
tensor, the most expensive first, whether they can: that slides nodes, and whole groups of nodes that already share a
level, inside their windows. A group is a contraction whose legality needs no search for cycles: it is legal exactly
if the windows that follow from it are not empty.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from partitioner.levels import certifies, earliest_levels, latest_levels, rises
from partitioner.topology import GRAPH_INPUT, Topology, as_booleans

CROSSING_BYTES = 16_384
"""What a tensor that crosses costs beside its bytes: binding and converting it takes as long as copying this much."""

FEW = 40
"""Tensors are decided together while more than one in so many is undecided, and one by one from then on."""

MAX_STEPS = 2_000
"""Edges to follow for one tensor before giving it up; keeps the whole near-linear."""


def place_nodes(topology: Topology, inside: Sequence[bool], *, together: Iterable[Sequence[int]] = ()) -> np.ndarray:
    """Give each node a level: engine nodes of one level form a segment.

    Args:
        topology: Of the graph.
        inside: Whether the engine runs a node, by node.
        together: Groups of engine nodes to keep on one level before anything else, where the number of segments
            allows it.

    Returns:
        Levels that ``levels.certifies``; the highest is the smallest number of segments that is legal.
    """
    earliest = earliest_levels(topology, inside)
    highest = max(itertools.compress(earliest, inside), default=0)
    if highest < 2:
        return np.array(earliest, dtype=np.int64)
    engine = as_booleans(inside)
    groups = _Groups(topology, inside, earliest, latest_levels(topology, inside, highest))
    for nodes in together:
        groups.join(nodes)
    costs = topology.sizes + CROSSING_BYTES
    avoidable = _avoidable_crossings(topology, engine)
    rest = avoidable
    while int(rest.sum()) * FEW > len(rest):
        kept = max(
            (rest & ~topology.read_elsewhere(placement) for placement in groups.placements()),
            key=lambda stays: int(costs[stays].sum()),
        )
        groups.join_all(_uses(topology, kept))
        rest = rest & ~kept & _has_common_level(topology, *groups.placements())
        if int(kept.sum()) < int(rest.sum()):
            break
    last = np.flatnonzero(rest)
    for tensor in last[np.argsort(-costs[last], kind="stable")].tolist():
        groups.join(topology.pins[topology.pin_starts[tensor] : topology.pin_starts[tensor + 1]].tolist())
    levels, _ = groups.placements()
    assert certifies(levels, topology, engine)
    return levels


def _avoidable_crossings(topology: Topology, engine: np.ndarray) -> np.ndarray:
    """Whether a tensor has a producer and readers and all are engine nodes, so that it need not cross, by tensor."""
    read = np.diff(topology.pin_starts) > 1
    made_inside = (topology.producers != GRAPH_INPUT) & engine[topology.producers]
    possible: np.ndarray = made_inside & read & ~topology.leaving & ~topology.read_elsewhere(engine)
    return possible


def _has_common_level(topology: Topology, lowest: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """Whether the windows of all nodes of a tensor have a level in common, by tensor."""
    starts = topology.pin_starts[:-1]
    common: np.ndarray = np.maximum.reduceat(lowest[topology.pins], starts) <= np.minimum.reduceat(
        highest[topology.pins], starts
    )
    return common


def _uses(topology: Topology, chosen: np.ndarray) -> np.ndarray:
    """Producer and reader of each use of some tensors, ``int[2, K]``."""
    counts = np.diff(topology.pin_starts)
    used = np.repeat(chosen, counts)
    return np.stack([np.repeat(topology.producers, counts)[used], topology.pins[used]])


_Moved = tuple[Sequence[int], int]
"""Nodes whose window got narrower, and the level where it begins or ends now."""


class _Groups:
    """Nodes that have been decided to share a level, each group with the window of levels that is left to it.

    The lowest levels of all windows are a legal placement by themselves, and so are the highest.
    """

    def __init__(
        self, topology: Topology, inside: Sequence[bool], earliest: Sequence[int], latest: Sequence[int]
    ) -> None:
        self._topology = topology
        self._inside = inside
        self._rises = rises(topology, as_booleans(inside))
        self._low = list(earliest)
        self._high = list(latest)
        self._parents = list(range(len(inside)))
        self._members: dict[int, list[int]] = {}
        self._undo: list[tuple[list[int], int, int]] = []
        self._changed: list[tuple[list[int], int, int]] = []
        count = len(inside)
        self._arrays = (
            np.arange(count),
            np.fromiter(earliest, dtype=np.int64, count=count),
            np.fromiter(latest, dtype=np.int64, count=count),
        )

    def placements(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest level of each node's group, by node."""
        roots, low, high = self._as_arrays()
        return low[roots], high[roots]

    def join_all(self, edges: np.ndarray) -> None:
        """Join what many edges connect, where the lowest or the highest levels already put both ends on one level.

        That placement satisfies all of it at once, so windows get narrower and never empty.
        """
        roots, low, high = self._as_arrays()
        low, high = low[roots], high[roots]
        roots = connected_nodes(roots, edges)
        group_low, group_high = low.copy(), high.copy()
        np.maximum.at(group_low, roots, low)
        np.minimum.at(group_high, roots, high)
        self._parents, self._low, self._high = roots.tolist(), group_low.tolist(), group_high.tolist()
        self._members = _members(roots)
        self._arrays = (roots, group_low, group_high)
        before, after = self._topology.edges
        low, high = group_low[roots], group_high[roots]
        unlimited = len(roots) ** 2
        assert self._raise_lowest(_each(before[low[after] < low[before] + self._rises], low), unlimited)
        assert self._reduce_highest(_each(after[high[before] > high[after] - self._rises], high), unlimited)
        self._changed.extend(self._undo)
        self._undo.clear()

    def join(self, nodes: Sequence[int]) -> bool:
        """Put nodes on one level, and so all of their groups, if some legal placement does."""
        roots = {self._root(node) for node in nodes}
        if len(roots) == 1:
            return True
        low, high = max([self._low[r] for r in roots]), min([self._high[r] for r in roots])
        if low > high:
            return False
        raised: list[_Moved] = [(tuple(self._nodes_of(r)), low) for r in roots if self._low[r] < low]
        reduced: list[_Moved] = [(tuple(self._nodes_of(r)), high) for r in roots if self._high[r] > high]
        self._unite(list(roots), low, high)
        joined = self._raise_lowest(raised, MAX_STEPS) and self._reduce_highest(reduced, MAX_STEPS)
        if joined:
            self._changed.extend(self._undo)
        else:
            self._take_back()
        self._undo.clear()
        return joined

    def _unite(self, roots: Sequence[int], low: int, high: int) -> None:
        into = max(roots, key=lambda root: len(self._nodes_of(root)))
        self._set(self._low, into, low)
        self._set(self._high, into, high)
        members = self._members.setdefault(into, [into])
        self._undo.append((members, -1, len(members)))
        for root in roots:
            if root != into:
                members.extend(self._nodes_of(root))
                self._set(self._parents, root, into)

    def _take_back(self) -> None:
        for values, index, value in reversed(self._undo):
            if index < 0:
                del values[value:]
            else:
                values[index] = value

    def _set(self, values: list[int], index: int, value: int) -> None:
        self._undo.append((values, index, values[index]))
        values[index] = value

    def _nodes_of(self, root: int) -> Sequence[int]:
        return self._members.get(root) or (root,)

    def _root(self, node: int) -> int:
        parents = self._parents
        while parents[node] != node:
            node = parents[node]
        return node

    def _as_arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Roots, lowest and highest levels: what they were when last asked for, with what has changed since."""
        roots, low, high = self._arrays
        for values, index, _ in self._changed:
            if values is self._parents:
                roots[index] = values[index]
            elif values is self._low:
                low[index] = values[index]
            elif values is self._high:
                high[index] = values[index]
        self._changed.clear()
        self._arrays = (_shortcut(roots), low, high)
        return self._arrays

    def _raise_lowest(self, pending: list[_Moved], steps: int) -> bool:
        """Let windows follow from the lowest levels of some nodes; False if one gets empty or it takes too long."""
        inside, low, high, parents = self._inside, self._low, self._high, self._parents
        while pending:
            nodes, level = pending.pop()
            for node in nodes:
                entered = level if inside[node] else level + 1
                for successor in self._topology.successors[node]:
                    steps -= 1
                    root = successor
                    while parents[root] != root:
                        root = parents[root]
                    needed = entered if inside[successor] else level
                    if low[root] < needed:
                        if needed > high[root] or steps < 0:
                            return False
                        self._undo.append((low, root, low[root]))
                        low[root] = needed
                        pending.append((self._nodes_of(root), needed))
        return True

    def _reduce_highest(self, pending: list[_Moved], steps: int) -> bool:
        """The same downwards, from the highest levels."""
        inside, low, high, parents = self._inside, self._low, self._high, self._parents
        while pending:
            nodes, level = pending.pop()
            for node in nodes:
                left = level - 1 if inside[node] else level
                for predecessor in self._topology.predecessors[node]:
                    steps -= 1
                    root = predecessor
                    while parents[root] != root:
                        root = parents[root]
                    allowed = level if inside[predecessor] else left
                    if high[root] > allowed:
                        if allowed < low[root] or steps < 0:
                            return False
                        self._undo.append((high, root, high[root]))
                        high[root] = allowed
                        pending.append((self._nodes_of(root), allowed))
        return True


def _each(nodes: np.ndarray, levels: np.ndarray) -> list[_Moved]:
    nodes = np.unique(nodes)
    return [((node,), level) for node, level in zip(nodes.tolist(), levels[nodes].tolist(), strict=True)]


def _members(roots: np.ndarray) -> dict[int, list[int]]:
    """Nodes of every group of several, by root."""
    order = np.argsort(roots, kind="stable")
    begins = np.flatnonzero(np.diff(roots[order], prepend=-1))
    ends = np.append(begins[1:], len(order))
    several = ends - begins > 1
    nodes = order.tolist()
    bounds = zip(begins[several].tolist(), ends[several].tolist(), strict=True)
    return {nodes[begin]: nodes[begin:end] for begin, end in bounds}


def connected_nodes(roots: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The root of all that each node is connected with, by node (hook, then shortcut: Shiloach and Vishkin 1982).

    Args:
        roots: The root of what each node is connected with so far.
        edges: Connections to add, ``int[2, K]``.
    """
    one, other = edges
    while True:
        near = np.minimum(roots[one], roots[other])
        np.minimum.at(roots, roots[one], near)
        np.minimum.at(roots, roots[other], near)
        roots = _shortcut(roots)
        if np.array_equal(roots[one], roots[other]):
            return roots


def _shortcut(parents: np.ndarray) -> np.ndarray:
    while True:
        further = parents[parents]
        if np.array_equal(further, parents):
            return parents
        parents = further
