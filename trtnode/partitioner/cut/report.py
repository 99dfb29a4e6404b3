"""Report of a partition: where each node runs, and why; for people, scripts and the compiled file."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from trtnode.partitioner.cut.cost_model import CostModel
from trtnode.partitioner.cut.labels import Verdict
from trtnode.partitioner.cut.segments import NATIVE, Segment, nodes_outside, places_of
from trtnode.partitioner.cut.unknown_shapes import UnknownShapes
from trtnode.partitioner.graph.states import States
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.values import Dimension
from trtnode.partitioner.passes.rewrites.apply import Rewritten
from trtnode.partitioner.wording import counted


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NativeNode:
    """A node that no engine runs, with the reason."""

    node: str
    op_type: str
    code: str
    detail: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Proof that two neighbouring segments can't be one.

    Attributes:
        between: Names of the two segments.
        witness: A path from a node of the first to a node of the second whose inner nodes are native.
    """

    between: tuple[str, str]
    witness: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Estimated time of a segment, in an engine and natively."""

    engine_ms: float
    native_ms: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report:
    """Outcome of a partitioning. ``as_json`` gives the documented form.

    ``labelled_by`` says why the engine's library took no part in labelling; it is empty if it did. ``unchecked`` says
    why engines were built but not run; it is empty if they were. ``compiled_before`` says whether a compilation has
    built and checked these segments here; it is None in the report of a compilation, and without segments. ``sizes``
    has the shapes of inputs where runs have shown that sizes follow from others, with sums of names for these.
    ``processor_seconds`` has the processor time of a compilation by phase. ``steps`` has the step of each node of an
    ensemble, by identity. ``states`` is what ``state: auto`` finds.
    """

    model: str
    engine: str
    nodes: int
    supported_nodes: int
    minimum_segments: int
    segments: tuple[Segment, ...]
    estimates: Mapping[str, Estimate]
    native: tuple[NativeNode, ...]
    unknown_shapes: tuple[UnknownShapes, ...]
    splits: tuple[Split, ...]
    crossing_tensors: int
    boundary_bytes: int
    seconds: Mapping[str, float]
    tuning: Mapping[str, Any] | None = None
    precision: Mapping[str, Any] | None = None
    memory: Mapping[str, Any] | None = None
    labelled_by: str = ""
    unchecked: str = ""
    compiled_before: bool | None = None
    rewrites: tuple[Rewritten, ...] = ()
    sizes: Mapping[str, Sequence[Dimension]] = dataclasses.field(default_factory=dict)
    steps: Mapping[str, str] = dataclasses.field(default_factory=dict)
    processor_seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    states: States | None = None

    def __repr__(self) -> str:
        engines = f"{counted(len(self.segments), 'segment')} for {self.engine}, "
        native = counted(len(self.native), "native node")
        return f"<{type(self).__name__} of {self.model}: {engines if self.segments else ''}{native}>"

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {
            "model": self.model,
            "engine": self.engine,
            "nodes": self.nodes,
            "supported_nodes": self.supported_nodes,
            "engine_nodes": sum(len(s.nodes) for s in self.segments),
            "minimum_segments": self.minimum_segments,
            "segments": [self._segment_as_json(s) for s in self.segments],
            "native": [{"node": n.node, "op_type": n.op_type, "code": n.code, "detail": n.detail} for n in self.native],
            "unknown_shapes": [dataclasses.asdict(u) for u in self.unknown_shapes],
            "splits": [{"between": list(s.between), "witness": list(s.witness)} for s in self.splits],
            "crossing_tensors": self.crossing_tensors,
            "boundary_bytes": self.boundary_bytes,
            **({"steps": list(dict.fromkeys(self.steps.values()))} if self.steps else {}),
            **({"state": self.states.as_json()} if self.states else {}),
            **({"rewrites": [_rounded(dataclasses.asdict(r)) for r in self.rewrites]} if self.rewrites else {}),
            "seconds": _rounded(dict(self.seconds)),
            **({"processor_seconds": _rounded(dict(self.processor_seconds))} if self.processor_seconds else {}),
            **({"labelled_by": self.labelled_by} if self.labelled_by else {}),
            **({"checked": False} if self.unchecked else {}),
            **({} if self.compiled_before is None else {"compiled_before": self.compiled_before}),
            **({} if self.tuning is None else {"tuning": dict(self.tuning)}),
            **({} if self.precision is None else {"precision": dict(self.precision)}),
            **({} if self.memory is None else {"memory": dict(self.memory)}),
            **({"sizes": {name: list(shape) for name, shape in self.sizes.items()}} if self.sizes else {}),
        }

    def _segment_as_json(self, segment: Segment) -> dict[str, Any]:
        return {
            "name": segment.name,
            "backend": self.engine,
            "nodes": [n.name for n in segment.nodes],
            "inputs": [v.name for v in segment.inputs],
            "outputs": [v.name for v in segment.outputs],
            "level": segment.level,
            **({"steps": self._steps_of(segment)} if self.steps else {}),
            "estimate": _rounded(dataclasses.asdict(self.estimates[segment.name])),
        }

    def _steps_of(self, segment: Segment) -> list[str]:
        return list(dict.fromkeys(self.steps[node.name] for node in segment.nodes if node.name in self.steps))


def levels_of(graph: Graph, segments: Sequence[Segment]) -> list[int]:
    """Return each node's level by number: its segment's, or for a native node the largest among its inputs."""
    levels: list[int] = []
    for place, predecessors in zip(places_of(graph, segments).tolist(), graph.topology.predecessors, strict=True):
        native = place == NATIVE
        levels.append(max([levels[p] for p in predecessors], default=0) if native else segments[place].level)
    return levels


def find_splits(graph: Graph, segments: Sequence[Segment]) -> tuple[Split, ...]:
    """Find for each pair of neighbouring segments a path that leaves the engine and comes back, in O(nodes + edges).

    Native nodes on such a path have the level of its first segment, because levels never fall along an edge.
    So each native node is visited for one pair alone.
    """
    places, levels = places_of(graph, segments).tolist(), levels_of(graph, segments)
    splits = []
    for before, after in itertools.pairwise(segments):
        starts = [node.index for node in after.nodes]
        path = _path_back(starts, before, graph.topology.predecessors, places, levels)
        if path:
            names = tuple(graph.nodes[index].name for index in path)
            splits.append(Split(between=(before.name, after.name), witness=names))
    return tuple(splits)


def count_crossing_tensors(segments: Sequence[Segment]) -> int:
    """Count the tensors that enter or leave a segment, once for each segment."""
    return sum(len(s.inputs) + len(s.outputs) for s in segments)


def count_boundary_bytes(graph: Graph, segments: Sequence[Segment]) -> list[int]:
    """Return the bytes of the tensors that cross, by segment; an unknown dimension counts as one."""
    sizes = dict(zip(graph.tensors, graph.topology.sizes.tolist(), strict=True))
    return [sum(sizes[value] for value in (*s.inputs, *s.outputs)) for s in segments]


def estimate_segments(segments: Sequence[Segment], boundary: Sequence[int], costs: CostModel) -> dict[str, Estimate]:
    """Estimate each segment's time, by segment name.

    Args:
        segments: To estimate.
        boundary: What ``count_boundary_bytes`` gives for them.
        costs: Of their graph.
    """
    estimates = {}
    for segment, crossing in zip(segments, boundary, strict=True):
        nodes = [node.index for node in segment.nodes]
        engine_s = costs.segment_s(nodes, crossing)
        estimates[segment.name] = Estimate(engine_ms=engine_s * 1e3, native_ms=costs.native_s(nodes) * 1e3)
    return estimates


def native_nodes(
    graph: Graph, segments: Sequence[Segment], labels: Mapping[str, Verdict], unknown: Mapping[str, UnknownShapes]
) -> tuple[NativeNode, ...]:
    """Return every node outside the segments, with its reason, or the cause of an unknown shape."""
    return tuple(
        NativeNode(
            node=node.name,
            op_type=node.op_type,
            code=str(labels[node.name].code or ""),
            detail=unknown[node.name].cause if node.name in unknown else labels[node.name].detail,
        )
        for node in nodes_outside(graph, segments)
    )


def _rounded(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in fields.items()}


def _path_back(
    starts: Sequence[int],
    target: Segment,
    predecessors: Sequence[Sequence[int]],
    places: Sequence[int],
    levels: Sequence[int],
) -> list[int]:
    """Walk back over native nodes of the target's level to the target; return an empty path if there is none."""
    level, place = target.level, places[target.nodes[0].index]
    follows = {p: start for start in starts for p in predecessors[start] if places[p] == NATIVE}
    pending = [node for node in follows if levels[node] == level]
    while pending:
        node = pending.pop()
        if places[node] == place:
            path = [node]
            while path[-1] in follows:
                path.append(follows[path[-1]])
            return path
        for p in predecessors[node]:
            if p not in follows and levels[p] == level and places[p] in (NATIVE, place):
                follows[p] = node
                pending.append(p)
    return []
