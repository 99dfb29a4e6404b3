"""What a cut is worth, by one definition for every method; nothing here comes from the partitioner."""

from __future__ import annotations

import collections
import dataclasses
import graphlib

from benchmarks.partition.wiring import Groups, Wiring


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Measures of a cut.

    Attributes:
        segments: Number of groups.
        crossing_tensors: Distinct tensors that a node produces in one place and a node reads in another, where a
            place is a segment or all that is native. Each counts once, however many places read it.
        crossing_bytes: Their bytes.
        coverage: Share of the supported nodes that some segment holds.
        legal: Whether the segments are disjoint, hold only supported nodes, and leave the graph without a cycle.
    """

    segments: int
    crossing_tensors: int
    crossing_bytes: int
    coverage: float
    legal: bool


def score(wiring: Wiring, groups: Groups) -> Score:
    """Measure a cut."""
    crossing = crossing_tensors(wiring, groups)
    held = {node for group in groups for node in group} & wiring.supported
    return Score(
        segments=len(groups),
        crossing_tensors=len(crossing),
        crossing_bytes=sum(wiring.sizes.get(value, 0) for value in crossing),
        coverage=len(held) / len(wiring.supported) if wiring.supported else 1.0,
        legal=is_legal(wiring, groups),
    )


def minimum_segments(wiring: Wiring) -> int:
    """The fewest segments that any legal cut can have: the most engine runs on any path.

    Walks from the last node to the first and counts the runs on the paths that begin at each. Runs of one path that
    a native node separates can't share a segment, and one segment a run is enough (typed fusion: Kennedy and
    McKinley, Rice TR 1994).
    """
    after: dict[str, int] = collections.defaultdict(int)
    after_native: dict[str, int] = collections.defaultdict(int)
    most = 0
    predecessors = wiring.predecessors()
    for node in reversed(predecessors):
        inside = node in wiring.supported
        runs = max(after[node], after_native[node] + 1) if inside else max(after[node], after_native[node])
        most = max(most, runs)
        for before in predecessors[node]:
            ahead = after if inside else after_native
            ahead[before] = max(ahead[before], runs)
    return most


def crossing_tensors(wiring: Wiring, groups: Groups) -> set[str]:
    """The tensors that ``Score.crossing_tensors`` counts."""
    place = {node: index for index, group in enumerate(groups) for node in group}
    producers = wiring.producers()
    return {
        value
        for node, values in wiring.reads.items()
        for value in values
        if value in producers and place.get(producers[value]) != place.get(node)
    }


def unavoidable_tensors(wiring: Wiring) -> set[str]:
    """The tensors that cross in every cut of all supported nodes: those with a reader on the other side."""
    producers = wiring.producers()
    return {
        value
        for node, values in wiring.reads.items()
        for value in values
        if value in producers and (producers[value] in wiring.supported) != (node in wiring.supported)
    }


def is_legal(wiring: Wiring, groups: Groups) -> bool:
    """Whether each group can run as one piece: ``Score.legal``."""
    members = [node for group in groups for node in group]
    if len(set(members)) < len(members) or not wiring.supported.issuperset(members):
        return False
    piece: dict[str, str | int] = {node: index for index, group in enumerate(groups) for node in group}
    edges: dict[str | int, set[str | int]] = collections.defaultdict(set)
    for node, before in wiring.predecessors().items():
        after = piece.get(node, node)
        edges[after].update(other for p in before if (other := piece.get(p, p)) != after)
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError:
        return False
    return True
