"""Cuts the supported nodes into the fewest segments that leave the graph without a cycle."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from partitioner.errors import UnlabelledNodeError
from partitioner.graph import Graph, Node
from partitioner.placement import connected_nodes, place_nodes
from partitioner.topology import GRAPH_INPUT

NATIVE = -1
"""Place of a node that no engine runs."""


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


def cut_segments(
    graph: Graph,
    supported: Mapping[str, bool],
    *,
    together: Sequence[Sequence[int]] = (),
    connected: bool = False,
) -> list[Segment]:
    """Cut the supported nodes into the fewest segments that leave the graph without a cycle.

    Args:
        graph: The cleaned graph.
        supported: Whether the engine takes a node, by node identity.
        together: Groups of supported nodes, by number, to keep in one segment where that needs no further segment.
        connected: Whether each segment must be connected. Then a level may have several.

    Returns:
        Segments in execution order. Each supported node is in exactly one of them.

    Raises:
        UnlabelledNodeError: If a node of ``graph`` is missing from ``supported``.
    """
    try:
        inside = [supported[node.name] for node in graph.nodes]
    except KeyError as error:
        raise UnlabelledNodeError(error.args[0]) from None
    levels = place_nodes(graph.topology, inside, together=together)
    places = np.where(inside, np.array(levels, dtype=np.int64), NATIVE)
    if connected:
        places = _connected_parts(graph, places)
    members: dict[int, list[int]] = {}
    for index, place in enumerate(places.tolist()):
        if place != NATIVE:
            members.setdefault(place, []).append(index)
    order = sorted(members.values(), key=lambda indices: (levels[indices[0]], indices[0]))
    names = _unused_names(graph)
    outputs = _outputs(graph, places)
    return [
        Segment(
            name=next(names),
            level=levels[indices[0]],
            nodes=tuple(graph.nodes[i] for i in indices),
            inputs=_inputs(graph, indices),
            outputs=tuple(outputs.get(int(places[indices[0]]), ())),
        )
        for indices in order
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


def _connected_parts(graph: Graph, places: np.ndarray) -> np.ndarray:
    """Give the connected parts of each level places of their own."""
    before, after = graph.topology.edges
    within = (places[before] == places[after]) & (places[before] != NATIVE)
    parts = connected_nodes(np.arange(len(places)), graph.topology.edges[:, within])
    return np.where(places == NATIVE, NATIVE, parts)


def _unused_names(graph: Graph) -> itertools.filterfalse[str]:
    taken = {node.name for node in graph.nodes}
    return itertools.filterfalse(taken.__contains__, (f"segment_{index}" for index in itertools.count()))


def _inputs(graph: Graph, indices: Sequence[int]) -> tuple[ir.Value, ...]:
    inside, producers, reads = set(indices), graph.producers, graph.topology.reads
    found = dict.fromkeys(t for i in indices for t in reads[i] if producers[t] not in inside)
    return tuple(graph.tensors[t] for t in found)


def _outputs(graph: Graph, places: np.ndarray) -> dict[int, list[ir.Value]]:
    """Values that leave each segment, by its place, in the order in which they are produced."""
    topology = graph.topology
    crossing = (topology.leaving | topology.read_elsewhere(places)) & (topology.producers != GRAPH_INPUT)
    found: dict[int, list[ir.Value]] = {}
    for tensor in np.flatnonzero(crossing).tolist():
        found.setdefault(int(places[topology.producers[tensor]]), []).append(graph.tensors[tensor])
    return found
