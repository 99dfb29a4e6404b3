"""Cuts the supported nodes into the fewest segments that leave the graph without a cycle."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from partitioner.errors import UnlabelledNodeError
from partitioner.graph import Graph, Node


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Nodes that one engine runs.

    Attributes:
        name: Unique within the model; the ``overload`` of its TrtNode.
        level: The segment runs after every native node of a lower level and before those of its own.
        nodes: In topological order, never empty.
        inputs: Run-time values that the segment reads from outside, in order of first use.
        outputs: Values that something outside the segment reads, in the order in which they are produced.
    """

    name: str
    level: int
    nodes: tuple[Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]


def assign_levels(graph: Graph, supported: Mapping[str, bool]) -> dict[str, int]:
    """Give each node the number of engine runs that a path to it must pass.

    A supported node has the largest level among its inputs, plus one where that input is native; a native node has
    the largest level among its inputs. Levels never fall along an edge and rise where a path enters the engine
    again, so no path leaves a level's supported nodes and comes back to them. Some path alternates through all
    levels, so no legal cut has fewer segments (typed fusion: Kennedy and McKinley, Rice TR 1994).

    Supported nodes that no request reaches (they compute from constants) then move down to the level of their first
    reader: that leaves every rule above intact and keeps their results off the boundary.

    Returns:
        Level by node identity: 1 and up for supported nodes, 0 and up for native ones. In O(nodes + edges).

    Raises:
        UnlabelledNodeError: If a node of ``graph`` is missing from ``supported``.
    """
    levels: dict[str, int] = {}
    for node in graph.nodes:
        if node.name not in supported:
            raise UnlabelledNodeError(node.name)
        inside = supported[node.name]
        reached = (levels[p] + (inside and not supported[p]) for p in node.predecessors)
        levels[node.name] = max(reached, default=0)
        if inside:
            levels[node.name] = max(levels[node.name], 1)
    _sink_constant_fed(graph, supported, levels)
    return levels


def check_certificate(graph: Graph, supported: Mapping[str, bool], levels: Mapping[str, int]) -> bool:
    """Whether levels prove that their segments leave the graph without a cycle. In O(nodes + edges)."""
    return all(
        levels[node.name] >= levels[p] + (supported[node.name] and not supported[p])
        for node in graph.nodes
        for p in node.predecessors
    )


def cut_segments(graph: Graph, supported: Mapping[str, bool]) -> list[Segment]:
    """Cut the supported nodes into the fewest segments that leave the graph without a cycle.

    Args:
        graph: The cleaned graph.
        supported: Whether the engine takes a node, by node identity.

    Returns:
        One segment a level, in execution order. Each supported node is in exactly one of them.

    Raises:
        UnlabelledNodeError: If a node of ``graph`` is missing from ``supported``.
    """
    levels = assign_levels(graph, supported)
    taken = {node.name for node in graph.nodes}
    names = (name for index in itertools.count() if (name := f"segment_{index}") not in taken)
    groups: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if supported[node.name]:
            groups.setdefault(levels[node.name], []).append(node)
    crossing = _values_crossing(graph, supported, levels)
    return [
        Segment(
            name=next(names),
            level=level,
            nodes=tuple(groups[level]),
            inputs=values_read(groups[level]),
            outputs=tuple(v for node in groups[level] for v in node.op.outputs if v in crossing),
        )
        for level in sorted(groups)
    ]


def values_read(nodes: Sequence[Node]) -> tuple[ir.Value, ...]:
    """Run-time values that nodes read from outside, in order of first use."""
    produced = {v for node in nodes for v in node.op.outputs}
    return tuple(dict.fromkeys(v for node in nodes for v in node.reads if v not in produced))


def values_leaving(graph: Graph, nodes: Sequence[Node]) -> tuple[ir.Value, ...]:
    """Values that nodes produce and that a graph output or any other node reads."""
    inside = {node.name for node in nodes}
    wanted = set(graph.outputs)
    for node in graph.nodes:
        if node.name not in inside:
            wanted.update(node.reads)
    return tuple(v for node in nodes for v in node.op.outputs if v in wanted)


def _values_crossing(graph: Graph, supported: Mapping[str, bool], levels: Mapping[str, int]) -> set[ir.Value]:
    """Every value that is an output or is read where it isn't produced, in one walk for all segments."""
    place = {node.name: levels[node.name] if supported[node.name] else None for node in graph.nodes}
    produced = {v: place[node.name] for node in graph.nodes for v in node.op.outputs}
    reads = ((v, place[node.name]) for node in graph.nodes for v in node.reads)
    return {*graph.outputs, *(v for v, where in reads if produced.get(v) != where)}


def _sink_constant_fed(graph: Graph, supported: Mapping[str, bool], levels: dict[str, int]) -> None:
    unreached: set[str] = set()
    for node in graph.nodes:
        reads_input = any(v.producer() is None for v in node.reads)
        if supported[node.name] and not reads_input and all(p in unreached for p in node.predecessors):
            unreached.add(node.name)
    first_reader: dict[str, int] = {}
    for node in reversed(graph.nodes):
        if node.name in unreached:
            levels[node.name] = max(1, first_reader.get(node.name, levels[node.name]))
        for p in node.predecessors:
            first_reader[p] = min(first_reader.get(p, levels[node.name]), levels[node.name])
