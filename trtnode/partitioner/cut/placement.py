"""Places engine nodes on levels so that few bytes cross segments, with the fewest segments possible.

At the smallest number of segments, most nodes still have a window from their earliest level to their latest.
A tensor stays inside an engine if its producer and all its readers share a level.
The placement decides that for each tensor, the most expensive first, and moves nodes inside their windows.
Nodes that already share a level move as a group. A group is a contraction whose legality needs no search for cycles.
It is legal exactly if no window that follows from it is empty.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from trtnode.partitioner.cut.levels import certifies, earliest_levels, latest_levels, rises
from trtnode.partitioner.graph.topology import GRAPH_INPUT, Topology, as_booleans

CROSSING_BYTES = 16_384
"""Cost of a crossing tensor beside its bytes: binding and converting it takes as long as copying this much."""

FEW = 40
"""Tensors are decided together while more than one in this many is undecided, then one by one."""

MAX_STEPS = 2_000
"""Limit of edges to follow for one tensor; it keeps the total time near-linear."""


def place_nodes(topology: Topology, inside: Sequence[bool], *, together: Iterable[Sequence[int]] = ()) -> np.ndarray:
    """Give each node a level. Engine nodes of one level form a segment.

    Args:
        topology: The graph.
        inside: True if the engine runs a node, by node.
        together: Groups of engine nodes to keep on one level first, if the number of segments allows it.

    Returns:
        Levels that ``levels.certifies``. The highest is the smallest legal number of segments.
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
    """Return, by tensor, whether it has a producer and readers and all are engine nodes, so that it need not cross."""
    read = np.diff(topology.pin_starts) > 1
    made_inside = (topology.producers != GRAPH_INPUT) & engine[topology.producers]
    possible: np.ndarray = made_inside & read & ~topology.leaving & ~topology.read_elsewhere(engine)
    return possible


