"""Partitions a graph: labels it, cuts it, demotes small segments and cuts again. Builds no engine."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from trtnode.partitioner.cut.atomic_groups import AtomicGroup, atomic_groups, keep_groups
from trtnode.partitioner.cut.constant_duplication import duplicate_constant_fed
from trtnode.partitioner.cut.cost_model import CostModel
from trtnode.partitioner.cut.labels import (
    Predicate,
    ReasonCode,
    Verdict,
    engine_nodes,
    label_nodes,
    without_constant_islands,
)
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.report import (
    Estimate,
    Report,
    count_boundary_bytes,
    count_crossing_tensors,
    estimate_segments,
    find_splits,
    native_nodes,
)
from trtnode.partitioner.cut.segments import Segment, cut
from trtnode.partitioner.cut.unknown_shapes import find_unknown_shapes
from trtnode.partitioner.graph.states import states_of
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.garbage import without_collections
from trtnode.partitioner.model.values import dimensions
from trtnode.partitioner.passes.rewrites.apply import rewrites_of
from trtnode.partitioner.wording import counted


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A labelled and cut graph.

    Attributes:
        graph: The graph that was cut.
        labels: Final verdict of each node, demoted ones included, by identity.
        segments: The segments in execution order.
        groups: Atomic groups, kept together if that needs no further segment.
        options: The user's options.
        supported_nodes: Number of nodes that the engine could run.
        minimum_segments: The fewest segments that hold all of them.
        seconds: Duration of each step, by name.
    """

    graph: Graph
    labels: Mapping[str, Verdict]
    segments: tuple[Segment, ...]
    groups: tuple[AtomicGroup, ...]
    options: PartitionOptions
    supported_nodes: int
    minimum_segments: int
    seconds: Mapping[str, float]

    def report(self, *, model: str, engine: str) -> Report:
        """Report on the partition."""
        unknown = find_unknown_shapes(self.graph, self.labels)
        boundary = count_boundary_bytes(self.graph, self.segments)
        return Report(
            model=model,
            engine=engine,
            nodes=len(self.graph.nodes),
            supported_nodes=self.supported_nodes,
            minimum_segments=self.minimum_segments,
            segments=self.segments,
            estimates=estimate_segments(self.segments, boundary, CostModel(self.graph)),
            native=native_nodes(self.graph, self.segments, self.labels, unknown),
            unknown_shapes=tuple(sorted(set(unknown.values()), key=lambda one: (-one.nodes, one.after))),
            splits=find_splits(self.graph, self.segments),
            crossing_tensors=count_crossing_tensors(self.segments),
            boundary_bytes=sum(boundary),
            seconds=self.seconds,
            rewrites=rewrites_of(self.graph.model.graph),
            steps=self.graph.steps,
            states=states_of(self.graph),
        )

    def demote(self, refused: Mapping[str, Verdict]) -> Partition:
        """Run nodes natively after all and cut again.

        A new native node never raises the level of another run, so there are never more segments than before.

        Args:
            refused: The reason, by identity of the node.
        """
        labels = keep_groups(self.graph, {**self.labels, **refused}, self.groups)
        labels = without_constant_islands(self.graph, labels)
        return dataclasses.replace(self, labels=labels, segments=_cut(self.graph, labels, self.groups, self.options))

    def slower_by_estimate(self) -> dict[str, Verdict]:
        """List the nodes of segments that the estimate calls slower in an engine of a CPU, each with the reason.

        An unknown dimension but the first one, that of the batch, leaves a segment without an estimate.
        """
        estimates = self._estimates()
        return {
            node.name: Verdict(
                ReasonCode.NOT_FASTER,
                f"By estimate, the segment takes {estimate.engine_ms:.3g} ms in an engine, "
                f"{estimate.native_ms:.3g} ms natively.",
            )
            for segment in self.segments
            if (estimate := estimates[segment.name]).engine_ms >= estimate.native_ms and _has_sizes(segment)
            for node in segment.nodes
        }

    def gain_by_estimate(self) -> float:
        """Return how many times as fast engines of a CPU run the segments, by estimate."""
        estimates = self._estimates().values()
        return sum(one.native_ms for one in estimates) / sum(one.engine_ms for one in estimates)

    def share_of_largest(self) -> float:
        """Return the share that one segment has in the native time of all, by estimate."""
        times = [one.native_ms for one in self._estimates().values()]
        return max(times) / sum(times)

    def _estimates(self) -> Mapping[str, Estimate]:
        boundary = count_boundary_bytes(self.graph, self.segments)
        return estimate_segments(self.segments, boundary, CostModel(self.graph))


