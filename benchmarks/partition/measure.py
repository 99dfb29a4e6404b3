"""Lets every method cut the same graph in turn, and scores what comes out."""

from __future__ import annotations

import dataclasses
import gc
import statistics
from collections.abc import Callable, Mapping

from benchmarks.partition.peers import Outcome, Peer, Prepare
from benchmarks.partition.score import Score, minimum_segments, score, unavoidable_tensors
from benchmarks.partition.wiring import Wiring
from partitioner import Graph, PartitionOptions, Predicate, ReasonCode, partition_graph

OURS = "trtnode"

FEWEST_TURNS, MOST_TURNS = 3, 7
"""How often we cut a graph: after the fewest turns, until ``SECONDS`` are used. A slow peer may have but one turn."""

SECONDS = 2.0

GIVEN_UP = frozenset({ReasonCode.TOO_SMALL, ReasonCode.NOT_FASTER})
"""Reasons of nodes that the engine takes and that the cut left out."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one method made of one graph.

    Attributes:
        source: Family of the graph, or model and refused operator.
        nodes: Size of the graph.
        native_share: Share of nodes asked to be native; of a model's, those that are.
        method: ``OURS`` or a peer's name.
        segments: Engine segments; of HETERO, native ones too.
        minimum: The fewest engine segments that any legal cut has.
        unavoidable: Tensors that cross in every cut.
        score: Measures of the groups; None where the method doesn't tell them.
        ms: Median time of labelling and cutting; of a peer's, of cutting with given labels. None where neither.
        turns: How often it was measured.
    """

    source: str
    nodes: int
    native_share: float
    method: str
    segments: int
    minimum: int
    unavoidable: int
    score: Score | None
    ms: float | None
    turns: int

    @property
    def graph(self) -> tuple[str, int, float]:
        """What tells graphs apart."""
        return self.source, self.nodes, self.native_share


def measure(
    graph: Graph,
    supports: Predicate,
    *,
    source: str,
    drivers: Mapping[Peer, Prepare],
    turns: int = MOST_TURNS,
    native_share: float | None = None,
) -> list[Row]:
    """Cut a graph by every method that can take one of its size, the methods taking turns.

    Args:
        graph: What to cut.
        supports: The engine's rule. The labels that it leads to here are given to every peer.
        source: For the rows.
        drivers: Peers by what prepares them.
        turns: How often we cut at most.
        native_share: For the rows; by default the share that was found.
    """
    labels = partition_graph(graph, supports, PartitionOptions()).labels  # the first turn, which fills caches
    supported = {name for name, verdict in labels.items() if verdict.supported or verdict.code in GIVEN_UP}
    wiring = Wiring.of(graph, supported)
    methods = {OURS: lambda: _cut(graph, supports)}
    taken = {peer: prepare for peer, prepare in drivers.items() if len(graph.nodes) <= peer.most_nodes}
    methods |= {peer.name: prepare(wiring) for peer, prepare in taken.items()}
    untimed = {peer.name for peer in taken if not peer.timed}
    minimum, unavoidable = minimum_segments(wiring), len(unavoidable_tensors(wiring))
    return [
        Row(
            source=source,
            nodes=len(graph.nodes),
            native_share=1 - len(supported) / len(graph.nodes) if native_share is None else native_share,
            method=method,
            segments=outcomes[-1].segments,
            minimum=minimum,
            unavoidable=unavoidable,
            score=None if outcomes[-1].groups is None else score(wiring, outcomes[-1].groups),
            ms=None if method in untimed else statistics.median(o.seconds for o in outcomes) * 1e3,
            turns=len(outcomes),
        )
        for method, outcomes in _take_turns(methods, untimed, turns).items()
    ]


def _take_turns(
    methods: Mapping[str, Callable[[], Outcome]], untimed: set[str], turns: int
) -> dict[str, list[Outcome]]:
    outcomes: dict[str, list[Outcome]] = {method: [] for method in methods}
    for turn in range(turns):
        for method, cut in methods.items():
            used = sum(outcome.seconds for outcome in outcomes[method])
            fewest = FEWEST_TURNS if method == OURS else 1
            if turn < fewest or (method not in untimed and used < SECONDS):
                gc.collect()  # nobody pays for what the one before left behind
                outcomes[method].append(cut())
    return outcomes


def _cut(graph: Graph, supports: Predicate) -> Outcome:
    partition = partition_graph(graph, supports, PartitionOptions())
    groups = tuple(tuple(node.name for node in segment.nodes) for segment in partition.segments)
    seconds = partition.seconds["label"] + partition.seconds["cut"]
    return Outcome(segments=len(groups), groups=groups, seconds=seconds)