def _has_common_level(topology: Topology, lowest: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """Return, by tensor, whether the windows of all its nodes have a level in common."""
    starts = topology.pin_starts[:-1]
    common: np.ndarray = np.maximum.reduceat(lowest[topology.pins], starts) <= np.minimum.reduceat(
        highest[topology.pins], starts
    )
    return common


def _uses(topology: Topology, chosen: np.ndarray) -> np.ndarray:
    """Return producer and reader of each use of the chosen tensors, ``int[2, K]``."""
    counts = np.diff(topology.pin_starts)
    used = np.repeat(chosen, counts)
    return np.stack([np.repeat(topology.producers, counts)[used], topology.pins[used]])


_Moved = tuple[Sequence[int], int]
"""Nodes whose bound has grown, and the new bound."""


@dataclasses.dataclass(slots=True, kw_only=True)
class _Side:
    """One end of every window as a bound that grows when the window narrows: the lowest level, or minus the highest.

    Both ends follow one rule: along an edge, a bound never falls, and it rises where the edge enters the engine.
    The highest levels follow it against the edges, where a path out of the engine enters the rest.

    Attributes:
        neighbours: The nodes whose bounds follow from a node's, by node.
        edges: The same as two rows, ``int[2, E]``: from, to.
        entered: True if the bound rises on an edge to this node from a node where it is false, by node.
        bounds: Bound of each group, by its root.
        settled: The same as an array, without the latest changes.
    """

    neighbours: Sequence[Sequence[int]]
    edges: np.ndarray
    entered: Sequence[bool]
    bounds: list[int]
    settled: np.ndarray


class _Groups:
    """Groups of nodes that share a level, each with its remaining window of levels.

    The lowest levels of all windows are a legal placement, and so are the highest.
    """

    def __init__(
        self, topology: Topology, inside: Sequence[bool], earliest: Sequence[int], latest: Sequence[int]
    ) -> None:
        low, minus_high = np.fromiter(earliest, np.int64), -np.fromiter(latest, np.int64)
        outside = [not engine for engine in inside]
        up = _Side(
            neighbours=topology.successors, edges=topology.edges, entered=inside, bounds=list(earliest), settled=low
        )
        down = _Side(
            neighbours=topology.predecessors,
            edges=topology.edges[::-1],
            entered=outside,
            bounds=minus_high.tolist(),
            settled=minus_high,
        )
        self._sides = ((up, down), (down, up))
        self._rises = rises(topology, as_booleans(inside))
        self._parents = list(range(len(inside)))
        self._roots = np.arange(len(inside))
        self._members: dict[int, list[int]] = {}
        self._undo: list[tuple[list[int], int, int]] = []
        self._changed: list[tuple[list[int], int, int]] = []

    def placements(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and the highest level of each node's group, by node."""
        self._settle()
        up, down = self._sides[0]
        return up.settled[self._roots], -down.settled[self._roots]

    def join_all(self, edges: np.ndarray) -> None:
        """Join the ends of many edges. The lowest or the highest levels must already put both ends on one level.

        That placement satisfies all edges at once, so windows get narrower but never empty.
        """
        self._settle()
        by_node = [side.settled[self._roots] for side, _ in self._sides]
        self._roots = connected_nodes(self._roots, edges)
        self._parents = self._roots.tolist()
        self._members = _members(self._roots)
        for (side, _), bounds in zip(self._sides, by_node, strict=True):
            side.settled = bounds.copy()
            np.maximum.at(side.settled, self._roots, bounds)
            side.bounds = side.settled.tolist()
        for side, other in self._sides:
            bounds = side.settled[self._roots]
            origin, end = side.edges
            behind = np.flatnonzero(np.bincount(origin[bounds[end] < bounds[origin] + self._rises]))
            pending: list[_Moved] = [
                ((node,), bound) for node, bound in zip(behind.tolist(), bounds[behind].tolist(), strict=True)
            ]
            assert self._follow(side, other, pending, len(bounds) ** 2)
        self._changed.extend(self._undo)
        self._undo.clear()

    def join(self, nodes: Sequence[int]) -> bool:
        """Put nodes and their groups on one level if a legal placement does so."""
        roots = {self._root(node) for node in nodes}
        if len(roots) == 1:
            return True
        bounds = [max([side.bounds[root] for root in roots]) for side, _ in self._sides]
        if sum(bounds) > 0:
            return False
        moved: list[list[_Moved]] = [
            [(tuple(self._nodes_of(root)), bound) for root in roots if side.bounds[root] < bound]
            for (side, _), bound in zip(self._sides, bounds, strict=True)
        ]
        self._unite(list(roots), bounds)
        joined = all(
            self._follow(side, other, pending, MAX_STEPS)
            for (side, other), pending in zip(self._sides, moved, strict=True)
        )
        if joined:
            self._changed.extend(self._undo)
        else:
            self._take_back()
        self._undo.clear()
        return joined

    def _unite(self, roots: Sequence[int], bounds: Sequence[int]) -> None:
        into = max(roots, key=lambda root: len(self._nodes_of(root)))
        for (side, _), bound in zip(self._sides, bounds, strict=True):
            self._set(side.bounds, into, bound)
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

    def _settle(self) -> None:
        """Update the arrays from the lists."""
        arrays = {id(side.bounds): side.settled for side, _ in self._sides} | {id(self._parents): self._roots}
        for values, index, _ in self._changed:
            if id(values) in arrays:  # else a list of members
                arrays[id(values)][index] = values[index]
        self._changed.clear()
        self._roots = _shortcut(self._roots)

    def _follow(self, side: _Side, other: _Side, pending: list[_Moved], steps: int) -> bool:
        """Propagate grown bounds; return False if a window gets empty or the steps run out."""
        entered, bounds, opposite, parents = side.entered, side.bounds, other.bounds, self._parents
        while pending:
            nodes, bound = pending.pop()
            for node in nodes:
                entering = bound if entered[node] else bound + 1
                for neighbour in side.neighbours[node]:
                    steps -= 1
                    root = neighbour
                    while parents[root] != root:
                        root = parents[root]
                    needed = entering if entered[neighbour] else bound
                    if bounds[root] < needed:
                        if needed + opposite[root] > 0 or steps < 0:
                            return False
                        self._undo.append((bounds, root, bounds[root]))
                        bounds[root] = needed
                        pending.append((self._nodes_of(root), needed))
        return True


def _members(roots: np.ndarray) -> dict[int, list[int]]:
    """Return the nodes of every group of two or more, by root."""
    order = np.argsort(roots, kind="stable")
    begins = np.flatnonzero(np.diff(roots[order], prepend=-1))
    ends = np.append(begins[1:], len(order))
    several = ends - begins > 1
    nodes = order.tolist()
    bounds = zip(begins[several].tolist(), ends[several].tolist(), strict=True)
    return {nodes[begin]: nodes[begin:end] for begin, end in bounds}


def connected_nodes(roots: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the root of each node's connected component (hook, then shortcut: Shiloach and Vishkin 1982).

    Args:
        roots: Root of each node's component so far, by node.
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
