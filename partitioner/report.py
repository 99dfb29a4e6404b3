"""Says which node runs where, and why; the same facts for people, for scripts and inside the compiled file."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from partitioner.graph import Graph, Node
from partitioner.labels import Verdict
from partitioner.segments import Segment, assign_levels


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NativeNode:
    """A node that no engine runs, and the reason."""

    node: str
    op_type: str
    code: str
    detail: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Why two neighbouring segments can't be one.

    Attributes:
        between: Names of the two segments.
        witness: A path from a node of the first to a node of the second whose inner nodes are native.
    """

    between: tuple[str, str]
    witness: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Outcome of a partitioning. ``as_json`` gives the documented form."""

    model: str
    engine: str
    nodes: int
    supported_nodes: int
    minimum_segments: int
    segments: tuple[Segment, ...]
    native: tuple[NativeNode, ...]
    splits: tuple[Split, ...]
    crossing_tensors: int
    seconds: Mapping[str, float]
    tuning: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {
            "model": self.model,
            "engine": self.engine,
            "nodes": self.nodes,
            "supported_nodes": self.supported_nodes,
            "engine_nodes": sum(len(s.nodes) for s in self.segments),
            "minimum_segments": self.minimum_segments,
            "segments": [
                {
                    "name": s.name,
                    "backend": self.engine,
                    "nodes": [n.name for n in s.nodes],
                    "inputs": [v.name for v in s.inputs],
                    "outputs": [v.name for v in s.outputs],
                    "level": s.level,
                }
                for s in self.segments
            ],
            "native": [dataclasses.asdict(n) for n in self.native],
            "splits": [{"between": list(s.between), "witness": list(s.witness)} for s in self.splits],
            "crossing_tensors": self.crossing_tensors,
            "seconds": {step: round(seconds, 6) for step, seconds in self.seconds.items()},
            **({} if self.tuning is None else {"tuning": dict(self.tuning)}),
        }


def find_splits(graph: Graph, segments: Sequence[Segment]) -> tuple[Split, ...]:
    """Find for each pair of neighbouring segments a path that leaves the engine and comes back."""
    owner = {node.name: segment for segment in segments for node in segment.nodes}
    levels = assign_levels(graph, {node.name: node.name in owner for node in graph.nodes})
    by_name = {node.name: node for node in graph.nodes}
    splits = []
    for before, after in itertools.pairwise(segments):
        for node in after.nodes:
            path = _path_back(node, before, by_name, owner, levels)
            if path:
                splits.append(Split(between=(before.name, after.name), witness=path))
                break
    return tuple(splits)


def count_crossing_tensors(segments: Sequence[Segment]) -> int:
    """Number of distinct tensors that enter or leave a segment, each counted once a segment that it touches."""
    return sum(len(s.inputs) + len(s.outputs) for s in segments)


def native_nodes(graph: Graph, segments: Sequence[Segment], labels: Mapping[str, Verdict]) -> tuple[NativeNode, ...]:
    """Every node outside the segments, with its reason."""
    inside = {node.name for segment in segments for node in segment.nodes}
    return tuple(
        NativeNode(
            node=node.name,
            op_type=node.op_type,
            code=str(labels[node.name].code or ""),
            detail=labels[node.name].detail,
        )
        for node in graph.nodes
        if node.name not in inside
    )


def _path_back(
    node: Node,
    target: Segment,
    by_name: Mapping[str, Node],
    owner: Mapping[str, Segment],
    levels: Mapping[str, int],
) -> tuple[str, ...]:
    """Walk from a node back over native nodes of the target's level until the target itself; empty if there is no way.

    A native node of level L has an input of level L, down to a node of the segment of level L: so one descent, which
    never branches, finds the way where there is one.
    """
    path = [node.name]
    current = node
    while True:
        steps = [p for p in current.predecessors if levels[p] == target.level and owner.get(p) in (None, target)]
        if current is node:
            steps = [p for p in steps if p not in owner]
        if not steps:
            return ()
        path.insert(0, steps[0])
        if steps[0] in owner:
            return tuple(path)
        current = by_name[steps[0]]
