"""Label, cut, demote what is too small, and cut again: the whole of partitioning, without building anything."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from partitioner.graph import Graph
from partitioner.labels import (
    PartitionOptions,
    Predicate,
    ReasonCode,
    Verdict,
    label_nodes,
    without_constant_islands,
)
from partitioner.report import Report, count_crossing_tensors, find_splits, native_nodes
from partitioner.segments import Segment, cut_segments


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A labelled and cut graph.

    Attributes:
        graph: What was cut.
        labels: Final verdict of each node, by identity: demoted nodes included.
        segments: In execution order.
        supported_nodes: How many nodes the engine could run.
        minimum_segments: The fewest segments that hold all of them.
        seconds: Time of each step.
    """

    graph: Graph
    labels: Mapping[str, Verdict]
    segments: tuple[Segment, ...]
    supported_nodes: int
    minimum_segments: int
    seconds: Mapping[str, float]

    def report(self, *, model: str, engine: str) -> Report:
        """Explain the partition."""
        return Report(
            model=model,
            engine=engine,
            nodes=len(self.graph.nodes),
            supported_nodes=self.supported_nodes,
            minimum_segments=self.minimum_segments,
            segments=self.segments,
            native=native_nodes(self.graph, self.segments, self.labels),
            splits=find_splits(self.graph, self.segments),
            crossing_tensors=count_crossing_tensors(self.segments),
            seconds=self.seconds,
        )

    def demote(self, refused: Mapping[str, Verdict]) -> Partition:
        """Run some nodes natively after all and cut again.

        Native nodes only ever lower levels of the others' runs, so the other segments stay legal and there are never
        more of them.

        Args:
            refused: Why, by node identity.
        """
        labels = without_constant_islands(self.graph, {**self.labels, **refused})
        segments = cut_segments(self.graph, {name: v.supported for name, v in labels.items()})
        return dataclasses.replace(self, labels=labels, segments=tuple(segments))


def partition_graph(graph: Graph, supports: Predicate, options: PartitionOptions) -> Partition:
    """Label every node and cut the supported ones into the fewest segments.

    Args:
        graph: The cleaned graph.
        supports: The backend's rule.
        options: The user's wishes.

    Raises:
        UnknownOptionError: If ``options`` lists an operator that neither the model nor ONNX has.
    """
    seconds: dict[str, float] = {}
    with _timed(seconds, "label"):
        labels = without_constant_islands(graph, label_nodes(graph, supports, options))
    with _timed(seconds, "cut"):
        segments = cut_segments(graph, {name: v.supported for name, v in labels.items()})
        partition = Partition(
            graph=graph,
            labels=labels,
            segments=tuple(segments),
            supported_nodes=sum(v.supported for v in labels.values()),
            minimum_segments=len(segments),
            seconds=seconds,
        )
        return _demote_small(partition, options.min_segment_nodes)


def _demote_small(partition: Partition, minimum: int) -> Partition:
    while small := [s for s in partition.segments if len(s.nodes) < minimum]:
        partition = partition.demote(
            {
                node.name: Verdict(
                    ReasonCode.TOO_SMALL,
                    f"Its segment would have {len(segment.nodes)} nodes; min_segment_nodes is {minimum}.",
                )
                for segment in small
                for node in segment.nodes
            }
        )
    return partition


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - start
