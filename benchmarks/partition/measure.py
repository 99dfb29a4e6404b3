"""Measures every method on the same graph in turns, and scores the cuts."""

from __future__ import annotations

import dataclasses
import gc
import statistics
from collections.abc import Callable, Mapping

from benchmarks.partition.labelled_graph import LabelledGraph
from benchmarks.partition.peers import PeerCut, PeerPartitioner, Prepare
from benchmarks.partition.score import Score, minimum_segments, score, unavoidable_tensors
from trtnode.partitioner.cut.labels import Predicate, ReasonCode
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.partition import partition_graph
from trtnode.partitioner.graph.view import Graph

OURS = "trtnode"

FEWEST_TURNS, MOST_TURNS = 3, 7
"""Number of our cuts of a graph: after the fewest, until ``SECONDS`` have passed. A slow peer may get one turn."""

SECONDS = 2.0

GIVEN_UP = frozenset({ReasonCode.TOO_SMALL, ReasonCode.NOT_FASTER})
"""Reasons of nodes that the engine takes and the cut leaves out."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CutRow:
    """Cuts of one graph by one method.

    Attributes:
        source: Family of the graph.
        nodes: Size of the graph.
        native_share: Requested share of native nodes.
        method: ``OURS`` or a peer's name.
        segments: Engine segments.
        minimum: The fewest engine segments that any legal cut has.
        unavoidable: Number of tensors that cross in every cut.
        score: Measures of the groups.
        ms: Median time of labelling and cutting; for a peer, of cutting with given labels.
        turns: Number of measurements.
    """

    source: str
    nodes: int
    native_share: float
    method: str
    segments: int
    minimum: int
    unavoidable: int
    score: Score
    ms: float
    turns: int

    @property
    def graph(self) -> tuple[str, int, float]:
        """Key of the graph."""
        return self.source, self.nodes, self.native_share


def measure(
    graph: Graph,
    supports: Predicate,
    *,
    source: str,
    drivers: Mapping[PeerPartitioner, Prepare],
    turns: int = MOST_TURNS,
    native_share: float,
) -> list[CutRow]:
    """Cut a graph in turns by every method that can take a graph of its size.

    Args:
        graph: The graph to cut.
        supports: The engine's rule. Every peer gets the labels that it leads to here.
        source: For the rows.
        drivers: The function that prepares each peer.
        turns: Largest number of our cuts.
        native_share: For the rows.
    """
    labels = partition_graph(graph, supports, PartitionOptions()).labels  # the first turn, which fills caches
    supported = {name for name, verdict in labels.items() if verdict.supported or verdict.code in GIVEN_UP}
    labelled = LabelledGraph.of(graph, supported)
    methods = {OURS: lambda: _cut(graph, supports)}
    taken = {peer: prepare for peer, prepare in drivers.items() if len(graph.nodes) <= peer.most_nodes}
    methods |= {peer.name: prepare(labelled) for peer, prepare in taken.items()}
    minimum, unavoidable = minimum_segments(labelled), len(unavoidable_tensors(labelled))
    return [
        CutRow(
            source=source,
            nodes=len(graph.nodes),
            native_share=native_share,
            method=method,
            segments=cuts[-1].segments,
            minimum=minimum,
            unavoidable=unavoidable,
            score=score(labelled, cuts[-1].groups),
            ms=statistics.median(o.seconds for o in cuts) * 1e3,
            turns=len(cuts),
        )
        for method, cuts in _take_turns(methods, turns).items()
    ]


def _take_turns(methods: Mapping[str, Callable[[], PeerCut]], turns: int) -> dict[str, list[PeerCut]]:
    cuts: dict[str, list[PeerCut]] = {method: [] for method in methods}
    for turn in range(turns):
        for method, cut in methods.items():
            used = sum(cut.seconds for cut in cuts[method])
            fewest = FEWEST_TURNS if method == OURS else 1
            if turn < fewest or used < SECONDS:
                gc.collect()  # no method pays for the garbage of the one before
                cuts[method].append(cut())
    return cuts


def _cut(graph: Graph, supports: Predicate) -> PeerCut:
    partition = partition_graph(graph, supports, PartitionOptions())
    groups = tuple(tuple(node.name for node in segment.nodes) for segment in partition.segments)
    seconds = partition.seconds["label"] + partition.seconds["cut"]
    return PeerCut(segments=len(groups), groups=groups, seconds=seconds)
