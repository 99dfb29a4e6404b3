"""Cuts the supported nodes into the fewest segments that leave the graph without a cycle."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.cut.placement import connected_nodes, place_nodes
from trtnode.partitioner.graph.topology import GRAPH_INPUT, as_booleans
from trtnode.partitioner.graph.view import Graph, Node

NATIVE = -1
"""Place of a native node."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Nodes that one engine runs.

    Attributes:
        name: Name unique within the model; the ``overload`` of its TrtNode.
        level: The segment runs after every native node of a lower level and before those of its own.
        nodes: Nodes in topological order, never empty.
        inputs: Run-time values that the segment reads from outside, in order of first use.
        outputs: Values that something outside the segment reads, in the order in which they are produced.
    """

    name: str
    level: int
    nodes: tuple[Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]


def cut(
    graph: Graph, inside: Sequence[bool], *, together: Sequence[Sequence[int]] = (), connected: bool = False
) -> list[Segment]:
    """Cut the supported nodes into the fewest segments that leave the graph without a cycle.

    Args:
        graph: The cleaned graph.
        inside: True if the engine takes a node, by number.
        together: Groups of supported nodes, by number, to keep in one segment if that needs no further segment.
        connected: True if each segment must be connected. Then a level may have several.

    Returns:
        Segments in execution order. Each supported node is in exactly one of them.
    """
    levels = place_nodes(graph.topology, inside, together=together)
    places = np.where(as_booleans(inside), levels, NATIVE)
    if connected:
        places = _connected_parts(graph, places)
    names = _unused_names(graph)
    inputs, outputs = _inputs(graph, places), _outputs(graph, places)
    members = _by_place(places, np.arange(len(places)))
    order = sorted(members, key=lambda place: (levels.item(members[place][0]), members[place][0]))
    return [
        Segment(
            name=next(names),
            level=levels.item(members[place][0]),
            nodes=tuple(map(graph.nodes.__getitem__, members[place])),
            inputs=tuple(map(graph.tensors.__getitem__, inputs.get(place, ()))),
            outputs=tuple(map(graph.tensors.__getitem__, outputs.get(place, ()))),
        )
        for place in order
    ]


def places_of(graph: Graph, segments: Sequence[Segment]) -> np.ndarray:
    """Return the number of the segment that each node is in, or ``NATIVE``: ``int64[N]``."""
    places = np.full(len(graph.nodes), NATIVE)
    numbers = np.repeat(np.arange(len(segments)), [len(segment.nodes) for segment in segments])
    places[[node.index for segment in segments for node in segment.nodes]] = numbers
    return places


def nodes_outside(graph: Graph, segments: Sequence[Segment]) -> list[Node]:
    """Return the nodes that run natively, in order."""
    return list(itertools.compress(graph.nodes, (places_of(graph, segments) == NATIVE).tolist()))


def values_read(nodes: Sequence[Node]) -> tuple[ir.Value, ...]:
    """Return the run-time values that nodes read from outside, in order of first use."""
    produced = {v for node in nodes for v in node.op.outputs}
    return tuple(dict.fromkeys(v for node in nodes for v in node.reads if v not in produced))


def nodes_behind(nodes: Sequence[Node], inputs: Collection[str]) -> list[Node]:
    """Return the nodes that compute from values of these names, which come from outside, directly or through others."""
    reached = {value for value in values_read(nodes) if value.name in inputs}
    behind = []
    for node in nodes:
        if not reached.isdisjoint(node.reads):
            reached.update(node.op.outputs)
            behind.append(node)
    return behind


def values_leaving(graph: Graph, nodes: Sequence[Node]) -> tuple[ir.Value, ...]:
    """Return the values of nodes that are graph outputs or that other nodes read."""
    inside = {node.name for node in nodes}
    wanted = set(graph.outputs)
    for node in graph.nodes:
        if node.name not in inside:
            wanted.update(node.reads)
    return tuple(v for node in nodes for v in node.op.outputs if v in wanted)


def _by_place(places: np.ndarray, numbers: np.ndarray) -> dict[int, list[int]]:
    """Group numbers by place in their order, without those of native nodes."""
    order = np.argsort(places, kind="stable")
    order = order[places[order] != NATIVE]
    begins = np.flatnonzero(np.diff(places[order], prepend=NATIVE))
    sorted_numbers, found = numbers[order].tolist(), places[order[begins]].tolist()
    bounds = itertools.pairwise([*begins.tolist(), len(sorted_numbers)])
    return {place: sorted_numbers[begin:end] for place, (begin, end) in zip(found, bounds, strict=True)}


def _connected_parts(graph: Graph, places: np.ndarray) -> np.ndarray:
    """Give each connected part of a level its own place."""
    before, after = graph.topology.edges
    within = (places[before] == places[after]) & (places[before] != NATIVE)
    parts = connected_nodes(np.arange(len(places)), graph.topology.edges[:, within])
    return np.where(places == NATIVE, NATIVE, parts)


def _unused_names(graph: Graph) -> itertools.filterfalse[str]:
    taken = frozenset(graph.names)
    return itertools.filterfalse(taken.__contains__, (f"segment_{index}" for index in itertools.count()))


def _inputs(graph: Graph, places: np.ndarray) -> dict[int, list[int]]:
    """Return the tensors that enter each segment, by place, in order of first use."""
    readers, tensors = graph.topology.uses
    producers = graph.topology.producers[tensors]
    entering = (places[readers] != NATIVE) & ((producers == GRAPH_INPUT) | (places[producers] != places[readers]))
    place, tensor = places[readers[entering]], tensors[entering]
    _, first = np.unique(place * (len(graph.tensors) + 1) + tensor, return_index=True)
    first.sort()
    return _by_place(place[first], tensor[first])


def _outputs(graph: Graph, places: np.ndarray) -> dict[int, list[int]]:
    """Return the tensors that leave each segment, by place, in order of production."""
    topology = graph.topology
    made = np.flatnonzero((topology.leaving | topology.read_elsewhere(places)) & (topology.producers != GRAPH_INPUT))
    return _by_place(places[topology.producers[made]], made)