@without_collections()
def partition_graph(graph: Graph, supports: Predicate, options: PartitionOptions) -> Partition:
    """Label every node and cut the supported ones into the fewest segments.

    Args:
        graph: The cleaned graph. The partition has another one if it copies nodes that compute from constants.
        supports: The backend's rule.
        options: The user's options.

    Raises:
        UnknownOptionError: If ``options`` lists an operator that neither the model nor ONNX has.
    """
    seconds: dict[str, float] = {}
    with _timed(seconds, "label"):
        groups = atomic_groups(graph)
        labels = keep_groups(graph, label_nodes(graph, supports, options), groups)
        labels = without_constant_islands(graph, labels)
    with _timed(seconds, "cut"):
        segments = _cut(graph, labels, groups, options)
        graph, copies = duplicate_constant_fed(graph, segments) if any(graph.constant) else (graph, {})
        if copies:
            groups = atomic_groups(graph)
            labels.update({copy: labels[original] for copy, original in copies.items()})
            labels = without_constant_islands(graph, keep_groups(graph, labels, groups))
            segments = _cut(graph, labels, groups, options)
        partition = Partition(
            graph=graph,
            labels=labels,
            segments=segments,
            groups=groups,
            options=options,
            supported_nodes=sum(len(segment.nodes) for segment in segments),
            minimum_segments=max((segment.level for segment in segments), default=0),
            seconds=seconds,
        )
        return _limit_segments(_demote_small(partition))


def _cut(
    graph: Graph, labels: Mapping[str, Verdict], groups: Sequence[AtomicGroup], options: PartitionOptions
) -> tuple[Segment, ...]:
    inside = engine_nodes(graph, labels)
    together = [group.nodes for group in groups if all(inside[index] for index in group.nodes)]
    return tuple(cut(graph, inside, together=together, connected=options.connected))


def _has_sizes(segment: Segment) -> bool:
    values = (v for node in segment.nodes for v in (*node.reads, *node.op.outputs) if v.name)
    shapes = [dimensions(value) for value in values]
    return all(shape is not None and all(isinstance(size, int) for size in shape[1:]) for shape in shapes)


def _demote_small(partition: Partition) -> Partition:
    minimum = partition.options.min_segment_nodes
    while small := [s for s in partition.segments if len(s.nodes) < minimum]:
        partition = partition.demote(
            {
                node.name: Verdict(
                    ReasonCode.TOO_SMALL,
                    f"Its segment would have {counted(len(segment.nodes), 'node')}; min_segment_nodes is {minimum}.",
                )
                for segment in small
                for node in segment.nodes
            }
        )
    return partition


def _limit_segments(partition: Partition) -> Partition:
    """Demote the segments of the smallest estimated benefit, one at a time, because others may merge after each."""
    most = partition.options.max_segments
    costs = CostModel(partition.graph) if most is not None else None
    while costs and most is not None and len(partition.segments) > most:
        boundary = count_boundary_bytes(partition.graph, partition.segments)
        estimates = estimate_segments(partition.segments, boundary, costs)
        worst = min(partition.segments, key=lambda s: estimates[s.name].native_ms - estimates[s.name].engine_ms)
        detail = f"Its segment has the smallest estimated benefit of {len(partition.segments)}; max_segments is {most}."
        partition = partition.demote({node.name: Verdict(ReasonCode.TOO_SMALL, detail) for node in worst.nodes})
    return partition


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - start
